"""Importance sampling for PyTorch training loops, with numbers that say whether it helps.

>>> import emais
>>> imp = emais.EMAIS(num_samples=1000, batch_size=50)
>>> imp.diagnostics.step
0
"""

from . import functional
from .auditing.pilot import audit
from .engine import Engine
from .errors import EmaisError
from .loading.by_index import ByIndex
from .loading.draw import Draw
from .log import Log, log_numbers
from .methods import METHODS, create
from .methods.audit import Audit
from .methods.emais import EMAIS
from .methods.emais_auto import EMAISAuto
from .methods.weighted import Weighted
from .observing.finding import Finding
from .processes.checkpoints import read_parts
from .rates.schedule import EffectiveSchedule
from .statistics.scores import EMAScores
from .weighted_sampler import WeightedSampler

__version__ = "0.1.0"
__all__ = [
    "EMAIS",
    "METHODS",
    "Audit",
    "ByIndex",
    "Draw",
    "EMAISAuto",
    "EMAScores",
    "EffectiveSchedule",
    "EmaisError",
    "Engine",
    "Finding",
    "Log",
    "Weighted",
    "WeightedSampler",
    "audit",
    "create",
    "functional",
    "log_numbers",
    "read_parts",
]

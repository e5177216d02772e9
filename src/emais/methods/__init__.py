"""All methods by name. Each is one class; `create` is the way to choose by a word."""

from __future__ import annotations

from typing import Any

from ..engine import Engine
from ..errors import EmaisError, nearest
from .audit import Audit
from .confidence import Confidence, ConfVar
from .emais import EMAIS
from .emais_auto import EMAISAuto
from .presampling import Presampling
from .rais import RAIS
from .self_paced import SelfPaced
from .sgd import SGDScan, SGDUni

METHODS: dict[str, type[Engine]] = {
    cls.name: cls
    for cls in (SGDScan, SGDUni, RAIS, Presampling, Confidence, ConfVar, SelfPaced, EMAIS, EMAISAuto, Audit)
}


def create(name: str, num_samples: int, batch_size: int | None = None, **settings: Any) -> Engine:
    """Make an engine by the name of its method; settings as the method's class takes them.

    >>> create("sgd-scan", 100, batch_size=10).name
    'sgd-scan'
    """
    if name not in METHODS:
        raise EmaisError(f"unknown method {name!r}: the methods are {', '.join(METHODS)}{nearest(name, METHODS)}")
    if batch_size is not None:
        settings["batch_size"] = batch_size
    return METHODS[name](num_samples, **settings)

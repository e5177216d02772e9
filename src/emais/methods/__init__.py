"""All methods by name. Each is one file and one class; `create` is the way to choose by a word."""

from __future__ import annotations

import difflib
from typing import Any

from ..engine import Engine
from ..errors import EmaisError
from .auto import EMAISAuto
from .confidence import Confidence, ConfVar
from .ema import EMAIS
from .presampling import Presampling
from .rais import RAIS
from .self_paced import SelfPaced
from .sgd import SGDScan, SGDUni

METHODS: dict[str, type[Engine]] = {
    cls.name: cls for cls in (SGDScan, SGDUni, RAIS, Presampling, Confidence, ConfVar, SelfPaced, EMAIS, EMAISAuto)
}


def create(name: str, num_samples: int, **settings: Any) -> Engine:
    """Make an engine by the name of its method; settings as the method's class takes them.

    >>> create("sgd-scan", 100, batch_size=10).name
    'sgd-scan'
    """
    if name not in METHODS:
        close = difflib.get_close_matches(str(name), METHODS, n=1)
        hint = f"; did you mean {close[0]!r}?" if close else ""
        raise EmaisError(f"unknown method {name!r}: the methods are {', '.join(METHODS)}{hint}")
    return METHODS[name](num_samples, **settings)

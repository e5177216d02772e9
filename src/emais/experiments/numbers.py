"""Numbers of several seeds as one, and as text."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

DASH = "–"


def number(value: Any) -> float:
    """A number of a record, where null stands for one that is not finite."""
    return math.nan if value is None else float(value)


def mean_sd(values: Sequence[float]) -> tuple[float, float]:
    """Mean and sample standard deviation of the finite values (NaN where too few are left for one).

    >>> mean_sd([1.0, 3.0, float("nan")])
    (2.0, 1.4142135623730951)
    """
    finite = [v for v in values if math.isfinite(v)]
    if not finite:
        return math.nan, math.nan
    mean = math.fsum(finite) / len(finite)
    if len(finite) == 1:
        return mean, math.nan
    return mean, math.sqrt(math.fsum((v - mean) ** 2 for v in finite) / (len(finite) - 1))


def with_sd(mean: float, sd: float, places: int = 2) -> str:
    """Mean and standard deviation.

    >>> with_sd(10.523, 0.1), with_sd(10.5, float("nan")), with_sd(float("nan"), float("nan"))
    ('10.52 ± 0.10', '10.50', '–')
    """
    if not math.isfinite(mean):
        return DASH
    return f"{mean:.{places}f} ± {sd:.{places}f}" if math.isfinite(sd) else f"{mean:.{places}f}"


def decimal(value: float) -> str:
    """A small number the short way.

    >>> decimal(5e-4), decimal(0.01)
    ('5e-4', '0.01')
    """
    return f"{value:.0e}".replace("e-0", "e-") if value < 0.01 else f"{value:g}"

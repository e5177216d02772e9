"""What values may be: those of gradient norms, and those of a saved tensor."""

from __future__ import annotations

import sys
from dataclasses import dataclass

import torch
from torch import Tensor

from ..errors import EmaisError

NORM_MAX = 2.0**62  # a larger gradient norm counts as non-finite: its square would not fit
MOST_STEPS = 2**62  # far more than anyone trains, and whole numbers of steps times samples still fit
AS_SAVED = "pass what state_dict() gave"


@dataclass(frozen=True)
class Limit:
    """What the values of a saved tensor may be: from low to high; finite: whether all must be finite."""

    low: float = -sys.float_info.max
    high: float = sys.float_info.max
    finite: bool = True

    def check(self, values: Tensor, name: str) -> None:
        """Refuse a tensor that has a value beyond the limits."""
        if not self.finite:
            values = values[values.isfinite()]
        if not values.numel():
            return
        low, high = (float(x) for x in torch.aminmax(values))
        if not (self.low <= low and high <= self.high):  # false for NaN
            raise EmaisError(f"{name} must hold {self}, got values from {low:g} to {high:g}: {AS_SAVED}")

    def __str__(self) -> str:
        below = "" if self.low == -sys.float_info.max else f" of at least {self.low:g}"
        above = "" if self.high == sys.float_info.max else f" and at most {self.high:g}"
        return f"{'finite ' if self.finite else ''}numbers{below}{above}"


ANY = Limit()


FROM_0 = Limit(0.0)


ABOVE_0 = Limit(sys.float_info.min)

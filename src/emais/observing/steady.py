"""The learning-rate factor of the steady rules: from averages over earlier steps, never from the step itself."""

from __future__ import annotations

import math

import torch

from ..functional.rates import steady_gain
from ..statistics.arrays import Array, Arrays, Number

STEPS, SAMPLES = 50, 1024  # that the averages look back on, whichever is more


class SteadyMoments:
    """Moving averages over windows of E r^2|g|^2, E|g|^2 and |E g|^2, and the gain that they give.

    The third comes from pairs of different samples, (|sum r g|^2 - sum |r g|^2)/(n (n - 1)), so all three are unbiased.
    A factor that has not seen its own minibatch leaves the update unbiased, too. The averages start at 0; `weight` says
    how much they hold, and the gain starts at 1. All is written in place, so that CUDA graphs carry it.
    """

    def __init__(self, arrays: Arrays) -> None:
        self._arrays = arrays
        # means of r^2|g|^2, r|g|^2 and r|g|; |sum r g|^2/(n (n - 1)); weight
        self.saved = torch.zeros(5, dtype=torch.float64, device=arrays.device)
        self._moments = arrays.array(self.saved)  # the same memory
        self._parts: dict[float, Array] = {}  # by n: what makes means of sums

    def close(self, sums: Array, num: float) -> None:
        """Take in a window's four sums. One that is not finite changes nothing."""
        arrays, parts = self._arrays, self._parts.get(num)
        if parts is None:
            pairs = num * (num - 1) or math.inf
            found = torch.tensor([1 / num, 1 / num, 1 / num, 1 / pairs], dtype=torch.float64, device=arrays.device)
            parts = self._parts[num] = arrays.array(found)
        share = 1 / max(STEPS, SAMPLES / num)
        new = sums * parts
        known = arrays.finite(new)
        self._moments[:4] += arrays.where(known, share * (new - self._moments[:4]), 0.0)  # type: ignore[assignment]
        self._moments[4:] += share * known * (1 - self._moments[4:])

    def gain(self, num: float) -> Number:
        """The gain of a step with so many samples."""
        number = self._arrays.number
        drawn, uniform, _, square, weight = (number(self._moments[k]) for k in range(5))
        mean = square - drawn / (num - 1) if num > 1 else 0 * square
        gain: Number = 1 + weight * (steady_gain(uniform, drawn, mean, num) - 1)
        return gain

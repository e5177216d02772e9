"""The learning-rate factor of the steady rules: from averages over earlier steps, never from the step itself."""

from __future__ import annotations

import math

import torch

from ..functional.rates import steady_gain
from ..statistics.arrays import Array, Arrays, Number

STEPS_BACK, SAMPLES_BACK = 50, 1024  # that the averages look back on, whichever is more


class SteadyMoments:
    """Moving averages over windows of E r^2|g|^2, E|g|^2 and |E g|^2, and the gain that they give.

    The third comes from pairs of different samples, (|sum r g|^2 - sum |r g|^2)/(n (n - 1)), so all three are unbiased,
    also where windows have different numbers of samples. A factor that has not seen its own minibatch leaves the update
    unbiased, too. The averages start at 0; `weight` says how much they hold, and the gain starts at 1. All is written
    in place, so that CUDA graphs carry it.
    """

    def __init__(self, arrays: Arrays) -> None:
        self._arrays = arrays
        # means of r^2|g|^2 and r|g|^2; sum r^2|g|^2 and |sum r g|^2, both over n (n - 1); weight
        self.saved = torch.zeros(5, dtype=torch.float64, device=arrays.device)
        self._moments = arrays.array(self.saved)  # the same memory
        self._means, self._weight = self._moments[:4], self._moments[4:]
        self._one = arrays.array(torch.ones(1, dtype=torch.float64, device=arrays.device))
        self._parts: dict[float, Array] = {}  # by n: what makes means of sums
        self._order = arrays.array(torch.tensor([0, 1, 0, 3], device=arrays.device))  # of the sums

    def close(self, sums: Array, num: float) -> None:
        """Take in a window's four sums. One that is not finite changes nothing."""
        arrays, parts = self._arrays, self._parts.get(num)
        if parts is None:
            pairs = num * (num - 1) or math.inf
            found = torch.tensor([1 / num, 1 / num, 1 / pairs, 1 / pairs], dtype=torch.float64, device=arrays.device)
            parts = self._parts[num] = arrays.array(found)
        share = 1 / max(STEPS_BACK, SAMPLES_BACK / num)
        new = arrays.take((sums,), self._order)[0] * parts
        known = arrays.finite(new)
        arrays.blend(self._means, new, share, known)
        arrays.blend(self._weight, self._one, share, known)

    def gain(self, num: float) -> Number:
        """The gain of a step with so many samples."""
        number = self._arrays.number
        drawn, uniform, same, square, weight = (number(self._moments[k]) for k in range(5))
        gain: Number = 1 + weight * (steady_gain(uniform, drawn, square - same, num) - 1)
        return gain

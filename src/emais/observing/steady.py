"""The learning-rate factor of the steady rules: from averages over earlier steps, never from the step itself."""

from __future__ import annotations

import torch

from ..functional.rates import steady_gain
from ..functional.traces import GradientSums
from ..statistics.arrays import Arrays, Number

STEPS, SAMPLES = 50, 1024  # that the averages look back on, whichever is more


def window_means(window: GradientSums, arrays: Arrays) -> tuple[Number, Number, Number, Number]:
    """Means over a window of r^2|g|^2, r|g|^2 and r|g|, and over its pairs of different samples of r r' <g, g'>."""
    n, number = window.num, arrays.number
    square, linear, norm = (number(window.moments[k]) for k in range(3))
    pairs = (number(window.grad @ window.grad) - square) / (n * (n - 1)) if n > 1 else 0 * square
    return square / n, linear / n, norm / n, pairs


class SteadyMoments:
    """Moving averages over windows of E r^2|g|^2, E|g|^2 and |E g|^2, and the gain that they give.

    The third comes from pairs of different samples, (|sum r g|^2 - sum |r g|^2)/(n (n - 1)), so all three are unbiased.
    A factor that has not seen its own minibatch leaves the update unbiased, too. The averages start at 0; `weight` says
    how much they hold, and the gain starts at 1. All is written in place, so that CUDA graphs carry it.
    """

    def __init__(self, arrays: Arrays) -> None:
        self._arrays = arrays
        # drawn, uniform, mean, weight
        self.saved = torch.zeros(4, dtype=torch.float64, device=arrays.device)
        self._moments = arrays.array(self.saved)  # the same memory

    def close(self, window: GradientSums) -> None:
        """Take a window in. One that is not finite changes nothing."""
        arrays, n = self._arrays, window.num
        drawn, uniform, _, pairs = window_means(window, arrays)
        share = 1 / max(STEPS, SAMPLES / n)
        new = arrays.stack((drawn, uniform, pairs, 0 * pairs + 1))
        self._moments[:] += arrays.where(arrays.finite(new), share * (new - self._moments), 0.0)  # type: ignore[assignment]

    def gain(self, num: float) -> Number:
        """The gain of a step with so many samples."""
        number = self._arrays.number
        drawn, uniform, mean, weight = (number(self._moments[k]) for k in range(4))
        gain: Number = 1 + weight * (steady_gain(uniform, drawn, mean, num) - 1)
        return gain

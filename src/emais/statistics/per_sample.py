"""What a method knows of each sample, in one form for all methods that keep such statistics."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True, eq=False)
class SampleStatistics:
    """Columns of M numbers, wherever the method keeps them.

    mean: of a sample's gradient norm over time; deviation: how much that norm changes; last_step: the latest step in
    which the sample was observed, 0 for never; weights: what draws are made in proportion to; probabilities: of the
    next draw. What mean and deviation say of a sample never observed does not count.
    """

    mean: Tensor
    deviation: Tensor
    last_step: Tensor
    weights: Tensor
    probabilities: Tensor

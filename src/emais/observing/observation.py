"""One minibatch as the statistics see it."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from ..statistics.arrays import Array


@dataclass(frozen=True, eq=False)
class Observation:
    """One minibatch as a method learns from it, in the engine's arrays.

    index, r: of the draw; norms (N,): gradient norms; grad (D,): sum r g; signal (N,): what the method's `signal`
    gave, or None. A minibatch that was only looked at (`refresh`) has no r and no grad.
    """

    step: int | Tensor
    index: Array
    r: Array | None
    norms: Array
    grad: Array | None
    signal: Array | None = None

    @property
    def trained(self) -> bool:
        """Whether the minibatch was drawn and trained on, or only looked at."""
        return self.r is not None

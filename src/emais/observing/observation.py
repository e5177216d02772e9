"""One minibatch as the statistics see it."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from ..functional.traces import GradientSums
from ..loading.draw import DrawRecord
from ..statistics.arrays import Array, Arrays


@dataclass(frozen=True, eq=False)
class Observation:
    """One minibatch as a method learns from it, in the engine's arrays.

    index, r: of the draw; norms (N,): gradient norms; grad (D,): sum r g; signal (N,): what the method's `signal`
    gave, or None. A minibatch that was only looked at (`refresh`) has no r and no grad.
    Where only norms are known, grad (1,) is a number with the square of sum r g: exact if `pairs`, the sum of
    r r'<g, g'> over pairs of different samples, is known (`num_pairs` of them), else as of orthogonal gradients.
    known: the sums that the traces need, where they were added up elsewhere.
    """

    step: int | Tensor
    index: Array
    r: Array | None
    norms: Array
    grad: Array | None
    signal: Array | None = None
    pairs: Array | None = None
    num_pairs: float = 0.0
    known: GradientSums | None = None

    @property
    def trained(self) -> bool:
        """Whether the minibatch was drawn and trained on, or only looked at."""
        return self.r is not None

    def sums(self, arrays: Arrays) -> GradientSums:
        """What the traces need of it."""
        if self.known is not None:
            return self.known
        assert self.r is not None
        assert self.grad is not None
        grad, moments = arrays.double(self.grad), arrays.moments(self.r, self.norms)
        if self.pairs is None:
            return GradientSums(len(self.norms), moments, grad)
        return GradientSums(len(self.norms), moments, grad[:0], None, self.pairs, self.num_pairs)


def from_norms(
    step: int | Tensor, record: DrawRecord, values: Array, signal: Array | None, arrays: Arrays
) -> Observation:
    """The observation of norms (N,), or (N + 1,) with |mean r g| behind them."""
    n, r = len(record.index), record.r
    norms = values[:n]
    own = r * arrays.double(norms)
    squares = own @ own
    if len(values) == n:
        return Observation(step, record.index, r, norms, arrays.sqrt(squares[None]), signal, 0 * squares[None])
    grad = n * arrays.double(values[n:])
    return Observation(step, record.index, r, norms, grad, signal, grad * grad - squares, float(n * (n - 1)))

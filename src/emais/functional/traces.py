"""Variance traces of the gradient from one minibatch: under its own sampler, uniform, the best one, and any other.

Part of `emais.functional`, which says what the letters are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ..errors import EmaisError
from .precision import full_precision

if TYPE_CHECKING:
    from ..statistics.arrays import Array, Number


@dataclass(frozen=True)
class VarianceTraces:
    """The three variance traces; unpacks as ``tr_is, tr_unif, tr_opt``.

    ``mean_sq`` = |mu|^2 and ``num``, the number of samples behind the estimate, serve the ``gain`` rule. From norms
    alone ``mean_sq`` is the largest that |mu|^2 can be: the factor is then the smallest of all that fit the norms.
    """

    tr_is: Any
    tr_unif: Any
    tr_opt: Any
    mean_sq: Any = None
    num: float | None = None

    def __iter__(self) -> Iterator[Any]:
        return iter((self.tr_is, self.tr_unif, self.tr_opt))

    def tensors(self, dtype: torch.dtype, device: torch.device) -> VarianceTraces:
        """The same as 0-d tensors of this dtype."""
        values = (self.tr_is, self.tr_unif, self.tr_opt, self.mean_sq)
        a, b, c, d = (torch.as_tensor(x, dtype=dtype, device=device) for x in values)
        return VarianceTraces(a, b, c, d, self.num)


@dataclass(frozen=True)
class GradientSums:
    """Additive sums that hold all the traces need, in float64.

    Adding two gives the sums of both minibatches together, so gradient accumulation is ``a + b`` and many
    processes are one all-reduce. ``moments`` = (sum |r g|^2, sum r |g|^2, sum r |g|), ``grad`` = sum r g.

    Where only the norms |g| are known, ``grad`` is empty, and ``pairs`` (1,) is the sum of r r'<g, g'> over ordered
    pairs of different samples, ``num_pairs`` of them. Samples of two sums make no pairs: the mean of the known ones
    stands for those. Without any pair the gradients count as orthogonal (docs/math.md).

    ``ordered``: arrays of several processes, which must come to the same bits on different processors.
    """

    num: float
    moments: Array
    grad: Array
    share: float | None = None  # sum of the squared weights of the samples in the mean; None: 1/num, all alike
    pairs: Array | None = None
    num_pairs: float = 0.0
    ordered: bool = False

    def squared_weights(self) -> float:
        """Of the samples in the mean: what part of a sample's variance the mean has."""
        return 1 / self.num if self.share is None else self.share

    def __add__(self, other: GradientSums) -> GradientSums:
        if self.grad.shape != other.grad.shape:
            raise EmaisError(
                f"minibatches with {len(self.grad)} and {len(other.grad)} logits per sample cannot be reported "
                "together: with smoothing the logits of all minibatches must have the same shape: pad them to "
                "one length, or do without"
            )
        num = self.num + other.num
        share = (self.num**2 * self.squared_weights() + other.num**2 * other.squared_weights()) / num**2
        pairs = None if self.pairs is None or other.pairs is None else self.pairs + other.pairs
        sums = self.moments + other.moments, self.grad + other.grad
        return GradientSums(num, *sums, share, pairs, self.num_pairs + other.num_pairs, self.ordered)

    def __mul__(self, factor: float) -> GradientSums:
        pairs, share = None if self.pairs is None else self.pairs * factor, self.squared_weights()
        sums = self.moments * factor, self.grad * factor
        return GradientSums(self.num * factor, *sums, share, pairs, self.num_pairs * factor, self.ordered)

    @classmethod
    def from_norms(cls, r: Tensor, norms: Tensor, grad: Tensor) -> GradientSums:
        """Sums from r (N,), gradient norms (N,) and sum r g (D,): what a training step already has."""
        return cls(len(norms), gradient_moments(r, norms), grad.double())

    def square(self) -> Any:
        """|sum r g|^2. From norms: the samples' own squares, and for the pairs the mean of those that are known."""
        if self.pairs is None:
            return in_order(self.grad * self.grad) if self.ordered else self.grad @ self.grad
        share, pairs = self.squared_weights(), self.pairs[0] / self.num_pairs if self.num_pairs else 0.0
        return (share * self.moments[0] / self.num + (1 - share) * pairs) * self.num**2

    def square_at_most(self) -> Any:
        """The same, but from norms alone the largest that it can be: (sum r|g|)^2, all gradients in one direction."""
        alone = self.pairs is not None and not self.num_pairs
        return self.moments[2] * self.moments[2] if alone else self.square()

    def traces(self, unbiased: bool = False, number: Callable[[Any], Number] | None = None) -> VarianceTraces:
        """Variance traces of these sums; see `variance_traces`. number: what to make of the sums' values first."""
        sums: Any = self.square() / self.num**2, *(self.moments / self.num)
        mu2, a, b, c = sums if number is None else map(number, sums)
        tr_is, tr_unif, tr_opt = a - mu2, b - mu2, c * c - mu2
        if unbiased:
            share = self.squared_weights()
            k = share / (1 - share) if share < 1 else float("nan")  # 1/(N - 1) for one minibatch
            tr_unif = tr_unif + k * tr_is
            tr_is, tr_opt = (1 + k) * tr_is, (1 + k) * tr_opt
        mean_sq = mu2 if self.pairs is None or self.num_pairs else c * c
        return VarianceTraces(tr_is, tr_unif, tr_opt, mean_sq, self.num)


def in_order(x: Any) -> Any:
    """The sum of an array over its first axis, entry after entry: for numpy the same bits on every processor.

    A product of vectors has other bits where the library behind numpy knows other instructions.

    >>> in_order(torch.arange(4.0))
    tensor(6.)
    """
    return x.cumsum(0)[-1]


def gradient_moments(r: Tensor, norms: Tensor) -> Tensor:
    """(sum |r g|^2, sum r |g|^2, sum r |g|) in float64, of r (N,) and gradient norms (N,)."""
    n = norms.double()
    rn = r.double() * n
    return torch.stack((rn, n, torch.ones_like(n))) @ rn


def gradient_sums(r: Tensor, grads: Tensor) -> GradientSums:
    """Additive sums of one minibatch: r (N,), grads (N, ...).

    >>> r, g = torch.ones(4), torch.arange(8.).reshape(4, 2)
    >>> whole, parts = gradient_sums(r, g), gradient_sums(r[:1], g[:1]) + gradient_sums(r[1:], g[1:])
    >>> whole.moments.tolist() == parts.moments.tolist(), whole.grad.tolist() == parts.grad.tolist()
    (True, True)

    Paper: prop:tr_cov_est
    """
    r, g = _minibatch(r, grads)
    with full_precision():
        return GradientSums.from_norms(r, torch.linalg.vector_norm(g, dim=1), r @ g)


def _minibatch(r: Tensor, grads: Tensor) -> tuple[Tensor, Tensor]:
    """r (N,) and grads (N, D) in float64 and detached, once their shapes have been checked."""
    if grads.dim() == 0 or r.shape != grads.shape[:1] or len(r) == 0:
        raise EmaisError(
            f"r must be (N,) and grads (N, ...) with N of at least 1, got {tuple(r.shape)} and {tuple(grads.shape)}"
        )
    return r.detach().double(), grads.detach().reshape(len(r), -1).double()


def variance_traces(r: Tensor, grads: Tensor, *, unbiased: bool = False) -> VarianceTraces:
    """Traces of the gradient variance under the sampler in use, under uniform and under optimal sampling.

    mu = mean(r g);  tr_is = mean(|r g|^2) - |mu|^2;  tr_unif = mean(r |g|^2) - |mu|^2;
    tr_opt = mean(r |g|)^2 - |mu|^2, from one minibatch drawn with replacement from p_is; r (N,), grads (N, ...).
    They are variances of one draw: divide by N for the variance of the minibatch mean.

    The plug-in |mu|^2 makes the expectations (1 - 1/N) tr_is, tr_unif - tr_is/N and (1 - 1/N) tr_opt.
    `unbiased=True` removes all three errors exactly (multiplying tr_is and tr_opt by N/(N-1) and adding
    tr_is/(N-1) to tr_unif); the paper's form is the default.

    >>> traces = variance_traces(torch.ones(2), torch.tensor([[3.0, 0.0], [0.0, 1.0]]))
    >>> [t.item() for t in traces]
    [2.5, 2.5, 1.5]

    Paper: prop:tr_cov_est
    """
    t = gradient_sums(r, grads).traces(unbiased)
    return t.tensors(torch.promote_types(grads.dtype, torch.float32), grads.device)


def trace_under(r: Tensor, r_other: Tensor, grads: Tensor, *, unbiased: bool = False) -> Tensor:
    """The variance trace that another sampler would have had on this minibatch: mean(r r' |g|^2) - |mean(r g)|^2.

    r (N,) are the coefficients of the draw, r_other (N,) those that the other distribution gives to the same samples,
    both from what was known before the minibatch; grads (N, ...). With r_other = r it is tr_is, with r_other = 1
    tr_unif. Its expectation is the trace under the other distribution minus tr_is/N, because |mean|^2 is plugged in;
    `unbiased=True` adds tr_is/(N - 1) and is exact (NaN for N = 1). Its variance is, to leading order, that of
    r r' |g|^2 - 2 mu.(r g) over N: it grows where the drawing distribution has little mass on samples that matter
    under the other.

    >>> g = torch.tensor([[1.0], [3.0]])
    >>> trace_under(torch.ones(2), torch.ones(2), g), variance_traces(torch.ones(2), g).tr_unif
    (tensor(1.), tensor(1.))

    Beyond the paper
    """
    first, g = _minibatch(r, grads)
    if r_other.shape != r.shape:
        raise EmaisError(f"r_other must be {tuple(r.shape)} as r, got {tuple(r_other.shape)}")
    second = r_other.detach().double()
    mean_sq = (first.unsqueeze(1) * g).mean(0).square().sum()
    trace = (first * second * g.square().sum(1)).mean() - mean_sq
    if unbiased:
        own = (first * first * g.square().sum(1)).mean() - mean_sq
        trace = trace + own * (1 / (len(g) - 1) if len(g) > 1 else float("nan"))
    return trace.to(torch.promote_types(grads.dtype, torch.float32))

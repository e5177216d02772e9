"""The paper's mathematics as pure functions: no state, no randomness, no input or output.

Letters follow the paper (docs/math.md has the table): ``r`` is the importance coefficient
(1/M)/p_i of a drawn sample, ``grads`` its gradient in any space (logits or parameters), one row a sample,
not divided by the minibatch size.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from .errors import EmaisError, positive_float, positive_int
from .gradients import (
    binary_cross_entropy_gradients,
    cross_entropy_gradients,
    logit_gradients,
    parameter_gradients,
)

__all__ = [
    "LR_RULES",
    "GradientSums",
    "VarianceTraces",
    "adjusted_probabilities",
    "binary_cross_entropy_gradients",
    "cross_entropy_gradients",
    "effective_batch_size",
    "efficiency_score",
    "gradient_sums",
    "guard_scale",
    "importance_coefficients",
    "logit_gradients",
    "lr_scale",
    "moment_gain",
    "parameter_gradients",
    "trace_under",
    "variance_traces",
]

LR_RULES = ("linear", "sqrt", "gain", "none")
MAX_SCALE = 32.0
MAX_HALVINGS = 60
BOUND_SLACK = 1 + 1e-9  # rounding must not count as "above kappa" when p is already uniform


@dataclass(frozen=True)
class VarianceTraces:
    """The three variance traces; unpacks as ``tr_is, tr_unif, tr_opt``.

    ``mean_sq`` = |mu|^2 and ``num``, the number of samples behind the estimate, serve the ``gain`` rule.
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
    processes are one all-reduce. ``moments`` = (sum |r g|^2, sum r |g|^2, sum r |g|), ``grad`` = sum r g;
    both tensors or, on the CPU, where these arrays are too small for torch to be quick, both numpy arrays.
    """

    num: float
    moments: Any
    grad: Any
    share: float | None = None  # sum of the squared weights of the samples in the mean; None: 1/num, all alike

    def squared_weights(self) -> float:
        """Of the samples in the mean: what part of a sample's variance the mean has."""
        return 1 / self.num if self.share is None else self.share

    def __add__(self, other: GradientSums) -> GradientSums:
        if self.grad.shape != other.grad.shape:
            raise EmaisError(
                f"minibatches with {len(self.grad)} and {len(other.grad)} logits a sample cannot be reported together: "
                "with accumulation or smoothing the logits of all minibatches must have the same shape"
            )
        num = self.num + other.num
        share = (self.num**2 * self.squared_weights() + other.num**2 * other.squared_weights()) / num**2
        return GradientSums(num, self.moments + other.moments, self.grad + other.grad, share)

    def __mul__(self, factor: float) -> GradientSums:
        return GradientSums(self.num * factor, self.moments * factor, self.grad * factor, self.squared_weights())

    @classmethod
    def from_norms(cls, r: Any, norms: Any, grad: Any) -> GradientSums:
        """Sums from r (N,), gradient norms (N,) and sum r g (D,): what a training step already has."""
        if isinstance(norms, Tensor):
            n = norms.double()
            rn = r.double() * n
            return cls(len(n), torch.stack((rn, n, torch.ones_like(n))) @ rn, grad.double())
        n = norms.astype(np.float64)
        rn = r * n
        return cls(len(n), np.array((rn @ rn, rn @ n, np.add.reduce(rn))), grad.astype(np.float64))

    def traces(self, unbiased: bool = False) -> VarianceTraces:
        """Variance traces of these sums; see `variance_traces`."""
        mu2, (a, b, c) = self.grad @ self.grad / self.num**2, self.moments / self.num
        if isinstance(self.moments, np.ndarray):
            mu2, a, b, c = float(mu2), float(a), float(b), float(c)  # plain floats are quicker still
        tr_is, tr_unif, tr_opt = a - mu2, b - mu2, c * c - mu2
        if unbiased:
            c = self.squared_weights()
            k = c / (1 - c) if c < 1 else float("nan")  # 1/(N - 1) for one minibatch
            tr_unif = tr_unif + k * tr_is
            tr_is, tr_opt = (1 + k) * tr_is, (1 + k) * tr_opt
        return VarianceTraces(tr_is, tr_unif, tr_opt, mu2, self.num)


def gradient_sums(r: Tensor, grads: Tensor) -> GradientSums:
    """Additive sums of one minibatch: r (N,), grads (N, ...).

    >>> r, g = torch.ones(4), torch.arange(8.).reshape(4, 2)
    >>> whole, parts = gradient_sums(r, g), gradient_sums(r[:1], g[:1]) + gradient_sums(r[1:], g[1:])
    >>> whole.moments.tolist() == parts.moments.tolist(), whole.grad.tolist() == parts.grad.tolist()
    (True, True)

    Paper: prop:tr_cov_est
    """
    r, g = _minibatch(r, grads)
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
    `unbiased=True` adds tr_is/(N - 1) and is exact. Its variance is that of mean(r r' |g|^2): it grows where the
    drawing distribution has little mass on samples that matter under the other.

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
        trace = trace + ((first * first * g.square().sum(1)).mean() - mean_sq) / (len(g) - 1)
    return trace.to(torch.promote_types(grads.dtype, torch.float32))


def effective_batch_size(traces: VarianceTraces, batch_size: float) -> Tensor:
    """Minibatch size at which uniform sampling has the variance of this sampler: N tr_unif / tr_is.

    Not guarded: a degenerate minibatch gives a negative, infinite or NaN value (`lr_scale` is the guarded form).

    >>> effective_batch_size(VarianceTraces(*torch.tensor([1.0, 3.0, 0.5])), 128).item()
    384.0

    Paper: eq:n_ems
    """
    return traces.tr_unif / traces.tr_is * batch_size


def efficiency_score(traces: VarianceTraces) -> Tensor:
    """S(W) = (tr_is - tr_opt)/(tr_unif - tr_opt): 0 optimal, 1 as uniform, above 1 worse than uniform.

    NaN where the denominator is not positive: then no sampler can beat uniform and the score has no meaning.

    >>> efficiency_score(VarianceTraces(*torch.tensor([1.0, 3.0, 0.5]))).item()
    0.20000000298023224

    Paper: sec:metric
    """
    room = traces.tr_unif - traces.tr_opt
    return torch.where(room > 0, (traces.tr_is - traces.tr_opt) / room, float("nan"))


def guard_scale(ratio: Any, max_scale: float = MAX_SCALE) -> tuple[Any, Any]:
    """Make a learning-rate factor safe: (factor, was it degenerate), without leaving the device of a tensor.

    A NaN, infinite, zero or negative ratio becomes 1 and is reported; anything else is bounded by `max_scale`.

    >>> guard_scale(torch.tensor([2.0, -1.0, 1e9]))
    (tensor([ 2., 1., 32.]), tensor([False, True, False]))
    """
    if not isinstance(ratio, Tensor):
        usable = 0 < ratio < float("inf")
        return (min(float(ratio), max_scale) if usable else 1.0), not usable
    bad = ~((ratio > 0) & (ratio < float("inf")))
    return torch.where(bad, 1.0, ratio.clamp(max=max_scale)), bad


def scale_ratio(traces: VarianceTraces, rule: str) -> Any:
    """The unguarded learning-rate ratio of a rule, of tensors or floats; see `lr_scale`."""
    if rule == "none":
        return traces.tr_is * 0 + 1
    if rule == "gain":
        if traces.mean_sq is None or traces.num is None:
            raise EmaisError('rule "gain" needs traces made by variance_traces, which carry |mu|^2 and N')
        return _divide(traces.tr_unif / traces.num + traces.mean_sq, traces.tr_is / traces.num + traces.mean_sq)
    if rule not in LR_RULES:
        raise EmaisError(f"rule must be one of {', '.join(LR_RULES)}, got {rule!r}")
    ratio = _divide(traces.tr_unif, traces.tr_is)
    if rule == "linear" or not (isinstance(ratio, Tensor) or ratio > 0):  # a negative one is for the guard
        return ratio
    return ratio**0.5


def _divide(a: Any, b: Any) -> Any:
    """a / b; of floats, too, without an exception."""
    return a / b if isinstance(b, Tensor) or b else float("nan")


def moment_gain(uniform: Any, drawn: Any, mean: Any, batch_size: float) -> Any:
    """RAIS's gain from averages over steps, at least 1: how much further a step may go than with uniform sampling.

    uniform: of mean r|g|^2; drawn: of mean r^2|g|^2; mean: of |mean r g|^2, each over a minibatch of N:
    gain = 1 + (uniform - drawn)/(N mean). A common factor of the three, as an average that starts at 0 has,
    cancels. It is E|g_U|^2 / E|g_R|^2, the `gain` rule of `lr_scale` with averaged moments.

    >>> moment_gain(3.0, 1.0, 0.5, 4)
    2.0
    """
    gain = 1 + _divide(uniform - drawn, batch_size * mean)
    return gain.clamp(min=1) if isinstance(gain, Tensor) else gain if gain != gain else max(1.0, float(gain))


def lr_scale(traces: VarianceTraces, rule: str = "linear", *, max_scale: float = MAX_SCALE) -> Tensor:
    """Factor for the learning rate of this step: what a minibatch of N_ems instead of N would deserve.

    ``linear`` N_ems/N (SGD); ``sqrt`` its root (Adam); ``gain`` (tr_unif/N + |mu|^2)/(tr_is/N + |mu|^2), the form
    of RAIS and AdaScale; ``none`` 1. Guarded by `guard_scale`: always finite, in (0, max_scale].

    >>> traces = VarianceTraces(*torch.tensor([1.0, 4.0, 0.5]))
    >>> lr_scale(traces).item(), lr_scale(traces, "sqrt").item()
    (4.0, 2.0)

    Paper: eq:epsilon_ems
    """
    return guard_scale(scale_ratio(traces, rule), max_scale)[0]


def importance_coefficients(probs: Tensor) -> Tensor:
    """r(i) = (1/M)/p_i for every sample: E_p[r f] is the plain mean of f.

    >>> importance_coefficients(torch.tensor([0.25, 0.75]))
    tensor([2.0000, 0.6667])

    Paper: eq:exp_equiv
    """
    return 1 / (len(probs) * probs)


def adjusted_probabilities(weights: Tensor, batch_size: int, kappa: float = 1.0) -> Tensor:
    """Probabilities proportional to w, flattened until no sample is expected more than kappa times a minibatch.

    p = w/sum w, then p = sqrt(p)/sum sqrt(p) while max(p) N > kappa, so p is proportional to w^(1/2^k) for the
    smallest k that meets the bound. Needs N <= kappa M. A zero weight counts as the smallest positive one that
    float64 holds times the largest weight, so every p is positive and the loop ends; all zero means uniform.
    weights (M,) -> probabilities (M,), summing to 1.

    >>> adjusted_probabilities(torch.tensor([16.0, 1.0, 1.0]), batch_size=2)
    tensor([0.5000, 0.2500, 0.2500])

    Paper: alg:ema_is (ComputeAdjustedProbabilities)
    """
    positive_int("batch_size", batch_size)
    positive_float("kappa", kappa)
    if weights.dim() != 1 or len(weights) == 0:
        raise EmaisError(f"weights must be (M,) with M of at least 1, got {tuple(weights.shape)}")
    check_flattening(len(weights), batch_size, kappa)
    w = weights.detach().double()
    if not bool((w.isfinite() & (w >= 0)).all()):
        raise EmaisError("weights must be finite and not negative")
    top = w.max()
    w = torch.ones_like(w) if top == 0 else (w / top).clamp(min=torch.finfo(torch.float64).tiny)
    for _ in range(MAX_HALVINGS):
        p = w / w.sum()
        if p.max() * batch_size <= kappa * BOUND_SLACK:
            break
        w = w.sqrt()
    return p.to(torch.promote_types(weights.dtype, torch.float32))


def check_flattening(num_samples: int, batch_size: int, kappa: float) -> None:
    """Refuse N > kappa M: even the uniform distribution draws a sample N/M > kappa times then.

    >>> check_flattening(100, 10, 1.0)
    """
    if batch_size > kappa * num_samples:
        raise EmaisError(
            f"batch_size={batch_size} is above kappa * num_samples = {kappa:g} * {num_samples}: no distribution "
            f"keeps every sample to {kappa:g} expected copies a minibatch; take a smaller batch_size or "
            f"kappa of at least {batch_size / num_samples:g}"
        )

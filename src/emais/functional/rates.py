"""The effective minibatch size, the efficiency score, and the learning-rate factor that they give."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from ..errors import EmaisError
from .traces import VarianceTraces

LR_RULES = ("linear", "sqrt", "gain", "none")
MAX_SCALE = 32.0
STEADY_MAX = 10.0  # bound of the steady rules
CLEARLY = 0.01  # of E|g|^2: a smaller variance is not clearly above 0
TRACE_ROUNDING = 1e-6  # of |mu|^2: a smaller trace is noise
TINY, LARGE = 1e-300, 1e300


def effective_batch_size(traces: VarianceTraces, batch_size: float) -> Tensor:
    """Minibatch size at which uniform sampling has the variance of this sampler: N tr_unif / tr_is.

    Not guarded: a degenerate minibatch gives a negative, infinite or NaN value (`lr_scale` is the guarded form).

    >>> effective_batch_size(VarianceTraces(*torch.tensor([1.0, 3.0, 0.5])), 128).item()
    384.0

    Paper: eq:n_ems
    """
    size: Tensor = traces.tr_unif / traces.tr_is * batch_size
    return size


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
    if isinstance(ratio, Tensor):
        usable = (ratio > 0) & (ratio < float("inf"))
        return torch.where(usable, ratio.clamp(max=max_scale), 1.0), ~usable
    return (min(ratio, max_scale), False) if 0 < ratio < float("inf") else (1.0, True)


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
    # a smaller tr_is is what rounding leaves of a difference of equals: minibatches of one sample, or alike
    least = 0 if traces.mean_sq is None else TRACE_ROUNDING * traces.mean_sq
    if isinstance(traces.tr_is, Tensor):
        ratio: Any = traces.tr_unif / torch.where(traces.tr_is > least, traces.tr_is, float("nan"))
    else:
        ratio = traces.tr_unif / traces.tr_is if traces.tr_is > least else float("nan")
    return ratio if rule == "linear" else root(bounded(ratio, low=0.0))  # a ratio below 0 has no root


def moment_gain(uniform: Any, drawn: Any, mean: Any, batch_size: float) -> Any:
    """RAIS's gain from averages over steps, at least 1: how much further a step may go than with uniform sampling.

    uniform: of mean r|g|^2; drawn: of mean r^2|g|^2; mean: of |mean r g|^2, each over a minibatch of N:
    gain = 1 + (uniform - drawn)/(N mean). A common factor of the three, as an average that starts at 0 has,
    cancels. It estimates E|g_U|^2 / E|g_R|^2; the `gain` rule of `lr_scale` does so from one minibatch, and is nearer
    to 1 where the mean gradient is small, because its |mu|^2 holds tr_is/N already.

    >>> moment_gain(3.0, 1.0, 0.5, 4)
    2.0

    Not in the paper: RAIS (Johnson and Guestrin, 2018)
    """
    gain = 1 + _divide(uniform - drawn, batch_size * mean)
    return bounded(gain, low=1.0)


def steady_gain(uniform: Any, drawn: Any, mean: Any, batch_size: float) -> Any:
    """How many uniform steps a step with importance sampling is worth: E|g_U|^2 / E|g_R|^2, at least 1.

    g_U and g_R are the mean gradients of a minibatch of N, drawn uniformly and by the sampler. uniform: E|g|^2; drawn:
    E r^2|g|^2 under the sampler; mean: |E g|^2; all averages over earlier minibatches. Then

        gain = (uniform + (N - 1) mean) / (drawn + (N - 1) mean).

    1 where the mean gradient is nearly all there is (uniform - mean at most 1 % of uniform): a larger minibatch would
    not allow a larger step there.

    >>> steady_gain(3.0, 1.0, 0.0, 4), steady_gain(3.0, 1.0, 1.0, 4), steady_gain(3.0, 1.0, 2.99, 4)
    (3.0, 1.5, 1.0)

    Not in the paper: the gain of AdaScale (Johnson et al., 2020) and RAIS, with the bias taken out; docs/math.md
    """
    signal = (batch_size - 1) * bounded(mean, low=0.0)
    gain = bounded((uniform + signal) / bounded(drawn + signal, low=TINY), low=1.0, high=LARGE)  # always finite
    return _choose(uniform - mean > CLEARLY * uniform, gain, 1.0)


def lr_scale(traces: VarianceTraces, rule: str = "linear", *, max_scale: float = MAX_SCALE) -> Tensor:
    """Factor for the learning rate of this step: what a minibatch of N_ems instead of N would deserve.

    ``linear`` N_ems/N (SGD); ``sqrt`` its root (Adam); ``gain`` (tr_unif/N + |mu|^2)/(tr_is/N + |mu|^2), after RAIS
    and AdaScale, see `moment_gain`; ``none`` 1. Guarded by `guard_scale`: always finite, in (0, max_scale]. A tr_is
    below 1e-6 |mu|^2 is rounding: ``linear`` and ``sqrt`` give 1 then.

    >>> traces = VarianceTraces(*torch.tensor([1.0, 4.0, 0.5]))
    >>> lr_scale(traces).item(), lr_scale(traces, "sqrt").item()
    (4.0, 2.0)

    Paper: eq:epsilon_ems
    """
    scale: Tensor = guard_scale(scale_ratio(traces, rule), max_scale)[0]
    return scale


# ---- numbers: floats, or tensors that nobody waits for


def root(x: Any) -> Any:
    """The square root. Powers of floats may differ in their last bit between processors; roots do not.

    >>> root(4.0)
    2.0
    """
    return x.sqrt() if isinstance(x, Tensor) else math.sqrt(x)


def _choose(good: Any, value: Any, otherwise: float) -> Any:
    """value where it is good, else `otherwise`."""
    return torch.where(good, value, otherwise) if isinstance(good, Tensor) else value if good else otherwise


def bounded(x: Any, low: float | None = None, high: float | None = None) -> Any:
    """x between these bounds; NaN stays."""
    if isinstance(x, Tensor):
        return x.clamp(low, high)
    return low if low is not None and x < low else high if high is not None and x > high else x


def _divide(a: Any, b: Any) -> Any:
    """a / b; of floats, too, without an exception."""
    return a / b if isinstance(b, Tensor) or b else float("nan")

"""Cross-entropy of sequences of tokens, with gradient norms, without a copy of the (N, T, V) gradient."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..errors import EmaisError, number_from_0, positive_int

CHUNK_NUMBERS = 1 << 21  # numbers of a chunk: 8 MiB in float32


class TokenLosses(NamedTuple):
    """Losses (N,), their gradient norms with respect to the logits (N,), and |mean(r g)| (a number, or None)."""

    losses: Tensor
    norms: Tensor
    mean_norm: Tensor | None


def token_cross_entropy(
    logits: Tensor,
    labels: Tensor,
    r: Tensor | None = None,
    *,
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
    reduction: str = "mean",
    shift: bool = False,
    chunk: int | None = None,
) -> TokenLosses:
    """The cross-entropy of each sequence, and the norm of its gradient, computed in chunks of tokens.

    logits (N, T, V), labels (N, T); r (N,): of the draw, for `mean_norm`. Tokens with the label `ignore_index` do not
    count. reduction: a sequence's loss is the "mean" or the "sum" over its tokens; 0 if it has none. shift: the labels
    are the input tokens, and position t predicts the label at t + 1. chunk: tokens at a time.

    The largest tensors are the logits and their gradient, which the forward pass makes; torch's cross-entropy keeps
    log-probabilities, too. Computed in float32, for float64 logits in float64. Can be differentiated once.

    >>> z = torch.zeros(1, 2, 4, requires_grad=True)
    >>> losses, norms, _ = token_cross_entropy(z, torch.tensor([[3, -100]]))
    >>> losses.item(), norms.item()  # log 4, and the norm of softmax - onehot
    (1.3862943649291992, 0.8660253882408142)

    Paper: sec:approx_by_logit, for sequences
    """
    _check(logits, labels, r, reduction)
    chunk = max(1, CHUNK_NUMBERS // logits.shape[2]) if chunk is None else positive_int("chunk", chunk)
    smoothing = number_from_0("label_smoothing", label_smoothing, below=1)
    if shift:  # the labels, not the logits: the gradient of a slice would be padded to a second copy
        last = labels.new_full((len(labels), 1), ignore_index)
        labels = torch.cat((labels[:, 1:], last), 1)
    counted = labels != ignore_index
    weights = counted.to(torch.promote_types(logits.dtype, torch.float32))
    if reduction == "mean":
        weights = weights / counted.sum(1, keepdim=True).clamp(min=1)
    labels = labels.where(counted, 0)
    losses, norms, mean = _TokenLosses.apply(logits, labels, weights, r, smoothing, chunk)  # type: ignore[no-untyped-call]
    return TokenLosses(losses, norms, None if r is None else mean)


class _TokenLosses(torch.autograd.Function):
    """weights (N, T): of each token in its sequence's loss; chunk: tokens at a time.

    The forward pass keeps softmax(z) - y, and the backward pass multiplies it in place: that is the gradient. So it is
    computed once. In half precision, where it would be rounded twice, and in a second backward pass through the same
    graph, it is computed again from the logits.
    """

    @staticmethod
    def forward(
        ctx: Any, logits: Tensor, labels: Tensor, weights: Tensor, r: Tensor | None, smoothing: float, chunk: int
    ) -> tuple[Tensor, Tensor, Tensor]:
        keep = logits.dtype == weights.dtype and ctx.needs_input_grad[0]
        ctx.gradient = torch.empty_like(logits, memory_format=torch.contiguous_format) if keep else None
        sums = weights.new_zeros(2, len(weights), dtype=torch.float64)  # losses, |g|^2
        square = weights.new_zeros((), dtype=torch.float64)  # |sum r g|^2
        for part in _positions(logits, logits.shape[1] if keep else max(1, chunk // max(1, len(logits)))):
            z, w = logits[:, part], weights[:, part]
            g = ctx.gradient[:, part] if keep else torch.empty(z.shape, dtype=w.dtype, device=z.device)
            losses, norms = _softmax_less_label(z, labels[:, part], smoothing, chunk, g)
            sums[0] += (w * losses).sum(1)
            sums[1] += (w * norms).double().square().sum(1)
            if r is not None:
                square += _square_of_sum(w * r.to(w)[:, None], g, chunk)
        ctx.save_for_backward(logits, labels, weights)
        ctx.smoothing, ctx.chunk = smoothing, chunk
        losses, norms = sums[0].to(weights.dtype), sums[1].sqrt().to(weights.dtype)
        mean_norm = (square.sqrt() / max(1, len(weights))).to(weights.dtype)
        ctx.mark_non_differentiable(norms, mean_norm)
        return losses, norms, mean_norm

    @staticmethod
    def backward(ctx: Any, outer: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:
        if torch.is_grad_enabled():  # create_graph=True
            raise EmaisError("token_cross_entropy can be differentiated once: take torch's cross_entropy instead")
        logits, labels, weights = ctx.saved_tensors
        factors = (weights * outer[:, None])[..., None]
        found, ctx.gradient = ctx.gradient, None  # it is given away: a second pass makes its own
        if found is not None:
            return found.mul_(factors), None, None, None, None, None
        found = torch.empty_like(logits)
        for part in _positions(logits, max(1, ctx.chunk // max(1, len(logits)))):
            z = logits[:, part]
            g = torch.empty(z.shape, dtype=weights.dtype, device=z.device)
            _softmax_less_label(z, labels[:, part], ctx.smoothing, ctx.chunk, g)
            found[:, part] = g.mul_(factors[:, part])
        return found, None, None, None, None, None


def _positions(logits: Tensor, width: int) -> Iterator[slice]:
    """Parts of the sequences, `width` positions at a time."""
    for start in range(0, logits.shape[1], max(1, width)):
        yield slice(start, start + width)


def _softmax_less_label(z: Tensor, y: Tensor, smoothing: float, chunk: int, out: Tensor) -> tuple[Tensor, Tensor]:
    """Write softmax(z) - y of all tokens into `out`; the losses of tokens and the norms, (N, T) both.

    Some tokens at a time, so that what is done to them finds them in the processor's caches.
    """
    losses, norms = out.new_empty(z.shape[:2]), out.new_empty(z.shape[:2])
    samples = max(1, chunk // max(1, z.shape[1]))
    for start in range(0, len(z), samples):
        for part in _positions(z, min(chunk, z.shape[1])):
            at = slice(start, start + samples), part
            losses[at] = _of_tokens(z[at].to(out.dtype), y[at][..., None], smoothing, out[at])
            norms[at] = torch.linalg.vector_norm(out[at], dim=2)
    return losses, norms


def _of_tokens(z: Tensor, label: Tensor, smoothing: float, g: Tensor) -> Tensor:
    """The losses of some tokens; softmax(z) - y goes into `g`. label (N, T, 1)."""
    torch.softmax(z, 2, out=g)
    # the log of the sum of exp(z), from the largest: one exp a number, and p of the label may be too small for a float
    total = z.amax(2) - g.amax(2).log()
    log_p = z.gather(2, label) - total[..., None]
    losses, share = -log_p[..., 0], smoothing / z.shape[2]
    if smoothing:
        losses = (1 - smoothing) * losses + smoothing * (total - z.mean(2))
        g.sub_(share)
    g.scatter_(2, label, torch.expm1(log_p) + (smoothing - share))  # p - 1, to its last digit where p is near 1
    return losses


def _square_of_sum(factors: Tensor, g: Tensor, chunk: int) -> Tensor:
    """The squared norm of sum_n f_nt g_nt over all positions t: factors (N, T), g (N, T, V)."""
    found = g.new_zeros((), dtype=torch.float64)
    for part in _positions(g, max(1, chunk // max(1, len(g)))):
        total = _weighted_sum(factors[:, part, None], g[:, part])
        found += torch.linalg.vector_norm(total).double().square()
    return found


def _weighted_sum(factors: Tensor, g: Tensor) -> Tensor:
    """sum_n f_n g_n. No product of matrices: they may be in low precision."""
    if g.device.type != "cpu" or not len(g):
        return (factors * g).sum(0)
    total = factors[0] * g[0]
    for k in range(1, len(g)):  # reads g once; the products of all would be written and read again
        total.addcmul_(factors[k], g[k])
    return total


def _check(logits: Tensor, labels: Tensor, r: Tensor | None, reduction: str) -> None:
    if logits.dim() != 3 or not logits.shape[2] or not logits.is_floating_point():
        got = f"{logits.dtype} {tuple(logits.shape)}"
        raise EmaisError(f"logits must be (N, T, V), V at least 1, of a float dtype, got {got}")
    if labels.shape != logits.shape[:2]:
        got = f"{tuple(labels.shape)} for logits {tuple(logits.shape)}"
        raise EmaisError(f"labels must be (N, T), one for each position of the logits, got {got}")
    if labels.dtype not in (torch.int64, torch.int32):
        raise EmaisError(
            f"labels must be int64 or int32, the places of tokens in the vocabulary, got {labels.dtype}: take "
            "labels.long()"
        )
    if r is not None and r.shape != logits.shape[:1]:
        raise EmaisError(f"r must be (N,) with N = {len(logits)}, as draw.r is, got {tuple(r.shape)}")
    if reduction not in ("mean", "sum"):
        raise EmaisError(f"reduction must be 'mean' or 'sum', got {reduction!r}")

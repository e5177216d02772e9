"""Cross-entropy of sequences of tokens, with gradient norms, without a copy of the (N, T, V) gradient."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..errors import EmaisError, number_from_0, positive_int

ROOM = 1 << 21  # numbers of a chunk: 8 MiB in float32


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

    The backward pass makes the gradient from the logits, also in chunks. So the largest tensors are the logits and
    their gradient, where torch's cross-entropy keeps log-probabilities, too. Computed in float32, for float64 logits in
    float64. Can be differentiated once.

    >>> z = torch.zeros(1, 2, 4, requires_grad=True)
    >>> losses, norms, _ = token_cross_entropy(z, torch.tensor([[3, -100]]))
    >>> losses.item(), norms.item()  # log 4, and the norm of softmax - onehot
    (1.3862943649291992, 0.8660253882408142)

    Paper: sec:approx_by_logit, for sequences
    """
    _check(logits, labels, r, reduction)
    chunk = max(1, ROOM // logits.shape[2]) if chunk is None else positive_int("chunk", chunk)
    smoothing = number_from_0("label_smoothing", label_smoothing, below=1)
    if shift:  # the labels, not the logits: the gradient of a slice would be padded to a second copy
        last = labels.new_full((len(labels), 1), ignore_index)
        labels = torch.cat((labels[:, 1:], last), 1)
    counted = labels != ignore_index
    weights = counted.to(torch.promote_types(logits.dtype, torch.float32))
    if reduction == "mean":
        weights = weights / counted.sum(1, keepdim=True).clamp(min=1)
    labels = labels.where(counted, 0)
    width = max(1, chunk // max(1, len(logits)))
    losses, norms, mean = _TokenLosses.apply(logits, labels, weights, r, smoothing, width)  # type: ignore[no-untyped-call]
    return TokenLosses(losses, norms, None if r is None else mean)


class _TokenLosses(torch.autograd.Function):
    """weights (N, T): of each token in its sequence's loss; width: positions of a chunk."""

    @staticmethod
    def forward(
        ctx: Any, logits: Tensor, labels: Tensor, weights: Tensor, r: Tensor | None, smoothing: float, width: int
    ) -> tuple[Tensor, Tensor, Tensor]:
        totals = weights.new_empty(weights.shape)  # log of the sum of exp(z)
        sums = weights.new_zeros(3, len(weights), dtype=torch.float64)  # losses, |g|^2, and |sum r g|^2 in the first
        for part, z in _chunks(logits, weights.dtype, width):
            y, w, total = labels[:, part], weights[:, part], z.logsumexp(2)
            totals[:, part] = total
            nll = total - z.gather(2, y[..., None])[..., 0]
            rest = total - z.mean(2) if smoothing else 0.0
            sums[0] += (w * ((1 - smoothing) * nll + smoothing * rest)).sum(1)
            g = _gradient(z, total, y, smoothing)
            sums[1] += (w * torch.linalg.vector_norm(g, dim=2)).double().square().sum(1)
            if r is not None:
                mean = g.mul_((w * r.to(w)[:, None])[..., None]).sum(0)
                sums[2, 0] += torch.linalg.vector_norm(mean).double().square()
        ctx.save_for_backward(logits, labels, weights, totals)
        ctx.smoothing, ctx.width = smoothing, width
        losses, norms = sums[0].to(weights.dtype), sums[1].sqrt().to(weights.dtype)
        mean_norm = (sums[2, 0].sqrt() / max(1, len(weights))).to(weights.dtype)
        ctx.mark_non_differentiable(norms, mean_norm)
        return losses, norms, mean_norm

    @staticmethod
    def backward(ctx: Any, outer: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:
        if torch.is_grad_enabled():  # create_graph=True
            raise EmaisError("token_cross_entropy can be differentiated once: take torch's cross_entropy instead")
        logits, labels, weights, totals = ctx.saved_tensors
        found = torch.empty_like(logits)
        for part, z in _chunks(logits, weights.dtype, ctx.width):
            g = _gradient(z, totals[:, part], labels[:, part], ctx.smoothing)
            found[:, part] = g.mul_((weights[:, part] * outer[:, None])[..., None])
        return found, None, None, None, None, None


def _chunks(logits: Tensor, dtype: torch.dtype, width: int) -> Iterator[tuple[slice, Tensor]]:
    """The logits by positions, `width` at a time."""
    for start in range(0, logits.shape[1], width):
        part = slice(start, start + width)
        yield part, logits[:, part].to(dtype)


def _gradient(z: Tensor, total: Tensor, y: Tensor, smoothing: float) -> Tensor:
    """softmax(z) - y of some tokens, in memory of its own; total: log of the sum of exp(z)."""
    g = (z - total[..., None]).exp_()
    if smoothing:
        g.sub_(smoothing / z.shape[2])
    at = y[..., None]
    # p - 1 of the label, to its last digit where p is near 1
    own = torch.expm1(z.gather(2, at) - total[..., None]) + smoothing - (smoothing / z.shape[2] if smoothing else 0)
    return g.scatter_(2, at, own)


def _check(logits: Tensor, labels: Tensor, r: Tensor | None, reduction: str) -> None:
    if logits.dim() != 3 or not logits.is_floating_point():
        raise EmaisError(f"logits must be (N, T, V) of a float dtype, got {logits.dtype} {tuple(logits.shape)}")
    if labels.shape != logits.shape[:2]:
        got = f"{tuple(labels.shape)} for logits {tuple(logits.shape)}"
        raise EmaisError(f"labels must be (N, T), one for each position of the logits, got {got}")
    if labels.is_floating_point():
        raise EmaisError(f"labels must be whole numbers, the places of tokens in the vocabulary, got {labels.dtype}")
    if r is not None and r.shape != logits.shape[:1]:
        raise EmaisError(f"r must be (N,) with N = {len(logits)}, as draw.r is, got {tuple(r.shape)}")
    if reduction not in ("mean", "sum"):
        raise EmaisError(f"reduction must be 'mean' or 'sum', got {reduction!r}")

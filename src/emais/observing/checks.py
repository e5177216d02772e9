"""What a minibatch must bring along: one number per sample, logits that it was computed from, and a draw of its own."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from ..errors import EmaisError, check_index
from ..functional.gradients import raw_logit_gradients
from ..loading.draw import Draw, DrawRecord


def checked_record(engine: Any, losses: Tensor, draw: Draw) -> DrawRecord:
    """The record of a draw that this engine has made, and that was not used yet."""
    if not isinstance(draw, Draw):
        raise EmaisError(f"draw must be the second item that the loader yields, got {type(draw).__name__}")
    record = draw._record
    if record.owner is not engine:
        raise EmaisError("this draw was made by another engine: its r belongs to that engine's distribution")
    if record.used:
        raise EmaisError(
            "this draw was used already: each draw is observed once, take the next from the loader. For a second "
            "forward pass on the same minibatch take (draw.r * losses).mean() yourself; an optimizer that "
            "evaluates its closure several times, such as LBFGS, cannot be used"
        )
    if not isinstance(losses, Tensor):
        raise EmaisError(f"losses must be a tensor, one number per sample, got {type(losses).__name__}")
    if losses.dim() != 1 or len(losses) != len(draw):
        hint = 'compute the loss with reduction="none" and sum or average over every dimension but the first'
        if losses.dim() == 1 and 1 < len(losses) < len(draw):
            hint = "the minibatch lost samples on its way, perhaps in collate_fn, and the draw does not know which"
        shapes = f"shape ({len(draw)},) as the draw, got {tuple(losses.shape)}"
        raise EmaisError(f"losses must be one number per sample, {shapes}: {hint}")
    return record


def check_refresh(index: Tensor, losses: Tensor, logits: Tensor, grads: Tensor | None, num_samples: int) -> None:
    """Say what is wrong with samples that were looked at but not trained on."""
    for name, x in (("index", index), ("losses", losses)):
        if not isinstance(x, Tensor):
            raise EmaisError(f"{name} must be a tensor, one number per sample, got {type(x).__name__}")
    if index.dim() != 1 or losses.shape != index.shape:
        shapes = f"{tuple(index.shape)} and {tuple(losses.shape)}"
        raise EmaisError(f"index and losses must both be (n,), one number per sample, got {shapes}")
    check_index(index, num_samples)
    if grads is None and isinstance(logits, Tensor) and not logits.requires_grad:
        raise EmaisError(
            "logits do not require grad: take z = model(x).detach().requires_grad_() and the losses of z, or pass "
            "grads="
        )


def per_sample(losses: Tensor, logits: Tensor, grads: Tensor | None) -> Tensor:
    """Gradients as (N, D): the ones given, or autograd's of the losses with respect to the logits."""
    if not isinstance(logits, Tensor):
        raise EmaisError(f"logits must be a tensor, perhaps the .logits of an output, got {type(logits).__name__}")
    if grads is None:
        grads = raw_logit_gradients(losses, logits)
    elif not isinstance(grads, Tensor):
        raise EmaisError(f"grads must be a tensor (N, ...), got {type(grads).__name__}")
    elif grads.dim() == 0 or len(grads) != len(losses):
        raise EmaisError(f"grads must be (N, ...) with N = {len(losses)}, got {tuple(grads.shape)}")
    else:
        grads = grads.detach().clone()  # they are read later, when the caller may have written over them
    return grads if grads.dim() == 2 else grads.reshape(len(grads), -1)

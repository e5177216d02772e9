"""What a minibatch must bring along: one number per sample, logits that it was computed from, and a draw of its own."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..errors import EmaisError, check_index
from ..functional.gradients import raw_logit_gradients
from ..loading.draw import Draw, DrawRecord

SPREAD_OUT = (
    "{} is a {} that is spread over processes as {}, so that each sees the gradients of its part "
    "alone: take whole = logits.full_tensor() and compute losses from it, or let the last layer put out whole logits, "
    "as ColwiseParallel(output_layouts=Replicate())"
)

SEVERAL_A_SAMPLE = (
    "these are {k} for each sample: average them. losses.view({N}, {k}).mean(1) does so where those of a sample are "
    "neighbours, as the tokens of a text are, and losses.view({k}, {N}).mean(0) where all samples of one view come "
    "before those of the next, as torch.cat(views) puts them. The logits must be (N, ...), too: docs/guides/limits.md"
)


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
        shapes = f"shape ({len(draw)},) as the draw, got {tuple(losses.shape)}"
        raise EmaisError(f"losses must be one number per sample, {shapes}: {_way_out(losses, len(draw))}")
    return record


def _way_out(losses: Tensor, size: int) -> str:
    """What to do about losses that are not one for each of so many samples."""
    if losses.dim() == 1 and 1 < len(losses) < size:
        return "the minibatch lost samples on its way, perhaps in collate_fn, and the draw does not know which"
    if losses.dim() == 1 and len(losses) > size and len(losses) % size == 0:
        return SEVERAL_A_SAMPLE.format(k=len(losses) // size, N=size)
    return 'compute the loss with reduction="none" and sum or average over every dimension but the first'


def check_refresh(index: Tensor, losses: Tensor, logits: Tensor | None, given: Any, num_samples: int) -> None:
    """Say what is wrong with samples that were looked at but not trained on."""
    for name, x in (("index", index), ("losses", losses)):
        if not isinstance(x, Tensor):
            raise EmaisError(f"{name} must be a tensor, one number per sample, got {type(x).__name__}")
    if index.dim() != 1 or losses.shape != index.shape:
        shapes = f"{tuple(index.shape)} and {tuple(losses.shape)}"
        raise EmaisError(f"index and losses must both be (n,), one number per sample, got {shapes}")
    check_index(index, num_samples)
    if not given and isinstance(logits, Tensor) and not logits.requires_grad:
        raise EmaisError(
            "logits do not require grad: take z = model(x).detach().requires_grad_() and the losses of z, or pass "
            "grads="
        )


def per_sample(
    losses: Tensor,
    logits: Tensor | None,
    grads: Tensor | None = None,
    norms: Tensor | None = None,
    mean_norm: Tensor | None = None,
) -> Tensor:
    """Gradients as (N, D): the ones given, or autograd's of the losses with respect to the logits.

    Of norms: (N,), or (N + 1,) with |mean r g| behind them.
    """
    for name, x in (("losses", losses), ("logits", logits), ("grads", grads), ("norms", norms)):
        if type(x) is not Tensor and hasattr(x, "full_tensor"):  # told by its method: importing DTensor takes long
            raise EmaisError(SPREAD_OUT.format(name, type(x).__name__, getattr(x, "placements", "?")))
    if norms is not None:
        return given_norms(losses, grads, norms, mean_norm)
    if mean_norm is not None:
        raise EmaisError("mean_norm goes with norms=: without norms it comes from the gradients")
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


def given_norms(losses: Tensor, grads: Tensor | None, norms: Tensor, mean_norm: Tensor | None) -> Tensor:
    """Norms (N,) as they were given, with |mean r g| behind them if that is known; float32, copied."""
    if grads is not None:
        raise EmaisError("give grads= or norms=, not both: norms are made from gradients")
    if not isinstance(norms, Tensor) or norms.shape != losses.shape:
        got = tuple(norms.shape) if isinstance(norms, Tensor) else type(norms).__name__
        raise EmaisError(f"norms must be (N,) with N = {len(losses)}, one gradient norm per sample, got {got}")
    norms = norms.detach()
    if norms.device.type == "cpu":  # elsewhere it would wait for the device
        check_norms(norms)
    norms = torch.where(norms >= 0, norms, torch.nan).float()  # below 0 is no norm: counted as not finite
    if mean_norm is None:
        return norms
    if not isinstance(mean_norm, Tensor) or mean_norm.numel() != 1:
        got = tuple(mean_norm.shape) if isinstance(mean_norm, Tensor) else type(mean_norm).__name__
        raise EmaisError(f"mean_norm must be a tensor with one number, |mean(r g)| of the minibatch, got {got}")
    return torch.cat((norms, mean_norm.detach().to(norms).float().reshape(1)))


def check_norms(norms: Tensor) -> None:
    """Refuse a norm below 0: something else was given, such as a score."""
    below = norms < 0
    if bool(below.any()):
        place = int(below.int().argmax())
        raise EmaisError(
            f"norms must be at least 0, got {float(norms[place]):g} at place {place}: give |d loss_i / d logits_i|, as "
            "torch.linalg.vector_norm or token_cross_entropy return it"
        )

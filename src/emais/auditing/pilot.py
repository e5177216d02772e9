"""The pilot: a short run with importance sampling that is taken back afterwards, and what it found."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from ..errors import EmaisError, positive_int
from ..functional.tokens import TokenLosses
from ..groups import processes_here
from ..loading.sources import check_dataset
from ..methods.audit import Trial
from ..observing.finding import Finding
from ..rates.attached import innermost
from ..rates.scaling import StepScaler
from .restoring import put_back

# model, batch -> losses (N,), logits (N, ...), and perhaps norms (N,)
PerSampleLoss = Callable[[Any, Any], tuple[Tensor, Tensor] | tuple[Tensor, Tensor | None, Tensor] | TokenLosses]
ATTACHED = (
    "the optimizer is attached to an engine, which would count the steps of the pilot as its own: audit before "
    "attach, or call remove() of the handle that attach returned, and attach again afterwards"
)

ONE_PROCESS = (
    "emais.audit trains in one process{}: call it in a script of its own that is started without torchrun, or audit "
    "on several processes in your own loop, with emais.create('audit', ..., process_group=dist.group.WORLD)"
)


def audit(
    model: nn.Module,
    dataset: Any,
    per_sample_loss: PerSampleLoss,
    optimizer: Optimizer,
    *,
    batch_size: int,
    steps: int,
    seed: int = 0,
    rule: str | None = None,
    scale_decay: bool = True,
    **options: Any,
) -> Finding:
    """Would importance sampling help? Train `steps` steps with EMAIS-auto, take them back, and say what it was worth.

    per_sample_loss(model, batch) -> (losses, logits): losses (N,), one number per sample (reduction="none"), and the
    logits (N, ...) that they were computed from. batch is what a DataLoader would give; move it to the model's device
    there. It may return (losses, logits, norms) with the gradient norms (N,) instead, or what
    `functional.token_cross_entropy` gives: a language model then needs no gradient of (N, T, V). Gradients of different
    samples count as orthogonal there, so that n_ems comes out rather too low. rule and scale_decay: as of
    `Engine.attach`; an optimizer that no rule is known for needs one. options go to torch's DataLoader (num_workers,
    collate_fn, ...).

    It takes at least three epochs of ceil(M/N) steps to say something, of which the first two are plain training. n_ems
    often rises for many epochs: audit as many as you would train. Before twenty it says "so far". The optimizer steps
    at its present learning rate. Afterwards model, optimizer and the random states of torch, numpy and Python are as
    before, bit by bit, also if something raises. What else your code changes (files, loggers, generators of the data
    set, objects of other classes that a module holds) stays changed. For clipping, schedules, mixed precision or
    several processes take `emais.create("audit", ...)` into your own loop.

    >>> x = torch.arange(40.0).reshape(20, 2) / 40
    >>> data, net = torch.utils.data.TensorDataset(x, x.sum(1)), nn.Linear(2, 1)
    >>> def squared(model, batch):
    ...     z = model(batch[0])
    ...     return (z.squeeze(1) - batch[1]).square(), z
    >>> found = audit(net, data, squared, torch.optim.SGD(net.parameters(), 0.1), batch_size=4, steps=8)
    >>> print(found)
    It is too early to say after 8 steps (1.6 epochs): it takes 15, to see every sample twice and then to draw
    an epoch by importance.
    """
    _check_processes(options)
    check_dataset(dataset, len(dataset) if hasattr(dataset, "__len__") else 0)
    if positive_int("batch_size", batch_size) > len(dataset):
        raise EmaisError(f"batch_size is {batch_size}, and the data set has {len(dataset)} samples: take at most these")
    _check_optimizer(model, optimizer)
    imp = Trial(len(dataset), batch_size, positive_int("steps", steps), seed=seed)
    loader = imp.loader(dataset, **options)
    with put_back(model, optimizer), torch.enable_grad():
        handle = imp.attach(optimizer, rule, scale_decay=scale_decay)
        try:
            model.train()
            for batch, draw in loader:
                optimizer.zero_grad()
                losses, logits, given = _checked(per_sample_loss(model, batch))
                imp.loss(losses, logits, draw, **given).backward()
                optimizer.step()
        finally:
            handle.remove()
    return replace(imp.finding(), lr_scale=imp.summary().lr_scale, effective_steps=imp.effective_steps)


def _check_processes(options: dict[str, Any]) -> None:
    """Refuse to be one of several processes: each would train on the same samples."""
    if (size := processes_here()) > 1:
        raise EmaisError(ONE_PROCESS.format(f", and this is one of {size}"))
    if given := [f"{name}=" for name in ("process_group", "sharded") if name in options]:
        raise EmaisError(ONE_PROCESS.format(f" and takes no {given[0]}"))


def _check_optimizer(model: nn.Module, optimizer: Optimizer) -> None:
    """Refuse an optimizer of another model, as nothing would be trained, and one that an engine counts the steps of."""
    own = {id(p) for p in model.parameters()}
    if not any(id(p) in own for group in optimizer.param_groups for p in group["params"]):
        raise EmaisError("the optimizer has no parameter of this model: make it with model.parameters()")
    hooks = [hook for x in vars(innermost(optimizer)).values() if isinstance(x, dict) for hook in x.values()]
    if any(isinstance(getattr(hook, "__self__", None), StepScaler) for hook in hooks):
        raise EmaisError(ATTACHED)


def _checked(result: Any) -> tuple[Tensor, Tensor | None, dict[str, Tensor | None]]:
    """Losses, logits, and norms if there are any."""
    if isinstance(result, TokenLosses):
        return result.losses, None, {"norms": result.norms, "mean_norm": result.mean_norm}
    if not isinstance(result, tuple | list) or len(result) not in (2, 3):
        raise EmaisError(
            "per_sample_loss(model, batch) must return (losses, logits): one loss per sample, with "
            'reduction="none", and the logits that they were computed from; or (losses, logits, norms), or what '
            f"token_cross_entropy gives; got {type(result).__name__}"
        )
    losses, logits, *norms = result
    return losses, logits, {"norms": norms[0]} if norms else {}

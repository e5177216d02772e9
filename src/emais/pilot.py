"""The pilot: a short run with importance sampling that is taken back afterwards, and what it found."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from .errors import EmaisError, positive_int
from .loading.sources import check_dataset
from .methods.audit import Trial
from .observing.finding import Finding
from .restoring import put_back

PerSampleLoss = Callable[[Any, Any], tuple[Tensor, Tensor]]  # model, batch -> losses (N,) and logits (N, ...)


def audit(
    model: nn.Module,
    dataset: Any,
    per_sample_loss: PerSampleLoss,
    optimizer: Optimizer,
    *,
    batch_size: int,
    steps: int,
    seed: int = 0,
    **options: Any,
) -> Finding:
    """Would importance sampling help? Train `steps` steps with EMAIS-auto, take them back, and say what it was worth.

    per_sample_loss(model, batch) -> (losses, logits): losses (N,), one number per sample (reduction="none"), and the
    logits (N, ...) that they were computed from. batch is what a DataLoader would give; move it to the model's device
    there. options go to torch's DataLoader (num_workers, collate_fn, ...).

    It takes at least two epochs of ceil(M/N) steps to say something, and three to say a trend. The optimizer steps at
    its present learning rate. Afterwards model, optimizer and the random states of torch, numpy and Python are as
    before, bit by bit, also if something raises. What else your code changes (files, loggers, generators of the data
    set) stays changed. For clipping, schedules or mixed precision take `emais.create("audit", ...)` into your own loop.

    >>> x = torch.arange(40.0).reshape(20, 2) / 40
    >>> data, net = torch.utils.data.TensorDataset(x, x.sum(1)), nn.Linear(2, 1)
    >>> def squared(model, batch):
    ...     z = model(batch[0])
    ...     return (z.squeeze(1) - batch[1]).square(), z
    >>> found = audit(net, data, squared, torch.optim.SGD(net.parameters(), 0.1), batch_size=4, steps=8)
    >>> print(found)
    It is too early to say after 8 steps (1.6 epochs): every sample has to be seen twice, in two epochs.
    """
    check_dataset(dataset, len(dataset) if hasattr(dataset, "__len__") else 0)
    _check_optimizer(model, optimizer)
    imp = Trial(len(dataset), batch_size, positive_int("steps", steps), seed=seed)
    loader = imp.loader(dataset, **options)
    with put_back(model, optimizer), torch.enable_grad():
        handle = imp.attach(optimizer)
        try:
            model.train()
            for batch, draw in loader:
                optimizer.zero_grad()
                imp.loss(*_checked(per_sample_loss(model, batch)), draw).backward()
                optimizer.step()
        finally:
            handle.remove()
    return imp.finding()


def _check_optimizer(model: nn.Module, optimizer: Optimizer) -> None:
    """Refuse an optimizer of another model: nothing would be trained."""
    own = {id(p) for p in model.parameters()}
    if not any(id(p) in own for group in optimizer.param_groups for p in group["params"]):
        raise EmaisError("the optimizer has no parameter of this model: make it with model.parameters()")


def _checked(result: Any) -> tuple[Tensor, Tensor]:
    if not isinstance(result, tuple | list) or len(result) != 2:
        raise EmaisError(
            "per_sample_loss(model, batch) must return (losses, logits): one loss per sample, with "
            f'reduction="none", and the logits that they were computed from; got {type(result).__name__}'
        )
    losses, logits = result
    return losses, logits

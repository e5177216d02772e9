"""What can be told of a torch scheduler from its public names: its parts, where it ends, whether it can be followed."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from torch.optim.lr_scheduler import (
    ChainedScheduler,
    ConstantLR,
    CosineAnnealingLR,
    LinearLR,
    LRScheduler,
    OneCycleLR,
    PolynomialLR,
    ReduceLROnPlateau,
    SequentialLR,
)

from ..errors import EmaisError

ACCUMULATED = 8  # minibatches a step at most, for which a scheduler of optimizer steps is never taken for one of epochs
AS_EPOCHS = (
    "{name} ends after {end:g} of its steps, and the run is {goal:g} steps long, {epochs:.4g} epochs of {epoch:g}: it "
    "counts epochs. Pass {way}, or make it for {goal:g} steps (for {goal:g}/k if k minibatches are "
    "accumulated)"
)


def parts_of(scheduler: Any) -> list[Any]:
    """The schedulers that a SequentialLR or ChainedScheduler holds. torch has no public name for them."""
    if not isinstance(scheduler, SequentialLR | ChainedScheduler):
        return []
    kept = [value for value in vars(scheduler).values() if isinstance(value, list | tuple)]
    return [part for value in kept for part in value if isinstance(part, LRScheduler)]


def with_parts(scheduler: Any) -> Iterator[Any]:
    """A scheduler and all that are nested in it."""
    yield scheduler
    for part in parts_of(scheduler):
        yield from with_parts(part)


def check_scheduler(scheduler: Any) -> LRScheduler:
    """The scheduler, or say why it cannot follow effective steps."""
    for part in with_parts(scheduler):
        name = type(part).__name__
        if isinstance(part, ReduceLROnPlateau):
            raise EmaisError(
                f"{name} follows a metric, not the step: it has no value at a fractional step; use it alone"
            )
        if getattr(part, "cycle_momentum", False):
            raise EmaisError(
                f"{name} moves the momentum along with the rate, which cannot be interpolated between two of its "
                "steps: make it with cycle_momentum=False"
            )
    if not isinstance(scheduler, LRScheduler):
        name = type(scheduler).__name__
        raise EmaisError(f"{name} is not a torch LRScheduler: pass one, or a function of t with optimizer=")
    return scheduler


def steps_made(scheduler: Any) -> int | None:
    """How many steps a scheduler has made, by its own count; a ChainedScheduler has none, but its parts have."""
    counts = (getattr(part, "last_epoch", None) for part in with_parts(scheduler))
    return next((count for count in counts if count is not None), None)


def steps_left(scheduler: Any) -> float:
    """How many steps a scheduler has left, where its rate is no longer meant to be used beyond an end."""
    if isinstance(scheduler, OneCycleLR):
        return scheduler.total_steps - 1 - scheduler.last_epoch
    if type(scheduler) is CosineAnnealingLR:  # a class of one's own may mean something else by T_max
        return scheduler.T_max - scheduler.last_epoch
    parts = parts_of(scheduler)[-1 if isinstance(scheduler, SequentialLR) else 0 :]
    if any(steps_left(part) < math.inf for part in parts):
        raise EmaisError(
            f"{type(scheduler).__name__} has an end that t_eff would pass: give num_steps=, here or to the engine"
        )
    return math.inf


def own_end(scheduler: Any) -> float:
    """After how many steps a scheduler comes to its end, with a rate of 0 or its least: inf if that cannot be told.

    >>> import torch
    >>> optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.1)
    >>> warmup, cosine = LinearLR(optimizer, 0.1, 1.0, 5), CosineAnnealingLR(optimizer, 35)
    >>> own_end(warmup), own_end(cosine), own_end(SequentialLR(optimizer, [warmup, cosine], [5]))
    (inf, 35, 40)
    """
    if isinstance(scheduler, SequentialLR):
        *first, last = parts_of(scheduler)
        lengths = [part.total_iters if isinstance(part, LinearLR | ConstantLR) else own_end(part) for part in first]
        return sum(lengths) + own_end(last)
    if isinstance(scheduler, ChainedScheduler):
        return min(map(own_end, parts_of(scheduler)), default=math.inf)
    if isinstance(scheduler, OneCycleLR):
        return scheduler.total_steps - 1
    if type(scheduler) is CosineAnnealingLR:
        return scheduler.T_max
    falls = isinstance(scheduler, LinearLR) and scheduler.end_factor < 0.05 * scheduler.start_factor
    return scheduler.total_iters if falls or isinstance(scheduler, PolynomialLR) else math.inf


def check_unit(scheduler: Any, goal: float, epoch: float, way: str) -> None:
    """Refuse a scheduler that counts epochs where it is to count steps: its end is the run's, in epochs."""
    end = own_end(scheduler)
    if 0.9 * goal <= end * epoch <= 1.1 * goal and end * ACCUMULATED < goal:
        name = type(scheduler).__name__
        raise EmaisError(AS_EPOCHS.format(name=name, end=end, goal=goal, epoch=epoch, epochs=goal / epoch, way=way))

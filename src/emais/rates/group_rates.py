"""The learning rates of an optimizer's groups, each a number or a tensor."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer


def in_place(optimizer: Optimizer) -> list[Any]:
    """The rates themselves."""
    return [group["lr"] for group in optimizer.param_groups]


def read(optimizer: Optimizer) -> list[Any]:
    """A copy of the rates."""
    return [lr.clone() if isinstance(lr, Tensor) else lr for lr in in_place(optimizer)]


def write_rates(optimizer: Optimizer, rates: Sequence[Any]) -> None:
    """Set the rates; those that are tensors stay the same tensors."""
    for group, lr in zip(optimizer.param_groups, rates, strict=True):
        if isinstance(group["lr"], Tensor):
            group["lr"].copy_(torch.as_tensor(lr, device=group["lr"].device))
        else:
            group["lr"] = float(lr)


def fill(rates: list[Any], values: Sequence[Any]) -> None:
    """Put values into rates; tensors stay where they are, so that a step can be captured in a CUDA graph."""
    for k, value in enumerate(values):
        if isinstance(rates[k], Tensor):
            rates[k].copy_(torch.as_tensor(value, device=rates[k].device))
        else:
            rates[k] = float(value)


def times(now: Any, was: Any) -> Any:
    """How many times as high a rate is as it was; exactly 1 if it is the same, and where one of both is 0.

    >>> times(0.05, 0.1), times(0.1, 0.1), times(0.1, 0.0), times(0.0, 0.1)
    (0.5, 1.0, 1.0, 1.0)
    """
    if isinstance(now, Tensor):
        return torch.where((now == was) | (was == 0) | (now == 0), torch.ones_like(now), now / was)
    return 1.0 if now == was or was == 0 or now == 0 else now / was


def rate_where(which: Any, one: Any, other: Any) -> Any:
    """One rate where `which` is true, else the other; of tensors without a sync."""
    if isinstance(other, Tensor):
        return torch.where(which, torch.as_tensor(one, dtype=other.dtype, device=other.device), other)
    return one if which else other


def carries_on(scheduler: Any, optimizer: Optimizer) -> bool:
    """Whether a scheduler goes on from the rates that it finds, or computes its own anew: found out by two trial steps.

    >>> optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.1)
    >>> exponential = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)
    >>> function = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda t: 0.9**t)
    >>> _ = optimizer.step()
    >>> carries_on(exponential, optimizer), carries_on(function, optimizer)
    (True, False)
    """
    before, rates, found = scheduler.state_dict(), read(optimizer), []
    try:
        for trial in (1.0, 2.0):
            write_rates(optimizer, [trial] * len(rates))
            scheduler.step()
            found.append([float(lr) for lr in in_place(optimizer)])
            scheduler.load_state_dict(copy.deepcopy(before))
    except ValueError:  # OneCycleLR has no step beyond its end
        scheduler.load_state_dict(copy.deepcopy(before))
        return False
    finally:
        write_rates(optimizer, rates)
    return found[0] != found[1]

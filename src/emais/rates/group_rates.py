"""The learning rates of an optimizer's groups, each a number or a tensor."""

from __future__ import annotations

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


def zeroed(rate: Any, stop: Any) -> Any:
    """A rate, or 0."""
    if isinstance(rate, Tensor):
        return torch.where(stop, torch.zeros_like(rate), rate)
    return 0.0 if stop else rate

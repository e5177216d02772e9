"""Numbers kept for each sample that change for the samples of a minibatch: the state of most methods."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from .scores import NORM_MAX

Rule = Callable[..., tuple[Any, ...]]  # (xp, value, *old columns) -> new columns


def first_places(index: Tensor, usable: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """For each place of a minibatch: the first place of the same sample with a usable value, whether there is one,
    and whether it is this place. Fixed shapes, no sort, no host sync; N^2 comparisons.
    """
    same = (index.unsqueeze(1) == index) & usable
    first, known = same.to(torch.uint8).argmax(1), same.any(1)
    return first, known, (first == torch.arange(len(index), device=index.device)) & known


@dataclass(frozen=True, eq=False)
class Change:
    """What an update did: the samples, their columns before and after, and whether a row is the one that counts."""

    index: Any
    old: tuple[Any, ...]
    new: tuple[Any, ...]
    once: Any  # 1.0 at the first place of each sample whose value was usable, 0.0 elsewhere


class SampleTable:
    """Named float32 columns of M numbers, started at 0.

    A sample that occurs twice in a minibatch takes its first usable value; a value that is NaN, infinite or above
    2^62 changes nothing. In numpy, whose calls cost less; if `resident` in torch, in fixed shapes with no host sync.

    >>> table = SampleTable(3, ("total",))
    >>> change = table.update(np.array([2, 2]), np.array([5.0, 7.0], np.float32), lambda xp, x, total: (total + x,))
    >>> table["total"]
    tensor([0., 0., 5.])
    """

    def __init__(
        self,
        num_samples: int,
        names: tuple[str, ...],
        device: torch.device | str = "cpu",
        resident: bool = False,
    ) -> None:
        self._tensors = {name: torch.zeros(num_samples, dtype=torch.float32, device=device) for name in names}
        self._views = [] if resident else [t.numpy() for t in self._tensors.values()]

    def __getitem__(self, name: str) -> Tensor:
        return self._tensors[name]

    def rows(self, index: Any) -> tuple[Any, ...]:
        """The columns of some samples, in numpy or torch as the index is."""
        if isinstance(index, Tensor):
            return tuple(t.index_select(0, index) for t in self._tensors.values())
        return tuple(view.take(index) for view in self._views)

    def all(self) -> tuple[Any, ...]:
        """All columns, in numpy or, if resident, in torch: computed with, they give the same bits as `rows`."""
        return tuple(self._views or self._tensors.values())

    def update(self, index: Any, value: Any, rule: Rule) -> Change:
        """Set the rows of these samples to rule(xp, value, *row), with xp numpy or torch."""
        return self._on_device(index, value, rule) if isinstance(index, Tensor) else self._on_host(index, value, rule)

    def _on_host(self, index: np.ndarray, value: np.ndarray, rule: Rule) -> Change:
        usable = np.abs(value) <= NORM_MAX  # false for NaN
        if not usable.all():
            index, value = index[usable], value[usable]
        index, first = np.unique(index, return_index=True)
        old = self.rows(index)
        new = rule(np, value.take(first), *old)
        for view, column in zip(self._views, new, strict=True):
            view[index] = column
        return Change(index, old, new, np.ones(len(index), np.float32))

    def _on_device(self, index: Tensor, value: Tensor, rule: Rule) -> Change:
        first, known, once = first_places(index, value.abs() <= NORM_MAX)
        old = self.rows(index)
        new = rule(torch, value.float().index_select(0, first), *old)
        new = tuple(torch.where(known, x, before) for x, before in zip(new, old, strict=True))
        for t, column in zip(self._tensors.values(), new, strict=True):
            t.index_copy_(0, index, column)
        return Change(index, old, new, once.float())

    def state_dict(self) -> dict[str, Tensor]:
        """All columns, copied to the CPU."""
        return {name: t.cpu().clone() for name, t in self._tensors.items()}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Take over what `state_dict` gave; entries of other names are left alone."""
        for name, t in self._tensors.items():
            t.copy_(state[name])

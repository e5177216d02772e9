"""Which rows of a per-sample table a minibatch changes: a sample that occurs twice takes its first usable value."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import torch
from torch import Tensor

if TYPE_CHECKING:
    from .arrays import Array

FEW_PLACES = 4096  # up to so many places, comparing each with each is faster than sorting them


class Rows(Protocol):
    """The rows of a minibatch, in the order in which they are written.

    A sample may be listed more than once. Its last row then holds what counts; on a device all its rows agree.
    """

    index: Any  # (n,): the sample of each row

    def values(self, x: Array) -> Array:
        """For each row, the value that its sample takes; x (..., N): one for each place of the minibatch."""

    def old(self, x: Array) -> Array:
        """For each row, what was known of its sample; x (..., N): the same for all places of a sample."""

    def keep(self, new: tuple[Any, ...], old: tuple[Any, ...]) -> tuple[Any, ...]:
        """The new numbers of each row, column by column, or the old ones of a sample without a usable value."""

    def once(self) -> Array:
        """(n,) float64: 1 at one row of each sample that has a usable value, else 0."""


class HostRows:
    """The usable places, turned around: the last write of a sample is its first place.

    >>> rows = HostRows(np.array([7, 3, 7]), np.array([True, True, True]))
    >>> rows.index.tolist(), rows.values(np.array([1.0, 2.0, 3.0])).tolist(), rows.once().tolist()
    ([7, 3, 7], [3.0, 2.0, 1.0], [0.0, 1.0, 1.0])
    """

    def __init__(self, index: np.ndarray, usable: np.ndarray) -> None:
        whole = np.count_nonzero(usable) == len(usable)
        self._places: Any = slice(None, None, -1) if whole else np.flatnonzero(usable)[::-1]
        self.index: np.ndarray = index[self._places].copy()  # torch knows no array that is turned around

    def values(self, x: np.ndarray) -> np.ndarray:
        """Of the usable places."""
        found: np.ndarray = x[..., self._places].copy()
        return found

    def old(self, x: np.ndarray) -> np.ndarray:
        """Of the usable places, a view if they are all."""
        found: np.ndarray = x[..., self._places]
        return found

    def keep(self, new: tuple[Any, ...], old: tuple[Any, ...]) -> tuple[Any, ...]:
        """The new: every row has a usable value."""
        return new

    def once(self) -> np.ndarray:
        """1 at the last row of each sample: all but those that another row of the sample follows."""
        order = self.index.argsort(kind="stable")
        samples, counted = self.index.take(order), np.ones(len(order))
        counted[order[:-1][samples[1:] == samples[:-1]]] = 0
        return counted


class DeviceRows:
    """All places, each with the first usable value of its sample: fixed shapes and no host sync.

    >>> rows = DeviceRows(torch.tensor([7, 3, 7]), torch.tensor([True, False, True]))
    >>> rows.values(torch.tensor([1.0, 2.0, 3.0])).tolist(), rows.once().tolist()
    ([1.0, 1.0, 1.0], [1.0, 0.0, 0.0])
    >>> rows.keep((torch.tensor([5.0, 6.0, 5.0]),), (torch.zeros(3),))
    (tensor([5., 0., 5.]),)
    """

    def __init__(self, index: Tensor, usable: Tensor) -> None:
        self.index = index
        self._first, self._known = (by_pairs if len(index) <= FEW_PLACES else by_sorting)(index, usable)

    def values(self, x: Tensor) -> Tensor:
        """Of the first usable places; of a sample that has none, anything."""
        return x.index_select(-1, self._first)

    def old(self, x: Tensor) -> Tensor:
        """As it is: all places of a sample have it."""
        return x

    def keep(self, new: tuple[Any, ...], old: tuple[Any, ...]) -> tuple[Any, ...]:
        """The new where a usable value is known."""
        return tuple(torch.where(self._known, x, y) for x, y in zip(new, old, strict=True))

    def once(self) -> Tensor:
        """1 at the first usable place of each sample."""
        here = self._first == torch.arange(len(self.index), device=self.index.device)
        return (here & self._known).double()


def by_pairs(index: Tensor, usable: Tensor) -> tuple[Tensor, Tensor]:
    """For each place, the first place of the same sample with a usable value, and whether there is one: O(N^2)."""
    same = (index.unsqueeze(1) == index) & usable
    return same.to(torch.uint8).argmax(1), same.any(1)


def by_sorting(index: Tensor, usable: Tensor) -> tuple[Tensor, Tensor]:
    """The same in O(N log N): places sorted by sample, the usable ones of a sample first.

    >>> by_sorting(torch.tensor([7, 3, 7, 3]), torch.tensor([False, False, True, True]))
    (tensor([2, 3, 2, 3]), tensor([True, True, True, True]))
    """
    n = len(index)
    place = torch.arange(n, device=index.device)
    start = index * (2 * n)
    order = (start + torch.where(usable, place, place + n)).sort().values
    first = order.index_select(0, torch.searchsorted(order, start)) - start
    return first.remainder(n), first < n

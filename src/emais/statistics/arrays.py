"""Arrays on the host or on a device, behind one protocol. Only this folder knows numpy from torch.

An engine chooses one of the two kinds when it is made (`engine.arrays`), and everything that learns computes with it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from operator import methodcaller
from typing import Any, Protocol, TypeAlias

import numpy as np
import torch
from torch import Tensor

from ..errors import EmaisError
from ..functional.traces import gradient_moments
from .rows import DeviceRows, HostRows, Rows

Array: TypeAlias = np.ndarray | Tensor  # which of the two: as the engine's `arrays`
Number: TypeAlias = float | Tensor  # a float on the host, a 0-d tensor on a device


class Arrays(Protocol):
    """What statistics need of arrays beyond operators, indexing and the methods that both kinds have.

    where, exp, expm1, sqrt, stack, concatenate: as in numpy and torch. at_least(x, low), at_most(x, high): bounded.
    number: the value of a 0-d array or tensor, to compute with. count: how many entries are true. single, double: in
    float32, in float64. tensor: an array as a tensor, in the same memory.
    """

    device: torch.device
    resident: bool  # on a device: nothing may wait for it, shapes are fixed, and state is written in place
    where: Callable[[Any, Array | float, Array | float], Array]
    exp: Callable[[Array], Array]
    expm1: Callable[[Array], Array]
    sqrt: Callable[[Array], Array]
    stack: Callable[[Sequence[Any]], Array]
    concatenate: Callable[[Sequence[Array]], Array]
    at_least: Callable[[Array | int, float], Array]
    at_most: Callable[[Array | int, float], Array]
    number: Callable[[Array], Any]
    count: Callable[[Array], Any]
    single: Callable[[Array], Array]
    double: Callable[[Array], Array]
    tensor: Callable[[Array], Tensor]

    def array(self, x: Tensor) -> Array:
        """A tensor as an array, in the same memory if it lies where the statistics are."""

    def copy(self, x: Array) -> Tensor:
        """An array as a tensor of its own."""

    def known(self, ask: Callable[[], Any], otherwise: bool) -> bool:
        """The truth of what `ask` gives. On a device one would have to wait for it: there it is `otherwise`."""

    def finite(self, x: Array) -> Any:
        """Whether all values are finite."""

    def blend(self, old: Array, new: Array, share: float, known: Any) -> None:
        """old += share * (new - old) in place, where `known` is true."""

    def one(self, x: Number) -> Array:
        """A number as an array (1,), in float64."""

    def largest(self, columns: Sequence[Array]) -> Array:
        """The largest entry of each."""

    def norms(self, x: Array) -> Array:
        """Euclidean norms of the rows: (N, D) -> (N,)."""

    def moments(self, r: Array, norms: Array) -> Array:
        """(sum |r g|^2, sum r |g|^2, sum r |g|) in float64, of r (N,) and the norms |g| (N,)."""

    def take(self, columns: Sequence[Array], index: Array) -> tuple[Any, ...]:
        """x[..., index] of each column x, copied."""

    def put(self, columns: Sequence[Array], index: Array, values: Sequence[Array]) -> None:
        """x[..., index] = value for each column x, in place. On a device the values of a repeated index must agree."""

    def row(self, x: Array, which: Tensor) -> Array:
        """x[which], of one row; which (1,)."""

    def rows(self, index: Array, usable: Array) -> Rows:
        """Which rows of a table a minibatch changes; usable: whether the value at a place counts."""


class HostArrays:
    """numpy: for arrays as small as a minibatch its calls cost a fraction of torch's.

    >>> arrays = HostArrays()
    >>> arrays.take([np.array([[1, 2, 3], [4, 5, 6]])], np.array([2, 0]))
    (array([[3, 1],
            [6, 4]]),)
    """

    device, resident = torch.device("cpu"), False

    def __init__(self) -> None:
        self.where, self.stack, self.concatenate = np.where, np.array, np.concatenate
        self.exp, self.expm1, self.sqrt = np.exp, np.expm1, np.sqrt
        self.at_least, self.at_most = np.maximum, np.minimum
        self.number, self.count = methodcaller("item"), np.count_nonzero
        # C functions: a function in Python would cost as much again
        self.single, self.double = methodcaller("astype", np.float32), methodcaller("astype", np.float64)
        self.tensor = torch.from_numpy
        self.rows = HostRows

    def array(self, x: Tensor) -> np.ndarray:
        """A view, or a copy from another device."""
        found: np.ndarray = x.cpu().numpy()  # sync, on other devices
        return found

    def copy(self, x: np.ndarray) -> Tensor:
        """Copied by numpy."""
        return torch.from_numpy(x.copy())

    def known(self, ask: Callable[[], Any], otherwise: bool) -> bool:
        """The truth."""
        return bool(ask())

    def finite(self, x: np.ndarray) -> Any:
        """Whether all values are finite."""
        return np.logical_and.reduce(np.isfinite(x), None)

    def blend(self, old: np.ndarray, new: np.ndarray, share: float, known: Any) -> None:
        """If it is known."""
        if known:
            old += share * (new - old)

    def one(self, x: Number) -> np.ndarray:
        """Of a float."""
        return np.array((x,), np.float64)

    def largest(self, columns: Sequence[np.ndarray]) -> np.ndarray:
        """One after the other."""
        return np.array([x.max() for x in columns])

    def norms(self, x: np.ndarray) -> np.ndarray:
        """Of the rows."""
        found: np.ndarray = np.sqrt(np.einsum("nd,nd->n", x, x))
        return found

    def moments(self, r: np.ndarray, norms: np.ndarray) -> np.ndarray:
        """As three products."""
        n = norms.astype(np.float64)
        rn = r * n
        return np.array((rn @ rn, rn @ n, np.add.reduce(rn)))

    def take(self, columns: Sequence[np.ndarray], index: np.ndarray) -> tuple[np.ndarray, ...]:
        """x[..., index]."""
        return tuple(map(methodcaller("take", index, -1), columns))

    def put(self, columns: Sequence[np.ndarray], index: np.ndarray, values: Sequence[np.ndarray]) -> None:
        """x[..., index] = value; of a repeated index the last value stays."""
        for x, value in zip(columns, values, strict=True):
            x.T[index] = value.T  # x[..., index] = value would cost four times as much

    def row(self, x: np.ndarray, which: Tensor) -> np.ndarray:
        """x[which]."""
        found: np.ndarray = x[int(which)]
        return found


class DeviceArrays:
    """torch: all stays on the device, in fixed shapes and with no host sync, so that a CUDA graph can capture it.

    >>> arrays = DeviceArrays(torch.device("cpu"))
    >>> arrays.take([torch.tensor([[1, 2, 3], [4, 5, 6]])], torch.tensor([2, 0]))
    (tensor([[3, 1],
            [6, 4]]),)
    """

    resident = True

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.where, self.stack, self.concatenate = torch.where, torch.stack, torch.concatenate
        self.exp, self.expm1, self.sqrt = torch.exp, torch.expm1, torch.sqrt
        self.at_least, self.at_most = torch.clamp_min, torch.clamp_max
        self.number, self.count = _itself, torch.sum
        self.single, self.double = Tensor.float, Tensor.double
        self.tensor = _itself
        self.rows = DeviceRows

    def array(self, x: Tensor) -> Tensor:
        """On the device."""
        return x.to(self.device)

    def copy(self, x: Tensor) -> Tensor:
        """Copied on the device."""
        return x.clone()

    def known(self, ask: Callable[[], Any], otherwise: bool) -> bool:
        """Nobody asks the device."""
        return otherwise

    def finite(self, x: Tensor) -> Tensor:
        """Whether all values are finite: the largest is. Two operations, where isfinite().all() takes five."""
        found: Tensor = torch.linalg.vector_norm(x, math.inf) < math.inf if x.numel() else x.isfinite().all()
        return found

    def blend(self, old: Tensor, new: Tensor, share: float, known: Any) -> None:
        """As two operations."""
        old.lerp_(torch.where(known, new, old), share)

    def one(self, x: Number) -> Tensor:
        """Of a float or a tensor."""
        if isinstance(x, Tensor):
            return x.double().view(1)
        return torch.full((1,), x, dtype=torch.float64, device=self.device)

    def largest(self, columns: Sequence[Tensor]) -> Tensor:
        """All at once."""
        return torch.stack(tuple(columns)).amax(1)

    def norms(self, x: Tensor) -> Tensor:
        """Of the rows."""
        found: Tensor = torch.linalg.vector_norm(x, dim=1)
        return found

    def moments(self, r: Tensor, norms: Tensor) -> Tensor:
        """As one product."""
        return gradient_moments(r, norms)

    def take(self, columns: Sequence[Tensor], index: Tensor) -> tuple[Tensor, ...]:
        """x[..., index]."""
        return tuple(x.index_select(-1, index) for x in columns)

    def put(self, columns: Sequence[Tensor], index: Tensor, values: Sequence[Tensor]) -> None:
        """x[..., index] = value."""
        for x, value in zip(columns, values, strict=True):
            x.index_copy_(-1, index, value)

    def row(self, x: Tensor, which: Tensor) -> Tensor:
        """x[which]."""
        return x.index_select(0, which).squeeze(0)


def _itself(x: Any) -> Any:
    return x


def arrays_on(device: torch.device | str = "cpu", resident: bool | None = None) -> Arrays:
    """The arrays for statistics on a device; resident None: on every device but the CPU.

    >>> arrays_on("cpu").resident, arrays_on("cpu", resident=True).resident
    (False, True)
    """
    device = torch.device(device)
    if not isinstance(resident, bool | None) or (resident is False and device.type != "cpu"):
        raise EmaisError(
            f"resident must be True or False, and True on {device}, got {resident!r}: leave it out, or make the "
            "engine without device="
        )
    if resident is None:
        resident = device.type != "cpu"
    found: Any = DeviceArrays(device) if resident else HostArrays()  # each takes and gives arrays of its own kind only
    chosen: Arrays = found
    return chosen

"""Numbers kept for each sample that change for the samples of a minibatch: the state of most methods."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from .arrays import Array, Arrays, arrays_on
from .limits import NORM_MAX

LAST_STEP = 2**31 - 1  # that fits into 4 bytes

Rule = Callable[..., tuple[Any, ...]]  # (value, *old columns) -> new columns


@dataclass(eq=False, slots=True)
class Change:
    """What an update did: the samples, and their columns before and after.

    A sample may be listed more than once; its last entry counts. once(): 1 at one entry of each sample that has
    changed, else 0, for sums over samples.
    """

    index: Array
    old: tuple[Any, ...]
    new: tuple[Any, ...]
    once: Callable[[], Array]


class SampleTable:
    """Named columns of M numbers, started at 0: float32, or of the dtypes given.

    A sample that occurs twice in a minibatch takes its first usable value. A value that is NaN, infinite or above
    2^62 changes nothing. `arrays` are those of the engine: numpy by default.

    >>> import numpy as np
    >>> table = SampleTable(3, ["total"])
    >>> change = table.update(np.array([2, 2]), np.array([5.0, 7.0], np.float32), lambda x, total: (total + x,))
    >>> table["total"]
    tensor([0., 0., 5.])
    """

    def __init__(
        self, num_samples: int, names: Iterable[str] | Mapping[str, torch.dtype], arrays: Arrays | None = None
    ) -> None:
        self._arrays: Arrays = arrays or arrays_on()
        dtypes = names if isinstance(names, Mapping) else dict.fromkeys(names, torch.float32)
        device = self._arrays.device
        self._tensors = {name: torch.zeros(num_samples, dtype=kind, device=device) for name, kind in dtypes.items()}
        self._columns = tuple(self._arrays.array(t) for t in self._tensors.values())

    def __getitem__(self, name: str) -> Tensor:
        return self._tensors[name]

    def widen(self, name: str, dtype: torch.dtype) -> None:
        """Keep a column in another dtype from now on."""
        self._tensors[name] = self._tensors[name].to(dtype)
        self._columns = tuple(self._arrays.array(t) for t in self._tensors.values())

    def nbytes(self) -> int:
        """Bytes of all columns."""
        return sum(t.numel() * t.element_size() for t in self._tensors.values())

    def rows(self, index: Array) -> tuple[Any, ...]:
        """The columns of some samples."""
        return self._arrays.take(self._columns, index)

    def all(self) -> tuple[Any, ...]:
        """All columns. What is computed from them has the same bits as from `rows`."""
        return self._columns

    def update(self, index: Array, value: Array, rule: Rule) -> Change:
        """Set the rows of these samples to rule(value, *row)."""
        size: Any = abs(value)
        rows = self._arrays.rows(index, size <= NORM_MAX)  # false for NaN
        old = self._arrays.take(self._columns, rows.index)
        new = rows.keep(rule(rows.values(value), *old), old)
        self._arrays.put(self._columns, rows.index, new)
        return Change(rows.index, old, new, rows.once)

    def state_dict(self) -> dict[str, Tensor]:
        """All columns, copied to the CPU."""
        return {name: t.cpu().clone() for name, t in self._tensors.items()}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Take over what `state_dict` gave; entries of other names are left alone."""
        for name, t in self._tensors.items():
            t.copy_(state[name])


# ---- the latest step in which each sample was observed: 4 bytes a sample, and 8 once steps no longer fit


def step_dtype(arrays: Arrays, step: int = 0) -> torch.dtype:
    """What steps up to this one are kept in. On a device nothing can be laid out again later: 8 bytes from the start.

    >>> step_dtype(arrays_on()), step_dtype(arrays_on(), 2**31)
    (torch.int32, torch.int64)
    """
    return torch.int64 if arrays.resident or step > LAST_STEP else torch.int32


def outgrown(last_step: Tensor, step: int | Tensor) -> bool:
    """Whether a step no longer fits."""
    return last_step.dtype == torch.int32 and bool(step > LAST_STEP)

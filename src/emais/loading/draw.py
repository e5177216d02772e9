"""A draw: which samples a step trains on, and their importance coefficients."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NoReturn

import torch
from torch import Tensor

from ..errors import EmaisError
from ..statistics.arrays import Array

Score = Callable[[Any], tuple[Tensor, Tensor]]  # a batch -> its losses (n,) and logits (n, ...)


@dataclass(eq=False)
class DrawRecord:
    """Shared by all copies of one draw: whose it is, and whether it has been used."""

    owner: object
    index: Array  # where the statistics live, so that no copy has to be moved back
    r: Array
    used: bool = False
    everyone: tuple[Array, Array] | None = None  # index and r of all processes that train on the minibatch


class Draw:
    """The samples of one step: index (N,) int64, r (N,) float32 fixed when the index was drawn, and the step.

    It cannot be changed, and all copies of a draw count as one. It is neither a dataclass nor a sequence on purpose:
    frameworks open these to move and convert what is in them, and r in half precision would bias the loss. It iterates
    over index and r, from which they tell the minibatch size.
    """

    index: Tensor
    r: Tensor
    step: int | Tensor
    _record: DrawRecord

    def __init__(self, index: Tensor, r: Tensor, step: int | Tensor, _record: DrawRecord) -> None:
        self.__dict__.update(index=index, r=r, step=step, _record=_record)

    def to(self, device: Any = None, dtype: Any = None, non_blocking: bool = False) -> Draw:
        """The same draw with its tensors on another device.

        It can be called as a tensor's `to`. A dtype changes nothing. Whether the copy may be awaited later is decided
        here: towards the CPU, one that is not awaited could be read too soon.
        """
        if device is None or isinstance(device, torch.dtype):
            return self
        ahead = torch.device(device).type != "cpu"
        return self._with(lambda x: x.to(device, non_blocking=ahead))

    def pin_memory(self) -> Draw:
        """The same draw with its tensors in pinned memory."""
        return self._with(Tensor.pin_memory)

    def _with(self, change: Callable[[Tensor], Tensor]) -> Draw:
        return Draw(change(self.index), change(self.r), self.step, self._record)

    def __copy__(self) -> Draw:
        return Draw(self.index, self.r, self.step, self._record)

    def __deepcopy__(self, memo: dict[int, Any]) -> Draw:
        return self._with(Tensor.clone)

    def __reduce__(self) -> NoReturn:
        raise EmaisError(
            "a draw cannot be pickled: it belongs to the engine or sampler in this process. Keep draw.index, draw.r "
            "and draw.step, or save its state_dict(), which has the draws that are still to come"
        )

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"a draw cannot be changed: {name} is fixed when the samples are drawn")

    def __delattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"a draw cannot be changed: {name} is fixed when the samples are drawn")

    def __iter__(self) -> Iterator[Tensor]:
        return iter((self.index, self.r))

    def __len__(self) -> int:
        return len(self.index)

    def __repr__(self) -> str:
        return f"Draw(index={self.index!r}, r={self.r!r}, step={self.step!r})"

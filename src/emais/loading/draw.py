"""A draw: which samples a step trains on, and their importance coefficients."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from ..statistics.arrays import Array

Score = Callable[[Any], tuple[Tensor, Tensor]]  # a batch -> its losses (n,) and logits (n, ...)


@dataclass(eq=False)
class DrawRecord:
    """Shared by all copies of one draw: whose it is, and whether it has been used."""

    owner: object
    index: Array  # where the statistics live, so that no copy has to be moved back
    r: Array
    used: bool = False


@dataclass(frozen=True, eq=False)
class Draw:
    """The samples of one step: index (N,) int64, r (N,) float32 fixed when the index was drawn, and the step."""

    index: Tensor
    r: Tensor
    step: int | Tensor
    _record: DrawRecord = field(repr=False)

    def to(self, device: torch.device | str) -> Draw:
        """The same draw with its tensors on another device."""
        ahead = torch.device(device).type != "cpu"  # towards the CPU, a copy that is not awaited can be read too soon
        index, r = (x.to(device, non_blocking=ahead) for x in (self.index, self.r))
        return Draw(index, r, self.step, self._record)

    def __len__(self) -> int:
        return len(self.index)

"""The latest step in which each sample was observed: 4 bytes a sample, and 8 once steps no longer fit."""

from __future__ import annotations

import torch
from torch import Tensor

from .arrays import Arrays

MOST = 2**31 - 1  # the last step that fits into 4 bytes


def step_dtype(arrays: Arrays, step: int = 0) -> torch.dtype:
    """What steps up to this one are kept in. On a device nothing can be laid out again later: 8 bytes from the start.

    >>> from .arrays import arrays_on
    >>> step_dtype(arrays_on()), step_dtype(arrays_on(), 2**31)
    (torch.int32, torch.int64)
    """
    return torch.int64 if arrays.resident or step > MOST else torch.int32


def outgrown(last_step: Tensor, step: int | Tensor) -> bool:
    """Whether a step no longer fits."""
    return last_step.dtype == torch.int32 and bool(step > MOST)

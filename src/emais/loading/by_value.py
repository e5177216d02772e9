"""How a minibatch leaves a worker process: small tensors by value, all else the way torch sends it.

That way is shared memory, and for each tensor the training process has to connect to the worker and ask for a file
descriptor: a multiple of what copying a little costs, all of it under Python's lock.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

COPIED_BYTES = 1 << 19  # bytes of a minibatch up to which copying it beats sharing it
_NUMPY_HAS = frozenset(
    (torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.half, torch.float, torch.double)
)
_ENTERED = (Tensor, list, tuple, dict)


def is_plain(x: Any) -> bool:
    """Whether rows of x are stacked as anyone would: a dense tensor of no special kind, without a gradient."""
    return type(x) is Tensor and x.layout == torch.strided and not x.is_nested and not x.requires_grad


class PipedTensor:
    """A tensor on its way from a worker, copied through the pipe: it is unpacked as a tensor again."""

    def __init__(self, x: Tensor) -> None:
        self._tensor = x

    def __reduce__(self) -> tuple[Any, ...]:
        # not before: where another tensor shares this one's memory, sending that has moved it
        return torch.from_numpy, (self._tensor.numpy(),)


def by_value(batch: Any) -> Any:
    """The batch of a worker with its first small tensors packed as `PipedTensor`, up to `COPIED_BYTES` bytes in all.

    Lists, tuples and dicts are entered; other containers and special tensors are left as they are.
    """
    return _pack(batch, [COPIED_BYTES])


def _pack(batch: Any, room: list[int]) -> Any:
    kind = type(batch)
    if kind is dict:
        return {k: _pack(x, room) for k, x in batch.items()}
    if kind in (list, tuple):
        # a long list of numbers or words is not gone through
        return kind(_pack(x, room) for x in batch) if batch and isinstance(batch[0], _ENTERED) else batch
    if isinstance(batch, tuple) and hasattr(batch, "_fields"):
        return kind(*(_pack(x, room) for x in batch))
    if not (is_plain(batch) and batch.is_cpu and batch.is_contiguous() and batch.dtype in _NUMPY_HAS):
        return batch
    if batch.nbytes > room[0] or batch.is_neg():
        return batch
    room[0] -= batch.nbytes
    return PipedTensor(batch)

"""Reads the pickles of CIFAR-10's python version without running anything that they might ask for.

A pickle may call any function that it names. These need three names of numpy's; each gets a stand-in that only takes
down what it is given, and every other name is refused.
"""

from __future__ import annotations

import io
import pickle
from typing import Any

import numpy as np

from ...errors import EmaisError
from .base import Bytes


class ByteType:
    """Stands in for numpy.dtype, of which only bytes are known."""

    def __init__(self, code: bytes, *_: object) -> None:
        if code != b"u1":
            raise pickle.UnpicklingError(f"an array of type {code!r}, bytes are expected")

    def __setstate__(self, state: object) -> None:
        """Byte order and the like say nothing about bytes."""


class ByteArray:
    """Stands in for numpy.ndarray: a shape and the raw bytes."""

    array: Bytes

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        _, shape, kind, fortran, raw = state
        if not isinstance(kind, ByteType) or fortran or not isinstance(raw, bytes):
            raise pickle.UnpicklingError("an array that is not of bytes in C order")
        self.array = np.frombuffer(raw, dtype=np.uint8).reshape(shape)


def new_array(*_: object) -> ByteArray:
    """Stands in for numpy's function that begins an array; what is in it comes with its state."""
    return ByteArray()


STAND_INS = {
    ("numpy.core.multiarray", "_reconstruct"): new_array,
    ("numpy", "ndarray"): ByteArray,
    ("numpy", "dtype"): ByteType,
}


class Restricted(pickle.Unpickler):
    """An unpickler that knows the stand-ins and nothing else."""

    def find_class(self, module: str, name: str) -> Any:
        """The stand-in for a name."""
        if (module, name) not in STAND_INS:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}, which CIFAR-10 does not need")
        return STAND_INS[module, name]


def unpickle_batch(content: bytes, where: str) -> tuple[Bytes, list[int]]:
    """Data, (n, 3072), and labels of one batch file."""
    try:
        batch = Restricted(io.BytesIO(content), encoding="bytes").load()
        return batch[b"data"].array, batch[b"labels"]
    except Exception as error:  # a damaged pickle may raise anything
        raise EmaisError(
            f"{where} is not a batch of CIFAR-10 ({type(error).__name__}: {error}): get it again"
        ) from error

"""What every loader returns, and the form in which decoded data are handed about."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor

Bytes: TypeAlias = np.ndarray[Any, np.dtype[np.uint8]]
PixelArrays: TypeAlias = dict[str, Bytes]  # the four of PARTS
PARTS = ("x_train", "y_train", "x_test", "y_test")


@dataclass(frozen=True, eq=False)
class Data:
    """A data set in memory.

    Images are uint8, (n, channels, height, width), from 0 to `white`. Labels are int64, (n,), or, where an image may
    have several, float32 zeros and ones, (n, num_classes). `title` is the name to print: it says so where the data
    are a subset.
    """

    name: str
    title: str
    classes: tuple[str, ...]
    x_train: Tensor
    y_train: Tensor
    x_test: Tensor
    y_test: Tensor
    white: int = 255

    @classmethod
    def of(cls, name: str, title: str, classes: tuple[str, ...], arrays: Mapping[str, Bytes], white: int = 255) -> Data:
        """From uint8 arrays of images and labels."""
        tensors = {part: torch.from_numpy(arrays[part]) for part in PARTS}
        kind = torch.float32 if tensors["y_train"].ndim == 2 else torch.int64
        labels = {part: tensors[part].to(kind) for part in ("y_train", "y_test")}
        return cls(name, title, classes, **(tensors | labels), white=white)

    @property
    def num_classes(self) -> int:
        """How many classes, or labels, there are."""
        return len(self.classes)

    @property
    def multi_label(self) -> bool:
        """Whether an image may have several labels, or none."""
        return self.y_train.ndim == 2

    def scaled(self, images: Tensor) -> Tensor:
        """Images of this data set as float32 from 0 to 1, on the device they are on."""
        return images.float().div(self.white)

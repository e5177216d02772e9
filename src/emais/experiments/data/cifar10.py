"""CIFAR-10, checked byte by byte, whichever of its forms it comes in."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np

from ...errors import EmaisError
from .base import Data, PixelArrays
from .cache import cached, stamps
from .cifar10_files import BATCH_FILES, READERS
from .places import missing, places
from .sources import Folder

CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
PER_CLASS = {"train": 5000, "test": 1000}
SHA256 = {  # of the images, (n, 3, 32, 32), and the labels, both as bytes in the publisher's order
    "x_train": "9d5c2eddadb0deff02c14c350c0385aab7b1d5ff1edfeb4997c8dc8644960111",
    "y_train": "2b7cd2f24487317614016b72ffd53071c3062f592f0eb300c18a770d41ae1253",
    "x_test": "177777c33ba79825320efa646ad04a94bdc3c80e4ebe3bd21724f8cdfd4b9d56",
    "y_test": "cec8a24a1e92aa2ecaa0bbd3dbfa86bf6cd8759fbd209a832824c8cf0afca9d5",
}


def load_cifar10(folder: Path | str | None = None) -> Data:
    """CIFAR-10: 50000 training and 10000 test images of 32x32 in colour, ten classes.

    folder: holds one of `READERS`, or is one.
    """
    looked = places(folder, ("cifar10", "cifar-10"))
    path = next((path for place in looked for path in candidates(place) if path.exists()), None)
    if path is None:
        source = "the CIFAR-10 page of the University of Toronto (A. Krizhevsky)"
        raise missing("CIFAR-10", looked, source, f"one of {', '.join(READERS)} (and the other mosaics, labels.npz)")
    settings = SHA256 | {"files": stamps(Folder(path.parent), BATCH_FILES.get(path.name, (path.name,)))}
    arrays = cached("cifar10", settings, lambda: checked(READERS[path.name](path), path))
    return Data.of("cifar10", "CIFAR-10", CLASSES, arrays)


def candidates(place: Path) -> list[Path]:
    """What a place may be, or hold."""
    return [place] if place.name in READERS else [place / name for name in READERS]


def checked(arrays: PixelArrays, path: Path) -> PixelArrays:
    """The arrays, if there are as many images of each class as there should be and every byte is the publisher's."""
    for part, per_class in PER_CLASS.items():
        check_counts(arrays, part, per_class, path)
    for key, expected in SHA256.items():
        got = hashlib.sha256(np.ascontiguousarray(arrays[key]).data).hexdigest()
        if got != expected:
            raise EmaisError(f"{key} in {path} has sha256 {got}, CIFAR-10's is {expected}: get it again")
    return arrays


def check_counts(arrays: PixelArrays, part: str, per_class: int, path: Path) -> None:
    """Refuse a part that has too few or too many images, or of one class more than of another."""
    images, labels = arrays[f"x_{part}"], arrays[f"y_{part}"]
    total = per_class * len(CLASSES)
    if len(images) != total or len(labels) != total:
        raise EmaisError(f"{path} has {len(images)} {part} images and {len(labels)} labels, expected {total} of each")
    counts = np.bincount(labels, minlength=len(CLASSES)).tolist()
    if counts != [per_class] * len(CLASSES):
        raise EmaisError(f"{path} has {counts} {part} images of the classes, expected {per_class} of each")

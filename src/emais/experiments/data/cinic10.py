"""CINIC-10: folders of small PNGs, by part and class."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from ...errors import EmaisError, positive_int
from .base import Bytes, Data, PixelArrays
from .cache import cached, stamps
from .cifar10 import CLASSES
from .images import decode_all, rgb_of_size
from .places import missing, places
from .sources import Folder

FOLDERS = ("train", "test")  # the paper's 90000 and 90000; `valid`, another 90000, is not used


def load_cinic10(folder: Path | str | None = None, per_class: int = 9000) -> Data:
    """CINIC-10: 90000 training and 90000 test images of 32x32 in colour (some were grey), CIFAR-10's ten classes.

    folder: has train/, valid/ and test/, each with a folder a class; per_class: how many images each of these holds.

    Paper: sec:experiment
    """
    positive_int("per_class", per_class)
    looked = places(folder, ("cinic10", "CINIC-10", "cinic-10"))
    home = max(looked, key=class_folders)  # what an incomplete tree lacks is said later, by name
    if not class_folders(home):
        layout = f"folders train and test (and valid, unused), each with {', '.join(CLASSES)}, of 32x32 .png files"
        raise missing("CINIC-10", looked, "the CINIC-10 page of Edinburgh DataShare (L. Darlow)", layout)
    names = {part: image_names(home, part, per_class) for part in FOLDERS}
    source = Folder(home)
    settings = {"files": stamps(source, names["train"] + names["test"])}
    arrays = cached("cinic10", settings, lambda: decoded_cinic(source, names))
    return Data.of("cinic10", cinic_title(per_class), CLASSES, arrays)


def class_folders(place: Path) -> int:
    """How many of the folders that CINIC-10 has are there."""
    return sum((place / part / label).is_dir() for part in FOLDERS for label in CLASSES)


def cinic_title(per_class: int) -> str:
    """The name to print."""
    return "CINIC-10" if per_class == 9000 else f"CINIC-10 (subset, {per_class:,} images a class)"


def image_names(home: Path, part: str, per_class: int) -> list[str]:
    """All images of a part, class by class, each class sorted and complete."""
    names: list[str] = []
    for label in CLASSES:
        folder = home / part / label
        own = sorted(name for name in os.listdir(folder) if name.endswith(".png")) if folder.is_dir() else []
        if len(own) != per_class:
            raise EmaisError(f"{folder} has {len(own)} .png files, expected {per_class}: unpack CINIC-10 again")
        names += (f"{part}/{label}/{name}" for name in own)
    return names


def decoded_cinic(source: Folder, names: dict[str, list[str]]) -> PixelArrays:
    """Images and labels of both parts."""

    def decode(name: str) -> Bytes:
        return rgb_of_size(source.read(name), source.where(name), 32)

    images = decode_all(names["train"] + names["test"], decode, (3, 32, 32), "CINIC-10")
    arrays = dict(zip(("x_train", "x_test"), np.split(images, [len(names["train"])]), strict=True))
    for part in FOLDERS:
        arrays[f"y_{part}"] = np.repeat(np.arange(10, dtype=np.uint8), len(names[part]) // 10)
    return arrays

"""The forms of CIFAR-10: the publisher's python and binary versions, packed or not, one .npz, or six mosaics."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np

from ...errors import EmaisError, shortly
from .base import PARTS, Bytes, PixelArrays
from .images import rgb
from .sources import Folder, Source, Tar
from .unpickle import unpickle_batch

BATCHES = ("data_batch_1", "data_batch_2", "data_batch_3", "data_batch_4", "data_batch_5", "test_batch")
MOSAICS = ("train_0.webp", "train_1.webp", "train_2.webp", "train_3.webp", "train_4.webp", "test.webp")
MD5 = {  # as the publisher's page gives them
    "cifar-10-python.tar.gz": "c58f30108f718f92721af3b95e74349a",
    "cifar-10-binary.tar.gz": "c32a1d4ab5d03f1284b67883e8d87530",
}
BATCH_FILES = {  # of the forms that are several files, beside the folder or file that shows which form it is
    "cifar-10-batches-py": tuple(f"cifar-10-batches-py/{name}" for name in BATCHES),
    "cifar-10-batches-bin": tuple(f"cifar-10-batches-bin/{name}.bin" for name in BATCHES),
    MOSAICS[0]: (*MOSAICS, "labels.npz"),
}
Batch = tuple[Bytes, Bytes]  # images, (n, 3, 32, 32), and labels, (n,)


def python_version(source: Source) -> PixelArrays:
    """Six pickles."""
    return joined(python_batch(source, name) for name in BATCH_FILES["cifar-10-batches-py"])


def python_batch(source: Source, name: str) -> Batch:
    """One pickle: rows of 3072 bytes, and a list of labels."""
    images, labels = unpickle_batch(source.read(name), source.where(name))
    if images.shape != (len(labels), 3072):
        raise EmaisError(
            f"{source.where(name)} has data of shape {images.shape} and {len(labels)} labels: expected rows of 3072 "
            "bytes and as many labels"
        )
    wrong = [label for label in labels if type(label) is not int or not 0 <= label < 10]
    if wrong:
        raise bad_label(wrong[0], source.where(name))
    return images.reshape(-1, 3, 32, 32), np.array(labels, dtype=np.uint8)


def binary_version(source: Source) -> PixelArrays:
    """Six files of records."""
    return joined(binary_batch(source, name) for name in BATCH_FILES["cifar-10-batches-bin"])


def binary_batch(source: Source, name: str) -> Batch:
    """One file of records: a byte for the label, 3072 for the image."""
    raw = np.frombuffer(source.read(name), dtype=np.uint8)
    if not len(raw) or len(raw) % 3073:
        raise EmaisError(f"{source.where(name)} has {len(raw)} bytes, expected records of 3073 bytes: get it again")
    records = raw.reshape(-1, 3073)
    return records[:, 1:].reshape(-1, 3, 32, 32), checked_labels(records[:, 0], source.where(name))


def checked_labels(labels: Bytes, where: str) -> Bytes:
    """The labels, if they are one row of numbers from 0 to 9."""
    if labels.ndim != 1:
        raise EmaisError(f"{where} has shape {labels.shape}, expected (n,), a label an image: make it again")
    wrong = labels[labels > 9]
    if len(wrong):
        raise bad_label(int(wrong[0]), where)
    return labels


def bad_label(label: object, where: str) -> EmaisError:
    """The error for a label that CIFAR-10 does not have."""
    return EmaisError(f"{where} has the label {shortly(label)}, expected labels from 0 to 9: get it again")


def joined(batches: Iterable[Batch]) -> PixelArrays:
    """Five batches to train on and one to test on."""
    images, labels = zip(*batches, strict=True)
    return {
        "x_train": np.concatenate(images[:-1]),
        "y_train": np.concatenate(labels[:-1]),
        "x_test": images[-1].copy(),
        "y_test": labels[-1].copy(),
    }


def checked_tar(path: Path) -> Tar:
    """An archive whose md5 is the publisher's."""
    content = Folder(path.parent).read(path.name)
    md5 = hashlib.md5(content, usedforsecurity=False).hexdigest()
    if md5 != MD5[path.name]:
        raise EmaisError(f"{path} has md5 {md5}, the publisher's is {MD5[path.name]}: get it again")
    return Tar(path, content)


def one_npz(path: Path) -> PixelArrays:
    """One .npz with the four arrays, images as (n, 32, 32, 3)."""
    arrays = npz(path, PARTS)
    for part in ("x_train", "x_test"):
        if arrays[part].shape[1:] != (32, 32, 3):
            raise EmaisError(f"{part} in {path} has shape {arrays[part].shape}, expected (n, 32, 32, 3)")
        arrays[part] = np.ascontiguousarray(arrays[part].transpose(0, 3, 1, 2))
    for part in ("y_train", "y_test"):
        checked_labels(arrays[part], f"{part} in {path}")
    return arrays


def npz(path: Path, keys: Iterable[str]) -> PixelArrays:
    """The arrays of these names in an .npz; all have to be of bytes."""
    try:
        with path.open("rb") as file, np.load(file) as stored:
            arrays = {key: stored[key] for key in keys}
    except Exception as error:  # a damaged one may raise anything
        raise EmaisError(f"{path} cannot be read ({type(error).__name__}: {error}): make it again") from error
    for key, array in arrays.items():
        if array.dtype != np.uint8:
            raise EmaisError(f"{key} in {path} is of type {array.dtype}, expected uint8")
    return arrays


def mosaics(folder: Path) -> PixelArrays:
    """Six lossless images of 32x32 tiles, and labels.npz with `train` and `test`."""
    images = [tiles(Folder(folder), name) for name in MOSAICS]
    path = folder / "labels.npz"
    labels = npz(path, ("train", "test"))
    y_train, y_test = (checked_labels(labels[part], f"{part} in {path}") for part in ("train", "test"))
    return {"x_train": np.concatenate(images[:-1]), "y_train": y_train, "x_test": images[-1], "y_test": y_test}


def tiles(source: Source, name: str) -> Bytes:
    """The tiles of a mosaic, row by row."""
    mosaic = rgb(source.read(name), source.where(name))
    height, width, _ = mosaic.shape
    if height % 32 or width % 32:
        raise EmaisError(f"{source.where(name)} is {width}x{height} pixels, which is no mosaic of 32x32 tiles")
    grid = mosaic.reshape(height // 32, 32, width // 32, 32, 3)
    return grid.transpose(0, 2, 4, 1, 3).reshape(-1, 3, 32, 32)


READERS: dict[str, Callable[[Path], PixelArrays]] = {  # by the name of the file or folder that shows which form it is
    "cifar-10-batches-py": lambda path: python_version(Folder(path.parent)),
    "cifar-10-batches-bin": lambda path: binary_version(Folder(path.parent)),
    "cifar-10-python.tar.gz": lambda path: python_version(checked_tar(path)),
    "cifar-10-binary.tar.gz": lambda path: binary_version(checked_tar(path)),
    "cifar10.npz": one_npz,
    MOSAICS[0]: lambda path: mosaics(path.parent),
}

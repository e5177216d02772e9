"""The two small data sets of the demo: scikit-learn's digits and Fashion-MNIST, as tensors."""

from __future__ import annotations

import gzip
import hashlib
import http.client
import os
import urllib.request
import zlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from ..errors import EmaisError

SPLIT_SEED = 0  # of the permutation that splits the digits into training and test
FMNIST_ADDRESS = "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com"
FMNIST_PACKAGE = "dataset-fashion-mnist"
FMNIST_PACKAGED = Path("/usr/share/datasets/fashion-mnist")  # where Debian's package puts the files
FMNIST_SHA256 = {  # of the idx content, not of its gzip wrapping, which differs from source to source
    "train-images-idx3-ubyte": "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
    "train-labels-idx1-ubyte": "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
    "t10k-images-idx3-ubyte": "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
    "t10k-labels-idx1-ubyte": "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
}


@dataclass(frozen=True, eq=False)
class Data:
    """Images as float32 in [0, 1], (n, 1, h, w), and labels as int64, (n,)."""

    name: str
    x_train: Tensor
    y_train: Tensor
    x_test: Tensor
    y_test: Tensor
    num_classes: int


def load(name: str, folder: Path | str | None = None) -> Data:
    """Load `digits` or `fmnist`; `folder` is where to look first for Fashion-MNIST's files."""
    if name == "digits":
        return load_digits()
    if name == "fmnist":
        return load_fmnist(None if folder is None else Path(folder))
    raise EmaisError(f"unknown data set {name!r}: there are digits and fmnist")


def load_digits() -> Data:
    """1797 images of 8x8 that come with scikit-learn; a fixed 80 % of them train, the other 20 % test."""
    try:
        from sklearn import datasets
    except ImportError as error:
        raise EmaisError(
            "the digits data come with scikit-learn, which is not installed: pip install 'emais[demo]'"
        ) from error
    bunch = datasets.load_digits()
    x = torch.from_numpy(bunch.images).float().div(16).unsqueeze(1)
    y = torch.from_numpy(bunch.target).long()
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(SPLIT_SEED))
    train, test = order[: len(x) * 4 // 5], order[len(x) * 4 // 5 :]
    return Data("digits", x[train], y[train], x[test], y[test], 10)


def load_fmnist(folder: Path | None = None) -> Data:
    """Fashion-MNIST: 60000 training and 10000 test images of 28x28, found on this machine or downloaded."""
    places = fmnist_places(folder)
    home = next((place for place in places if all(locate(place, name) for name in FMNIST_SHA256)), None)
    if home is None:
        home = download_fmnist(places)
    x_train, y_train, x_test, y_test = (read_fmnist(home, name) for name in FMNIST_SHA256)
    x_train, x_test = (x.unsqueeze(1).float().div_(255) for x in (x_train, x_test))
    return Data("fmnist", x_train, y_train.long(), x_test, y_test.long(), 10)


def fmnist_places(folder: Path | None) -> list[Path]:
    """The folders to look into, in this order."""
    places = [] if folder is None else [folder]
    if os.environ.get("EMAIS_DATA"):
        places.append(Path(os.environ["EMAIS_DATA"]) / "fashion-mnist")
    return [*places, Path("data/fashion-mnist"), FMNIST_PACKAGED]


def locate(folder: Path, name: str) -> Path | None:
    """The file of this name in a folder, gzipped or plain; None where there is neither."""
    return next((path for path in (folder / f"{name}.gz", folder / name) if path.is_file()), None)


def read_fmnist(folder: Path, name: str) -> Tensor:
    """One of the four files, checked against its known sum."""
    path = locate(folder, name)
    assert path is not None
    raw = unpack(path.read_bytes(), path)
    if hashlib.sha256(raw).hexdigest() != FMNIST_SHA256[name]:
        raise EmaisError(f"{path} is not Fashion-MNIST's {name}: its sha256 differs; remove the file and try again")
    return parse_idx(raw, path)


def unpack(content: bytes, path: Path) -> bytes:
    """The idx bytes of a file, whether it is gzipped or not."""
    if content[:2] != b"\x1f\x8b":
        return content
    try:
        return gzip.decompress(content)
    except (OSError, EOFError, zlib.error) as error:
        raise EmaisError(f"{path} is damaged ({error}): remove the file and try again") from error


def parse_idx(raw: bytes, path: Path) -> Tensor:
    """The uint8 array in an idx file: two zero bytes, type 8, number of dimensions, sizes (big endian), values."""
    if len(raw) < 4 or raw[:3] != b"\0\0\x08" or len(raw) < 4 + 4 * raw[3]:
        raise EmaisError(f"{path} is not an idx file of bytes: it begins with {raw[:4].hex(' ') or 'nothing'}")
    shape = np.frombuffer(raw, dtype=">u4", count=raw[3], offset=4).astype(int).tolist()
    values = np.frombuffer(raw, dtype=np.uint8, offset=4 + 4 * raw[3])
    if len(values) != np.prod(shape, dtype=np.int64):
        raise EmaisError(f"{path} should hold {'x'.join(map(str, shape))} bytes of values, it holds {len(values)}")
    return torch.from_numpy(values.reshape(shape).copy())


def download_fmnist(places: list[Path], folder: Path = Path("data/fashion-mnist")) -> Path:
    """Fetch the files that `folder` lacks from the publisher, verify each, and return the folder."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name in FMNIST_SHA256:
            if locate(folder, name) is None:
                fetch(f"{FMNIST_ADDRESS}/{name}.gz", folder / f"{name}.gz", FMNIST_SHA256[name])
    except (OSError, http.client.HTTPException, EmaisError) as error:
        looked = ", ".join(map(str, places))
        raise EmaisError(
            f"Fashion-MNIST is in none of {looked}, and the download from {FMNIST_ADDRESS} failed ({error}): on "
            f"Debian run apt-get install {FMNIST_PACKAGE}, or put the four files {', '.join(FMNIST_SHA256)} "
            "(plain or .gz) into one of these folders"
        ) from error
    return folder


def fetch(address: str, path: Path, sha256: str) -> None:
    """Download one gzipped file; it gets its name only once its content has been verified."""
    with urllib.request.urlopen(address, timeout=30) as answer:
        content = answer.read()
    if hashlib.sha256(unpack(content, path)).hexdigest() != sha256:
        raise EmaisError(f"what came for {path.name} has another sha256")
    part = path.with_suffix(".part")
    part.write_bytes(content)
    part.replace(path)

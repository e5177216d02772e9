"""Fashion-MNIST: four idx files, found on this machine or downloaded, and checked."""

from __future__ import annotations

import gzip
import hashlib
import http.client
import urllib.request
import zlib
from pathlib import Path

import numpy as np

from ...errors import EmaisError
from .base import PARTS, Bytes, Data
from .places import OPTION, missing, places

ADDRESS = "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com"
PACKAGE = "dataset-fashion-mnist"
PACKAGED = Path("/usr/share/datasets/fashion-mnist")  # where Debian's package puts the files
SHA256 = {  # of the idx content, not of its gzip wrapping, which differs from source to source; in the order of PARTS
    "train-images-idx3-ubyte": "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
    "train-labels-idx1-ubyte": "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
    "t10k-images-idx3-ubyte": "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
    "t10k-labels-idx1-ubyte": "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
}
CLASSES = (
    "T-shirt/top", "trouser", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "ankle boot",
)  # fmt: skip


def load_fmnist(folder: Path | str | None = None) -> Data:
    """Fashion-MNIST: 60000 training and 10000 test images of 28x28.

    folder: holds the four files. By default Debian's place is looked at, too, and then they are downloaded. They are
    not cached: unpacking takes less than a second.
    """
    looked = [*places(folder, ("fashion-mnist",)), *([PACKAGED] if folder is None else [])]
    home = next((place for place in looked if all(locate(place, name) for name in SHA256)), None)
    if home is None and folder is not None:
        raise missing("Fashion-MNIST", looked, ADDRESS, f"all of {', '.join(SHA256)}, plain or .gz")
    if home is None:
        home = download(looked)
    arrays = {part: read_idx(home, name) for part, name in zip(PARTS, SHA256, strict=True)}
    images = {part: arrays[part][:, None] for part in ("x_train", "x_test")}
    return Data.of("fmnist", "Fashion-MNIST", CLASSES, arrays | images)


def locate(folder: Path, name: str) -> Path | None:
    """The file of this name in a folder, gzipped or plain; None where there is neither."""
    return next((path for path in (folder / f"{name}.gz", folder / name) if path.is_file()), None)


def read_idx(folder: Path, name: str) -> Bytes:
    """One of the four files, checked against its known sum."""
    path = locate(folder, name)
    assert path is not None
    raw = unpack(path.read_bytes(), path)
    if hashlib.sha256(raw).hexdigest() != SHA256[name]:
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


def parse_idx(raw: bytes, path: Path) -> Bytes:
    """The uint8 array in an idx file: two zero bytes, type 8, number of dimensions, sizes (big endian), values."""
    if len(raw) < 4 or raw[:3] != b"\0\0\x08" or len(raw) < 4 + 4 * raw[3]:
        raise EmaisError(f"{path} is not an idx file of bytes: it begins with {raw[:4].hex(' ') or 'nothing'}")
    shape = np.frombuffer(raw, dtype=">u4", count=raw[3], offset=4).astype(int).tolist()
    values = np.frombuffer(raw, dtype=np.uint8, offset=4 + 4 * raw[3])
    if len(values) != np.prod(shape, dtype=np.int64):
        raise EmaisError(f"{path} should hold {'x'.join(map(str, shape))} bytes of values, it holds {len(values)}")
    return values.reshape(shape).copy()


def download(looked: list[Path], folder: Path = Path("data/fashion-mnist")) -> Path:
    """Fetch the files that `folder` lacks from the publisher, verify each, and return the folder."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name in SHA256:
            if locate(folder, name) is None:
                fetch(f"{ADDRESS}/{name}.gz", folder / f"{name}.gz", SHA256[name])
    except (OSError, http.client.HTTPException, EmaisError) as error:
        where = ", ".join(map(str, looked))
        raise EmaisError(
            f"Fashion-MNIST is in none of {where}, and the download from {ADDRESS} failed ({error}): on "
            f"Debian run apt-get install {PACKAGE}, or put the four files {', '.join(SHA256)} "
            f"(plain or .gz) into one of these folders, or give another ({OPTION})"
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

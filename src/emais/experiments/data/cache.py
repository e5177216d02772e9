"""Decode once: arrays are kept in one file, under a name that changes with everything that they depend on."""

from __future__ import annotations

import hashlib
import json
import warnings
import zipfile
import zlib
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path

import numpy as np

from ..files import replaced
from .base import PARTS, PixelArrays
from .places import cache_folders
from .sources import Source

CACHE_VERSION = 1  # of how the data are decoded and stored: raise it whenever that changes


def cached(name: str, settings: Mapping[str, object], make: Callable[[], PixelArrays]) -> PixelArrays:
    """What `make` returns: read from a cache folder if it is there and intact, made and kept otherwise."""
    file = file_name(name, settings)
    for folder in cache_folders():
        kept = read_kept(folder / file)
        if kept is not None:
            return kept
    arrays = make()
    keep(file, arrays)
    return arrays


def file_name(name: str, settings: Mapping[str, object]) -> str:
    """The cache file of a data set with these settings.

    >>> file_name("digits", {"size": 8}) == file_name("digits", {"size": 9})
    False
    """
    key = json.dumps([CACHE_VERSION, name, settings], sort_keys=True)
    return f"{name}-{hashlib.sha256(key.encode()).hexdigest()[:16]}.npz"


def stamps(source: Source, names: Iterable[str]) -> str:
    """A hash of names and stamps of files, for the settings: a file that was exchanged makes the data another set."""
    return hashlib.sha256(json.dumps([(name, source.stamp(name)) for name in names]).encode()).hexdigest()


def read_kept(path: Path) -> PixelArrays | None:
    """The arrays in a cache file; None where there is none or it is damaged (every array in it has a CRC)."""
    try:
        with path.open("rb") as file, np.load(file) as stored:
            arrays = {part: stored[part] for part in PARTS}
    except (OSError, ValueError, TypeError, KeyError, EOFError, NotImplementedError, zipfile.BadZipFile, zlib.error):
        return None
    return arrays if all(array.dtype == np.uint8 for array in arrays.values()) else None


def keep(file: str, arrays: PixelArrays) -> None:
    """Write the arrays to the first cache folder that takes them; the file has its name only when it is complete."""
    problems = []
    for folder in cache_folders():
        try:
            folder.mkdir(parents=True, exist_ok=True)
            replaced(folder / file, partial(write, arrays=arrays))
            return
        except OSError as error:
            problems.append(f"{folder}: {error.strerror or error}")
    warnings.warn(
        f"decoded data could not be kept, so they are decoded again next time ({'; '.join(problems)}); "
        "set EMAIS_DATA to a folder that can be written",
        stacklevel=3,
    )


def write(path: Path, arrays: PixelArrays) -> None:
    """An uncompressed .npz, which is read at the speed of the disk."""
    with path.open("wb") as file:
        x_train, y_train, x_test, y_test = (arrays[part] for part in PARTS)
        np.savez(file, x_train=x_train, y_train=y_train, x_test=x_test, y_test=y_test)

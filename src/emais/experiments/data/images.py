"""Image files to uint8 arrays, through Pillow, which is imported only here and only when it is needed."""

from __future__ import annotations

import io
import os
import zlib
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import numpy as np

from ...errors import EmaisError
from ..progress import ProgressLine
from .base import Bytes

if TYPE_CHECKING:
    from PIL.Image import Image

EIGHT_BIT = ("1", "L", "LA", "P", "PA", "RGB", "RGBA")  # modes that convert to grey or RGB without losing range
DECODED_AT_ONCE = 128  # images a thread decodes before it reports


def opened(content: bytes, where: str, mode: str) -> Image:
    """The decoded image in a file's bytes, converted to a mode of Pillow's: "L" for grey, "RGB" for colour."""
    try:
        from PIL import Image, UnidentifiedImageError
    except ImportError as error:
        raise EmaisError(
            "image files are decoded with Pillow, which is not installed: pip install 'emais[experiments]'"
        ) from error
    try:
        with Image.open(io.BytesIO(content)) as image:
            if image.mode not in EIGHT_BIT:
                raise EmaisError(f"{where} is an image of mode {image.mode}; images of 8 bits a channel are expected")
            return image.convert(mode)
    except EmaisError:
        raise
    except UnidentifiedImageError as error:  # its message names an object in memory
        raise EmaisError(f"{where} is damaged or no image (its format is not known): get it again") from error
    except (OSError, SyntaxError, ValueError, EOFError, zlib.error) as error:  # all that Pillow raises for bad files
        raise EmaisError(f"{where} is damaged or no image ({error}): get it again") from error


def rgb(content: bytes, where: str) -> Bytes:
    """(height, width, 3), from colour or grey."""
    return np.asarray(opened(content, where, "RGB"))


def rgb_of_size(content: bytes, where: str, size: int) -> Bytes:
    """(3, size, size); an image of any other size is refused."""
    pixels = rgb(content, where)
    if pixels.shape[:2] != (size, size):
        raise EmaisError(f"{where} is {pixels.shape[1]}x{pixels.shape[0]} pixels, expected {size}x{size}")
    return pixels.transpose(2, 0, 1)


def grey_resized(content: bytes, where: str, size: int) -> Bytes:
    """(1, size, size), from grey or colour, shrunk with every source pixel counted; it has to be square."""
    image = opened(content, where, "L")
    if image.width != image.height:
        raise EmaisError(f"{where} is {image.width}x{image.height} pixels, expected a square image")
    if image.width != size:
        from PIL.Image import Resampling

        image = image.resize((size, size), Resampling.BILINEAR)
    return np.asarray(image)[None]


def decode_all(names: Sequence[str], decode: Callable[[str], Bytes], shape: Sequence[int], title: str) -> Bytes:
    """One array of all images, decoded by a few threads (Pillow lets them run side by side), with a progress line."""
    out = np.empty((len(names), *shape), dtype=np.uint8)

    def fill(start: int) -> int:
        part = names[start : start + DECODED_AT_ONCE]
        for k, name in enumerate(part, start):
            out[k] = decode(name)
        return len(part)

    threads = min(8, os.cpu_count() or 1)
    with ProgressLine(len(names), total_runs=0, unit="images") as progress, ThreadPoolExecutor(threads) as pool:
        progress.begin_run(f"decoding {title}")
        for done in pool.map(fill, range(0, len(names), DECODED_AT_ONCE)):
            progress.advance(done)
    return out

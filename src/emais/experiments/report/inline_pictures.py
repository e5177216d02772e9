"""Pictures as a page holds them: written into it, so that nothing is fetched."""

from __future__ import annotations

import base64
import struct
import zlib
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ...errors import EmaisError

OVERSHOOT = 1e-3  # outside of 0 to 1: less than half of a step of uint8
# how the kinds of picture begin
BEGINNINGS = {
    b"\x89PNG\r\n\x1a\n": "image/png",
    b"\xff\xd8\xff": "image/jpeg",
    b"GIF8": "image/gif",
    b"<svg": "image/svg+xml",
    b"<?xml": "image/svg+xml",
}


def data_uri(picture: bytes) -> str:
    """A PNG, JPEG, GIF, WebP or SVG file as an address. In an <img> an SVG runs no script and loads nothing.

    >>> data_uri(b"<svg/>")
    'data:image/svg+xml;base64,PHN2Zy8+'
    """
    start = picture[:64].lstrip()
    kinds = [kind for beginning, kind in BEGINNINGS.items() if start.startswith(beginning)]
    if picture[:4] == b"RIFF" and picture[8:12] == b"WEBP":
        kinds.append("image/webp")
    if not kinds:
        raise EmaisError(
            f"a picture must be a PNG, JPEG, GIF, WebP or SVG file as bytes, got {picture[:12]!r}...: give text as str"
        )
    return f"data:{kinds[0]};base64,{base64.b64encode(picture).decode('ascii')}"


def png(image: Tensor | NDArray[Any]) -> bytes:
    """A PNG file of an image: a tensor (H, W), (1, H, W) or (3, H, W), or an array (H, W), (H, W, 1) or (H, W, 3).

    uint8 is from 0 to 255, floats are from 0 to 1; others are refused.

    >>> png(torch.zeros(2, 2))[:4]
    b'\x89PNG'
    """
    if isinstance(image, np.ndarray):
        image = from_array(image)
    grey_or_colour = image.dim() == 2 or (image.dim() == 3 and image.shape[0] in (1, 3))
    if not grey_or_colour or not image.numel() or image.is_complex():
        raise EmaisError(f"an image must be (H, W), (1, H, W) or (3, H, W), got {tuple(image.shape)}")
    pixels = image.detach().cpu()
    if pixels.is_floating_point():
        pixels = checked_floats(pixels.float()).mul(255).round()
    pixels = pixels.clamp(0, 255).to(torch.uint8)
    pixels = pixels[None] if pixels.dim() == 2 else pixels
    channels, height, width = pixels.shape
    rows = pixels.permute(1, 2, 0).reshape(height, width * channels)
    lines = torch.cat((torch.zeros(height, 1, dtype=torch.uint8), rows), 1)  # each begins with its filter: none
    head = struct.pack(">IIBBBBB", width, height, 8, 0 if channels == 1 else 2, 0, 0, 0)
    data = zlib.compress(lines.numpy().tobytes(), 9)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", data) + chunk(b"IEND", b"")


def checked_floats(pixels: Tensor) -> Tensor:
    """The image, if all of it is from 0 to 1, as far as rounding lets it."""
    low, high = pixels.aminmax()  # NaN if there is one
    if not (low >= -OVERSHOOT and high <= 1 + OVERSHOOT):
        raise EmaisError(
            f"an image of floats must be from 0 to 1, got {float(low):g} to {float(high):g}: divide by 255 or give "
            "uint8 if it is from 0 to 255, and undo a normalisation by mean and deviation"
        )
    return pixels.clamp(0, 1)


def from_array(image: NDArray[Any]) -> Tensor:
    """An image of numpy, whose channels come last, as a tensor, whose channels come first.

    >>> from_array(np.zeros((4, 5, 3))).shape
    torch.Size([3, 4, 5])
    """
    if image.dtype.kind not in "uifb" or not (image.ndim == 2 or (image.ndim == 3 and image.shape[2] in (1, 3))):
        raise EmaisError(
            f"an image of numpy must be (H, W), (H, W, 1) or (H, W, 3), of uint8 or floats, got {image.shape} of "
            f"{image.dtype}"
        )
    kind = image.astype(np.float32 if image.dtype.kind == "f" else np.int64)  # a copy: torch takes no big-endian
    return torch.from_numpy(np.moveaxis(kind, 2, 0) if image.ndim == 3 else kind)


def chunk(kind: bytes, data: bytes) -> bytes:
    """A part of a PNG file: length, kind, data, checksum."""
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

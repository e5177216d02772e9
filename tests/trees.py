"""Small data sets in their publishers' exact layouts, for the tests of the loaders."""

from __future__ import annotations

import io
import struct
import tarfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from emais.experiments.data.chestxray14_lists import FINDINGS
from emais.experiments.data.cifar10 import CLASSES
from emais.experiments.data.cifar10_files import BATCHES


def sealed(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """Work in an empty folder: no data of this machine are found, and nothing is kept outside."""
    monkeypatch.delenv("EMAIS_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder / "user-cache"))
    monkeypatch.chdir(folder)


def put(path: Path, content: bytes | str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def png(pixels: np.ndarray, mode: str | None = None) -> bytes:
    """A PNG of these pixels, its mode as their shape says, or converted to another."""
    out, image = io.BytesIO(), Image.fromarray(pixels)
    (image.convert(mode) if mode else image).save(out, "png")
    return out.getvalue()


# ---- CIFAR-10


def text(value: bytes) -> bytes:
    """A string as Python 2 pickles it."""
    return b"U" + bytes([len(value)]) + value if len(value) < 256 else b"T" + struct.pack("<i", len(value)) + value


def number(value: int) -> bytes:
    return b"K" + bytes([value]) if 0 <= value < 256 else b"J" + struct.pack("<i", value)


def python2_batch(images: np.ndarray, labels: np.ndarray, kind: bytes = b"u1", names: bytes = b"numpy") -> bytes:
    """A batch as the publisher pickled it, with Python 2 and the numpy of its time, opcode by opcode."""
    rows = images.reshape(len(images), -1)
    build = b"c" + names + b".core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85" + text(b"b") + b"\x87R"
    dtype = b"cnumpy\ndtype\n" + text(kind) + b"K\x00K\x01\x87R(K\x03" + text(b"|") + b"NNN"
    dtype += number(-1) + number(-1) + b"K\x00tb"
    state = b"(K\x01" + b"".join(map(number, rows.shape)) + b"\x86" + dtype + b"\x89" + text(rows.tobytes()) + b"tb"
    pairs = (
        (b"batch_label", text(b"training batch 1 of 5")),
        (b"labels", b"](" + b"".join(number(int(y)) for y in labels) + b"e"),
        (b"data", build + state),
        (b"filenames", b"](" + b"".join(text(b"image_%d.png" % k) for k in range(len(rows))) + b"e"),
    )
    return b"\x80\x02}(" + b"".join(text(key) + value for key, value in pairs) + b"u."


def binary_batch(images: np.ndarray, labels: np.ndarray) -> bytes:
    return np.concatenate([labels[:, None], images.reshape(len(images), -1)], axis=1).tobytes()


def cifar(version: str, arrays: dict[str, np.ndarray]) -> dict[str, bytes]:
    """The files of the `py` or the `bin` version; a fifth of the training data goes into each training batch."""
    parts = zip(np.split(arrays["x_train"], 5), np.split(arrays["y_train"], 5), strict=True)
    batches = [*parts, (arrays["x_test"], arrays["y_test"])]
    write, ending = (python2_batch, "") if version == "py" else (binary_batch, ".bin")
    return {
        f"cifar-10-batches-{version}/{name}{ending}": write(*batch)
        for name, batch in zip(BATCHES, batches, strict=True)
    }


def packed(files: dict[str, bytes]) -> bytes:
    """A .tar.gz of these files."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as tar:
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return out.getvalue()


# ---- CINIC-10


def cinic(folder: Path, per_class: int = 2) -> Path:
    """A tree whose images hold the class in their first channel, 10 x part in their second; the first are grey."""
    for part, level in (("train", 0), ("valid", 5), ("test", 10)):
        for label, name in enumerate(CLASSES):
            for k in range(per_class):
                pixels = np.full((32, 32, 3), (label, level, k), np.uint8)
                put(folder / part / name / f"img-{k}.png", png(pixels[..., 0] if k == 0 else pixels))
    return folder


# ---- ChestX-ray14

HEADER = (
    "Image Index,Finding Labels,Follow-up #,Patient ID,Patient Age,Patient Gender,View Position,"
    "OriginalImage[Width,Height],OriginalImagePixelSpacing[x,y]"
)
CHEST = {  # image: (findings, level of grey)
    "00000001_000.png": ("Cardiomegaly", 10),
    "00000001_001.png": ("Cardiomegaly|Emphysema", 20),
    "00000002_000.png": ("No Finding", 30),
    "00000003_000.png": ("Hernia|" + FINDINGS[0], 40),
    "00000004_000.png": ("Pleural_Thickening", 50),
}


def chest(folders: tuple[str, ...] = ("images",), table: str = "Data_Entry_2017_v2020.csv") -> dict[str, bytes]:
    """Names and contents of NIH's layout, the images dealt out to the folders; the second is RGBA, the third RGB."""
    rows = [HEADER]
    files = {}
    for k, (name, (findings, level)) in enumerate(CHEST.items()):
        rows.append(f"{name},{findings},0,{int(name[:8])},58,M,PA,2682,2749,0.143,0.143")
        mode = {1: "RGBA", 2: "RGB"}.get(k)
        files[f"{folders[k % len(folders)]}/{name}"] = png(np.full((100, 100), level, np.uint8), mode)
    names = list(CHEST)
    files[table] = "\r\n".join(rows).encode()
    files["train_val_list.txt"] = "\n".join(names[:3]).encode()
    files["test_list.txt"] = ("\n".join(names[3:]) + "\n").encode()
    return files

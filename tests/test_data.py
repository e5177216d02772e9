"""The data of the demo: shapes, the fixed split, idx files from every place, and what is said when they are missing."""

from __future__ import annotations

import gzip
import hashlib
import struct
import sys
import urllib.error
from pathlib import Path

import numpy as np
import pytest
import torch

from emais import EmaisError
from emais.experiments import data
from emais.experiments.data import load

NAMES = tuple(data.FMNIST_SHA256)


def idx(values: np.ndarray) -> bytes:
    return bytes((0, 0, 8, values.ndim)) + struct.pack(f">{values.ndim}I", *values.shape) + values.tobytes()


@pytest.fixture
def contents(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> dict[str, bytes]:
    """A tiny Fashion-MNIST whose sums are the expected ones; no place that is looked at holds it yet."""
    rng = np.random.default_rng(0)
    shapes = ((6, 28, 28), (6,), (4, 28, 28), (4,))
    made = {n: idx(rng.integers(0, 10, s).astype(np.uint8)) for n, s in zip(NAMES, shapes, strict=True)}
    monkeypatch.setattr(data, "FMNIST_SHA256", {n: hashlib.sha256(raw).hexdigest() for n, raw in made.items()})
    monkeypatch.setattr(data, "FMNIST_PACKAGED", tmp_path / "packaged")
    monkeypatch.setattr(data, "FMNIST_ADDRESS", (tmp_path / "publisher").as_uri())
    monkeypatch.delenv("EMAIS_DATA", raising=False)
    monkeypatch.chdir(tmp_path)
    return made


def put(folder: Path, contents: dict[str, bytes], zipped: bool = True) -> Path:
    folder.mkdir(parents=True)
    for name, raw in contents.items():
        (folder / f"{name}{'.gz' if zipped else ''}").write_bytes(gzip.compress(raw) if zipped else raw)
    return folder


def test_digits() -> None:
    d = load("digits")
    assert (d.name, d.num_classes) == ("digits", 10)
    assert (tuple(d.x_train.shape), tuple(d.x_test.shape)) == ((1437, 1, 8, 8), (360, 1, 8, 8))
    assert (d.x_train.dtype, d.y_train.dtype) == (torch.float32, torch.int64)
    assert (d.x_train.min(), d.x_train.max()) == (0, 1)
    assert sorted(d.y_test.unique().tolist()) == list(range(10))
    assert torch.equal(load("digits").x_test, d.x_test)  # the split is fixed


def test_digits_need_scikit_learn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sklearn", None)
    with pytest.raises(EmaisError, match=r"pip install 'emais\[demo\]'"):
        load("digits")


def test_unknown_name() -> None:
    with pytest.raises(EmaisError, match="'mnist'"):
        load("mnist")


@pytest.mark.parametrize("zipped", [True, False])
@pytest.mark.parametrize("place", ["given", "variable", "here", "packaged", "publisher"])
def test_fmnist_is_found(
    place: str, zipped: bool, contents: dict[str, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folders = {"variable": "env/fashion-mnist", "here": "data/fashion-mnist"}
    home = put(tmp_path / folders.get(place, place), contents, zipped or place == "publisher")
    monkeypatch.setenv("EMAIS_DATA", str(tmp_path / "env"))
    d = load("fmnist", home if place == "given" else None)
    assert (tuple(d.x_train.shape), tuple(d.x_test.shape)) == ((6, 1, 28, 28), (4, 1, 28, 28))
    raw = np.frombuffer(contents[NAMES[0]], dtype=np.uint8, offset=16)
    assert np.array_equal((d.x_train * 255).round().numpy().ravel(), raw)
    assert d.y_test.tolist() == list(contents[NAMES[3]][8:])
    assert d.y_test.dtype == torch.int64
    if place == "publisher":  # kept for the next time
        assert sorted(p.name for p in (tmp_path / "data/fashion-mnist").iterdir()) == sorted(f"{n}.gz" for n in NAMES)


@pytest.mark.parametrize("damage", ["other content", "cut gzip"])
def test_corrupted_file_is_refused_by_name(damage: str, contents: dict[str, bytes], tmp_path: Path) -> None:
    path = put(tmp_path / "given", contents) / f"{NAMES[1]}.gz"
    other = gzip.compress(contents[NAMES[1]][:-1] + b"\xff")
    path.write_bytes(other if damage == "other content" else path.read_bytes()[:-9])
    with pytest.raises(EmaisError, match=str(path)):
        load("fmnist", tmp_path / "given")


def test_missing_data_names_every_way_out(contents: dict[str, bytes], tmp_path: Path) -> None:
    with pytest.raises(EmaisError) as caught:
        load("fmnist", tmp_path / "given")
    places = (tmp_path / "given", "data/fashion-mnist", data.FMNIST_PACKAGED, "dataset-fashion-mnist")
    for place in (*places, data.FMNIST_ADDRESS, NAMES[0]):
        assert str(place) in str(caught.value)
    assert isinstance(caught.value.__cause__, urllib.error.URLError)


def test_wrong_download_is_not_kept(contents: dict[str, bytes], tmp_path: Path) -> None:
    put(tmp_path / "publisher", {name: raw + b"!" for name, raw in contents.items()})
    with pytest.raises(EmaisError, match="sha256"):
        load("fmnist")
    assert list((tmp_path / "data/fashion-mnist").iterdir()) == []


@pytest.mark.parametrize("raw", [b"", b"\0\0\x08", b"\0\0\x0d\x01\0\0\0\x01!", b"\0\0\x08\x02\0\0\0\x01"])
def test_not_an_idx_file(raw: bytes) -> None:
    with pytest.raises(EmaisError, match="not an idx file"):
        data.parse_idx(raw, Path("some-file"))


def test_idx_with_too_few_values() -> None:
    whole = idx(np.zeros((2, 3), dtype=np.uint8))
    assert data.parse_idx(whole, Path("some-file")).shape == (2, 3)
    with pytest.raises(EmaisError, match="2x3 bytes of values, it holds 5"):
        data.parse_idx(whole[:-1], Path("some-file"))

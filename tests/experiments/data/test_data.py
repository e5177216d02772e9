"""The one entry and the demo's data: the fixed split, idx files from every place, what is said when they are missing;
and the real data, where they are at hand."""

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
from emais.experiments.data import DATA_NAMES, Data, fmnist, load

FILES = tuple(fmnist.SHA256)


def idx(values: np.ndarray) -> bytes:
    return bytes((0, 0, 8, values.ndim)) + struct.pack(f">{values.ndim}I", *values.shape) + values.tobytes()


@pytest.fixture
def contents(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> dict[str, bytes]:
    """A tiny Fashion-MNIST whose sums are the expected ones; no place that is looked at holds it yet."""
    rng = np.random.default_rng(0)
    shapes = ((6, 28, 28), (6,), (4, 28, 28), (4,))
    made = {n: idx(rng.integers(0, 10, s).astype(np.uint8)) for n, s in zip(FILES, shapes, strict=True)}
    monkeypatch.setattr(fmnist, "SHA256", {n: hashlib.sha256(raw).hexdigest() for n, raw in made.items()})
    monkeypatch.setattr(fmnist, "PACKAGED", tmp_path / "packaged")
    monkeypatch.setattr(fmnist, "ADDRESS", (tmp_path / "publisher").as_uri())
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
    assert (d.x_train.dtype, d.y_train.dtype, d.multi_label) == (torch.uint8, torch.int64, False)
    assert (d.x_train.min(), d.x_train.max(), d.white) == (0, 16, 16)
    assert sorted(d.y_test.unique().tolist()) == list(range(10))
    assert torch.equal(load("digits").x_test, d.x_test)  # the split is fixed


def test_digits_need_scikit_learn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sklearn", None)
    with pytest.raises(EmaisError, match=r"pip install 'emais\[demo\]'"):
        load("digits")


def test_unknown_names() -> None:
    with pytest.raises(EmaisError, match=f"'mnist': there are {', '.join(DATA_NAMES)}"):
        load("mnist")
    with pytest.raises(EmaisError, match=r"chestxray14 takes no 'sise': it takes .*did you mean 'size'"):
        load("chestxray14", sise=64)


def test_scaled() -> None:
    d = load("digits")
    images = d.scaled(d.x_test)
    assert images.dtype == torch.float32
    assert torch.equal(images * 16, d.x_test.float())
    assert d.scaled(images[:0]).shape == (0, 1, 8, 8)
    before = images.clone()
    d.scaled(images)
    assert torch.equal(images, before)  # never in place


@pytest.mark.parametrize("zipped", [True, False])
@pytest.mark.parametrize("place", ["given", "variable", "here", "packaged", "publisher"])
def test_fmnist_is_found(
    place: str, zipped: bool, contents: dict[str, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folders = {"variable": "env/fashion-mnist", "here": "data/fashion-mnist"}
    home = put(tmp_path / folders.get(place, place), contents, zipped or place == "publisher")
    (tmp_path / "env").mkdir(exist_ok=True)
    monkeypatch.setenv("EMAIS_DATA", str(tmp_path / "env"))
    d = load("fmnist", home if place == "given" else None)
    assert (tuple(d.x_train.shape), tuple(d.x_test.shape)) == ((6, 1, 28, 28), (4, 1, 28, 28))
    raw = np.frombuffer(contents[FILES[0]], dtype=np.uint8, offset=16)
    assert np.array_equal(d.x_train.numpy().ravel(), raw)
    assert d.y_test.tolist() == list(contents[FILES[3]][8:])
    assert d.y_test.dtype == torch.int64
    if place == "publisher":  # kept for the next time
        assert sorted(p.name for p in (tmp_path / "data/fashion-mnist").iterdir()) == sorted(f"{n}.gz" for n in FILES)


@pytest.mark.parametrize("damage", ["other content", "cut gzip"])
def test_corrupted_file_is_refused_by_name(damage: str, contents: dict[str, bytes], tmp_path: Path) -> None:
    path = put(tmp_path / "given", contents) / f"{FILES[1]}.gz"
    other = gzip.compress(contents[FILES[1]][:-1] + b"\xff")
    path.write_bytes(other if damage == "other content" else path.read_bytes()[:-9])
    with pytest.raises(EmaisError, match=str(path)):
        load("fmnist", tmp_path / "given")


def test_missing_data_names_every_way_out(contents: dict[str, bytes], tmp_path: Path) -> None:
    with pytest.raises(EmaisError) as caught:
        load("fmnist")
    places = ("data/fashion-mnist", fmnist.PACKAGED, "dataset-fashion-mnist", "--folder DIR")
    for place in (*places, fmnist.ADDRESS, FILES[0]):
        assert str(place) in str(caught.value)
    assert isinstance(caught.value.__cause__, urllib.error.URLError)


@pytest.mark.parametrize("there", [0, 2])
def test_a_given_folder_must_hold_the_data(there: int, contents: dict[str, bytes], tmp_path: Path) -> None:
    """Even where they are in another place, too."""
    put(fmnist.PACKAGED, contents)
    given = put(tmp_path / "given", dict(list(contents.items())[:there]))
    message = (
        f"Fashion-MNIST was not found: looked in {given}, {given}/fashion-mnist. .*--folder DIR.* all of {FILES[0]}"
    )
    with pytest.raises(EmaisError, match=message):
        load("fmnist", given)
    put(given / "fashion-mnist", contents)
    assert len(load("fmnist", given).x_train) == 6


@pytest.mark.parametrize("name", DATA_NAMES)
def test_a_given_folder_must_exist(name: str, tmp_path: Path) -> None:
    with pytest.raises(EmaisError, match=r"nowhere does not exist: .*--folder DIR"):
        load(name, tmp_path / "nowhere")


@pytest.mark.parametrize("name", [name for name in DATA_NAMES if name != "digits"])
def test_the_folder_of_the_variable_must_exist(
    name: str, contents: dict[str, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(fmnist.PACKAGED, contents)
    monkeypatch.setenv("EMAIS_DATA", str(tmp_path / "nowhere"))
    with pytest.raises(EmaisError, match=r"EMAIS_DATA is set to .*nowhere, which does not exist"):
        load(name)
    load("digits")  # come with a package


@pytest.mark.parametrize("name", [name for name in DATA_NAMES if name not in ("digits", "fmnist")])
def test_what_is_missing_names_the_option(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("EMAIS_DATA", raising=False)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(EmaisError, match=r"was not found: .*--folder DIR"):
        load(name)


def test_wrong_download_is_not_kept(contents: dict[str, bytes], tmp_path: Path) -> None:
    put(tmp_path / "publisher", {name: raw + b"!" for name, raw in contents.items()})
    with pytest.raises(EmaisError, match="sha256"):
        load("fmnist")
    assert list((tmp_path / "data/fashion-mnist").iterdir()) == []


@pytest.mark.parametrize("raw", [b"", b"\0\0\x08", b"\0\0\x0d\x01\0\0\0\x01!", b"\0\0\x08\x02\0\0\0\x01"])
def test_not_an_idx_file(raw: bytes) -> None:
    with pytest.raises(EmaisError, match="not an idx file"):
        fmnist.parse_idx(raw, Path("some-file"))


def test_idx_with_too_few_values() -> None:
    whole = idx(np.zeros((2, 3), dtype=np.uint8))
    assert fmnist.parse_idx(whole, Path("some-file")).shape == (2, 3)
    with pytest.raises(EmaisError, match="2x3 bytes of values, it holds 5"):
        fmnist.parse_idx(whole[:-1], Path("some-file"))


# ---- the real data, where they are in $EMAIS_DATA or ./data


def real(name: str) -> Data:
    try:
        return load(name)
    except EmaisError as error:
        if "was not found" not in str(error):
            raise
        pytest.skip(str(error))


def test_real_cifar10() -> None:
    d = real("cifar10")  # its counts and sums are checked on the way
    assert (tuple(d.x_train.shape), tuple(d.x_test.shape)) == ((50000, 3, 32, 32), (10000, 3, 32, 32))
    assert d.y_train[:10].tolist() == [6, 9, 9, 4, 1, 1, 2, 7, 8, 3]


def test_real_cinic10() -> None:
    d = real("cinic10")
    assert d.x_train.shape == d.x_test.shape == (90000, 3, 32, 32)


def test_real_chestxray14() -> None:
    d = real("chestxray14")
    assert d.x_train.shape[1:] == (1, 80, 80)
    assert 100 < d.x_train.float().mean() < 150
    if len(d.x_train) == 3954:  # the subset of the first 4,999 images
        counts = {name: (int(d.y_train[:, k].sum()), int(d.y_test[:, k].sum())) for k, name in enumerate(d.classes)}
        assert (counts["Hernia"], counts["Pneumonia"]) == ((17, 10), (53, 12))
        assert d.title == "ChestX-ray14 (subset of 4,999 images)"
        assert len(d.x_test) == 1045
        assert f"{100 * float(d.y_test.float().mean()):.1f}" == "5.4"  # mAP of guessing, which docs/results.md gives

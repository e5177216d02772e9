"""Decoded once: what is kept, when it is made again, and where it goes; Pillow only where it is needed."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
import trees

from emais import EmaisError
from emais.experiments.data import cache, images, load
from emais.experiments.data.places import cache_folders, places


@pytest.fixture(autouse=True)
def _sealed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    trees.sealed(monkeypatch, tmp_path)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    for name, content in trees.chest().items():
        trees.put(tmp_path / "given" / name, content)
    return tmp_path / "given"


@pytest.fixture
def decoded(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The titles of the data sets that were decoded, not read from a cache."""
    titles: list[str] = []
    original = images.decode_all
    for module in ("chestxray14", "cinic10"):
        monkeypatch.setattr(
            f"emais.experiments.data.{module}.decode_all",
            lambda *args: (titles.append(args[-1]), original(*args))[1],
        )
    return titles


def kept(folder: Path) -> list[Path]:
    return sorted(folder.iterdir())


def test_decoded_once(home: Path, decoded: list[str], tmp_path: Path) -> None:
    first, again = load("chestxray14", home), load("chestxray14", home)
    assert decoded == ["ChestX-ray14"]
    assert len(kept(tmp_path / "user-cache/emais")) == 1
    for part in ("x_train", "y_train", "x_test", "y_test"):
        one, two = getattr(first, part), getattr(again, part)
        assert torch.equal(one, two)
        assert one.dtype == two.dtype
    again.x_train.zero_()  # memory of its own


def test_every_setting_has_its_own_file(home: Path, decoded: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    assert load("chestxray14", home, size=40).x_train.shape[-1] == 40
    assert load("chestxray14", home, size=50).x_train.shape[-1] == 50
    assert load("chestxray14", home, size=40).x_train.shape[-1] == 40
    assert len(decoded) == 2
    monkeypatch.setattr(cache, "CACHE_VERSION", -1)
    load("chestxray14", home, size=40)
    assert len(decoded) == 3
    (home / "train_val_list.txt").write_text("00000002_000.png\n")
    assert len(load("chestxray14", home, size=40).x_train) == 1
    assert len(decoded) == 4


def test_another_tree_is_not_mistaken_for_the_first(tmp_path: Path, decoded: list[str]) -> None:
    for per_class in (1, 2):
        trees.cinic(tmp_path / f"of-{per_class}", per_class)
    for per_class in (1, 2, 1):
        assert len(load("cinic10", tmp_path / f"of-{per_class}", per_class=per_class).x_train) == 10 * per_class
    assert len(decoded) == 2


def test_an_exchanged_image_is_decoded_again(tmp_path: Path, home: Path, decoded: list[str]) -> None:
    image = home / "images/00000001_000.png"
    before = load("chestxray14", home).x_train[0]
    trees.put(image, trees.png(np.full((100, 100), 77, np.uint8)))
    after = load("chestxray14", home).x_train[0]
    assert (int(before.max()), int(after.min())) == (10, 77)
    tree = trees.cinic(tmp_path / "cinic", 1)
    load("cinic10", tree, per_class=1)
    trees.put(tree / "test/airplane/img-0.png", trees.png(np.full((32, 32), 77, np.uint8)))
    assert int(load("cinic10", tree, per_class=1).x_test[0].min()) == 77
    assert decoded == ["ChestX-ray14", "ChestX-ray14", "CINIC-10", "CINIC-10"]


def test_an_exchanged_image_in_a_zip_is_decoded_again(tmp_path: Path, decoded: list[str]) -> None:
    for level in (10, 77, 10):
        files = trees.chest() | {"images/00000001_000.png": trees.png(np.full((100, 100), level, np.uint8))}
        with zipfile.ZipFile(tmp_path / "chestxray14.zip", "w") as out:
            for name, content in files.items():
                out.writestr(name, content)
        assert int(load("chestxray14", tmp_path / "chestxray14.zip").x_train[0].min()) == level
    assert len(decoded) == 2  # the third is the first again


@pytest.mark.parametrize("damage", ["flip", "cut", "empty", "text", "other arrays", "other type"])
def test_damaged_file_is_made_again(damage: str, home: Path, decoded: list[str], tmp_path: Path) -> None:
    first = load("chestxray14", home)
    (path,) = kept(tmp_path / "user-cache/emais")
    whole = path.read_bytes()
    at = len(whole) // 2
    parts = dict.fromkeys(("x_train", "y_train", "x_test", "y_test"), np.zeros(3))
    if damage.startswith("other"):
        np.savez(path, **(parts if damage == "other type" else {"x_train": np.zeros(1, np.uint8)}))
    else:
        flipped = whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :]
        path.write_bytes({"flip": flipped, "cut": whole[:at], "empty": b"", "text": b"no cache"}[damage])
    assert torch.equal(load("chestxray14", home).x_train, first.x_train)
    assert len(decoded) == 2
    assert path.read_bytes() == whole
    assert kept(path.parent) == [path]


def test_where_it_is_kept(home: Path, decoded: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert cache_folders() == [tmp_path / "user-cache/emais"]
    (tmp_path / "data").mkdir()
    (tmp_path / "env").mkdir()
    monkeypatch.setenv("EMAIS_DATA", str(tmp_path / "env"))
    assert cache_folders() == [tmp_path / "env/cache", Path("data/cache"), tmp_path / "user-cache/emais"]
    load("chestxray14", home)
    assert len(kept(tmp_path / "env/cache")) == 1
    monkeypatch.delenv("EMAIS_DATA")
    (tmp_path / "env/cache").rename(tmp_path / "data/cache")  # a cache may be moved, or prepared for others
    load("chestxray14", home)
    assert len(decoded) == 1


def test_a_folder_that_cannot_be_written(
    home: Path, decoded: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trees.put(tmp_path / "data/cache", "a file where the folder should be")
    load("chestxray14", home)
    assert len(kept(tmp_path / "user-cache/emais")) == 1
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "data/cache"))
    with pytest.warns(UserWarning, match=r"could not be kept.*data/cache: .*set EMAIS_DATA"):
        assert len(load("chestxray14", home).x_train) == 3


def test_an_interrupted_write_leaves_nothing(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full_disk(path: Path, arrays: object) -> None:
        path.write_bytes(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(cache, "write", full_disk)
    with pytest.warns(UserWarning, match="No space left"):
        load("chestxray14", home)
    assert kept(tmp_path / "user-cache/emais") == []


@pytest.mark.parametrize("name", ["chestxray14", "cinic10"])
def test_a_given_folder_is_looked_into_by_name(name: str, tmp_path: Path) -> None:
    """As $EMAIS_DATA and ./data are; the folder itself comes first."""
    if name == "cinic10":
        trees.cinic(tmp_path / "all/cinic10", 1)
    for file, content in trees.chest().items():
        trees.put(tmp_path / "all/chestxray14" / file, content)
    options = {"per_class": 1} if name == "cinic10" else {}
    assert load(name, tmp_path / "all", **options).name == name
    assert places("given", ("a", "b")) == [Path("given"), Path("given/a"), Path("given/b")]


def test_pillow_is_asked_for_by_name(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(EmaisError, match=r"pip install 'emais\[experiments\]'"):
        load("chestxray14", home)


def test_nothing_optional_is_imported() -> None:
    code = "import sys, emais.experiments.data; print({'PIL', 'sklearn'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"

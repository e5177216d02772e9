"""CINIC-10 from a small tree of folders: the paper's two parts, grey images, and what is refused."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
import trees

from emais import EmaisError
from emais.experiments.data import load


@pytest.fixture(autouse=True)
def _sealed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    trees.sealed(monkeypatch, tmp_path)


@pytest.mark.parametrize("place", ["given", "data/cinic10", "data/CINIC-10", "data"])
def test_train_and_test(place: str, tmp_path: Path) -> None:
    trees.cinic(tmp_path / place)
    d = load("cinic10", tmp_path / place if place == "given" else None, per_class=2)
    assert (d.name, d.num_classes, d.multi_label) == ("cinic10", 10, False)
    assert d.title == "CINIC-10 (subset, 2 images a class)"
    assert d.x_train.shape == d.x_test.shape == (20, 3, 32, 32)
    assert (d.x_train.dtype, d.y_train.dtype) == (torch.uint8, torch.int64)
    assert d.y_train.tolist() == d.y_test.tolist() == [k // 2 for k in range(20)]
    assert torch.equal(d.x_train[:, 0, 5, 7], d.y_train)
    assert d.x_train[0::2, 1:].amax() == 9  # grey: the class in every channel
    assert d.x_train[1::2, 1].unique().tolist() == [0]
    assert d.x_test[1::2, 1].unique().tolist() == [10]  # not `valid`, whose level is 5


def test_valid_is_not_needed(tmp_path: Path) -> None:
    shutil.rmtree(trees.cinic(tmp_path / "given") / "valid")
    assert len(load("cinic10", tmp_path / "given", per_class=2).x_train) == 20


def test_wrong_counts(tmp_path: Path) -> None:
    home = trees.cinic(tmp_path / "given")
    with pytest.raises(EmaisError, match=r"train/airplane has 2 .png files, expected 9000"):
        load("cinic10", home)
    (home / "test/dog/img-1.png").unlink()
    with pytest.raises(EmaisError, match=r"test/dog has 1 .png files, expected 2"):
        load("cinic10", home, per_class=2)
    shutil.rmtree(home / "train/truck")
    with pytest.raises(EmaisError, match=r"train/truck has 0 .png files"):
        load("cinic10", home, per_class=2)
    with pytest.raises(EmaisError, match="per_class must be a whole number"):
        load("cinic10", home, per_class=0)


@pytest.mark.parametrize("lacks", ["train/airplane", "train/dog", "test/airplane", "train", "test"])
def test_an_incomplete_tree_is_recognised(lacks: str, tmp_path: Path) -> None:
    shutil.rmtree(trees.cinic(tmp_path / "given") / lacks)
    with pytest.raises(EmaisError, match=rf"{lacks}\S* has 0 .png files, expected 2"):
        load("cinic10", tmp_path / "given", per_class=2)


def test_pictures_of_something_else_do_not_hide_it(tmp_path: Path) -> None:
    """Such as ./data/train/cat of another data set."""
    trees.cinic(tmp_path / "data/cinic10")
    (tmp_path / "data/train/cat").mkdir(parents=True)
    assert len(load("cinic10", None, per_class=2).x_train) == 20


def test_a_link_to_nothing(tmp_path: Path) -> None:
    image = trees.cinic(tmp_path / "given") / "test/frog/img-1.png"
    image.unlink()
    image.symlink_to("nowhere.png")
    with pytest.raises(EmaisError, match=r"test/frog/img-1.png cannot be read \(No such file or directory\): get it"):
        load("cinic10", tmp_path / "given", per_class=2)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "damaged or no image"),
        (trees.png(np.zeros((32, 32), np.uint8))[:-30], "damaged or no image"),
        (trees.png(np.zeros((32, 31, 3), np.uint8)), "is 31x32 pixels, expected 32x32"),
        (trees.png(np.zeros((32, 32), np.uint16)), "mode I;16; images of 8 bits"),
    ],
)
def test_bad_image(content: bytes, says: str, tmp_path: Path) -> None:
    home = trees.cinic(tmp_path / "given")
    (home / "test/frog/img-1.png").write_bytes(content)
    with pytest.raises(EmaisError, match=rf"test/frog/img-1.png .*{says}") as caught:
        load("cinic10", home, per_class=2)
    assert " at 0x" not in str(caught.value)


def test_nothing_there() -> None:
    with pytest.raises(EmaisError) as caught:
        load("cinic10")
    for words in ("data/cinic10", "data/CINIC-10", "Edinburgh DataShare", "train and test", "automobile"):
        assert words in str(caught.value)

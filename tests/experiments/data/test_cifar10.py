"""CIFAR-10: every form gives the same arrays, and every kind of damage is refused by name."""

from __future__ import annotations

import hashlib
import pickle
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
import trees
from PIL import Image

from emais import EmaisError
from emais.experiments.data import cifar10, cifar10_files, load
from emais.experiments.data.unpickle import unpickle_batch

Arrays = dict[str, np.ndarray]


def sums(arrays: Arrays) -> dict[str, str]:
    return {key: hashlib.sha256(array.tobytes()).hexdigest() for key, array in arrays.items()}


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Arrays:
    """Twenty images to train on and ten to test on, whose sums are the expected ones."""
    trees.sealed(monkeypatch, tmp_path)
    rng = np.random.default_rng(0)
    arrays = {}
    for part, per_class in (("train", 2), ("test", 1)):
        arrays[f"x_{part}"] = rng.integers(0, 256, (10 * per_class, 3, 32, 32)).astype(np.uint8)
        arrays[f"y_{part}"] = rng.permutation(np.repeat(np.arange(10), per_class)).astype(np.uint8)
    monkeypatch.setattr(cifar10, "PER_CLASS", {"train": 2, "test": 1})
    monkeypatch.setattr(cifar10, "SHA256", sums(arrays))
    return arrays


def write(form: str, folder: Path, arrays: Arrays, monkeypatch: pytest.MonkeyPatch) -> None:
    if form in ("cifar-10-batches-py", "cifar-10-batches-bin"):
        for name, content in trees.cifar(form.rpartition("-")[2], arrays).items():
            trees.put(folder / name, content)
    elif form.endswith(".tar.gz"):
        content = trees.packed(trees.cifar("py" if "python" in form else "bin", arrays))
        trees.put(folder / form, content)
        monkeypatch.setitem(cifar10_files.MD5, form, hashlib.md5(content).hexdigest())
    elif form == "cifar10.npz":
        last = {key: a.transpose(0, 2, 3, 1) if a.ndim == 4 else a for key, a in arrays.items()}
        folder.mkdir(parents=True)
        np.savez_compressed(folder / form, **last)
    else:
        write_mosaics(folder, arrays)


def write_mosaics(folder: Path, arrays: Arrays) -> None:
    folder.mkdir(parents=True)
    parts = [*np.split(arrays["x_train"], 5), arrays["x_test"]]
    for name, images in zip(cifar10_files.MOSAICS, parts, strict=True):
        grid = images.reshape(2, -1, 3, 32, 32).transpose(0, 3, 1, 4, 2)  # two rows of tiles
        Image.fromarray(grid.reshape(64, -1, 3)).save(folder / name, lossless=True)
    np.savez(folder / "labels.npz", train=arrays["y_train"], test=arrays["y_test"])


@pytest.mark.parametrize("place", ["given", "itself", "variable", "here", "root"])
@pytest.mark.parametrize("form", cifar10_files.READERS)
def test_every_form_gives_the_same(
    form: str, place: str, small: Arrays, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = {"variable": "env/cifar10", "here": "data/cifar10", "root": "data"}.get(place, "given")
    write(form, tmp_path / home, small, monkeypatch)
    (tmp_path / "env").mkdir(exist_ok=True)
    monkeypatch.setenv("EMAIS_DATA", str(tmp_path / "env"))
    d = load("cifar10", {"given": tmp_path / "given", "itself": tmp_path / "given" / form}.get(place))
    assert (d.name, d.title, d.num_classes, d.multi_label, d.white) == ("cifar10", "CIFAR-10", 10, False, 255)
    assert (d.x_train.dtype, d.y_train.dtype) == (torch.uint8, torch.int64)
    for part, array in small.items():
        assert np.array_equal(getattr(d, part).numpy(), array)


def test_nothing_there(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    trees.sealed(monkeypatch, tmp_path)
    for folder in ("env", "elsewhere"):
        (tmp_path / folder).mkdir()
    monkeypatch.setenv("EMAIS_DATA", str(tmp_path / "env"))
    with pytest.raises(EmaisError) as caught:
        load("cifar10")
    for words in (tmp_path / "env/cifar10", "data/cifar10", "University of Toronto", *cifar10_files.READERS):
        assert str(words) in str(caught.value)
    with pytest.raises(EmaisError, match="looked in elsewhere"):  # and nowhere else
        load("cifar10", "elsewhere")


@pytest.mark.parametrize("form", ["cifar-10-batches-py", "cifar-10-batches-bin"])
@pytest.mark.parametrize("damage", ["cut", "absent", "empty", "fewer"])
def test_damaged_batch(form: str, damage: str, small: Arrays, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(form, tmp_path, small, monkeypatch)
    path = next((tmp_path / form).glob("data_batch_3*"))
    if damage == "absent":
        path.unlink()
    elif damage == "fewer":
        one_a_batch = {key: array[:5] for key, array in small.items()}
        path.write_bytes(trees.cifar(form.rpartition("-")[2], one_a_batch)[f"{form}/{path.name}"])
    else:
        path.write_bytes(path.read_bytes()[: 0 if damage == "empty" else -100])
    says = "has 17 train images" if damage == "fewer" else path.name
    with pytest.raises(EmaisError, match=says):
        load("cifar10", tmp_path)


def test_wrong_archive(small: Arrays, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    form = "cifar-10-python.tar.gz"
    write(form, tmp_path, small, monkeypatch)
    path = tmp_path / form
    path.write_bytes(path.read_bytes()[:20000])
    got = hashlib.md5(path.read_bytes()).hexdigest()
    with pytest.raises(EmaisError, match=f"{path} has md5 {got}, the publisher's is {cifar10_files.MD5[form]}"):
        load("cifar10", path)
    monkeypatch.setitem(cifar10_files.MD5, form, got)
    with pytest.raises(EmaisError, match="not a readable"):
        load("cifar10", path)


@pytest.mark.parametrize(
    ("key", "change", "says"),
    [
        ("x_test", lambda a: a[:-1], "has 9 test images and 10 labels, expected 10"),
        ("y_train", lambda a: a[:-1], "has 20 train images and 19 labels, expected 20"),
        ("y_train", lambda a: a[:, None], r"y_train in .*cifar10.npz has shape \(20, 1\), expected \(n,\)"),
        ("y_train", lambda a: a[0], r"y_train in .*cifar10.npz has shape \(\), expected \(n,\)"),
        ("y_train", lambda a: np.where(a == 3, 4, a).astype(np.uint8), r"\[2, 2, 2, 0, 4, .*expected 2 of each"),
        ("y_test", lambda a: np.where(a == 3, 77, a).astype(np.uint8), r"y_test in .*npz has the label 77, expected"),
        ("x_train", lambda a: a ^ 1, r"x_train in .* has sha256"),
        ("y_test", lambda a: a[::-1], r"y_test in .* has sha256"),
        ("y_test", lambda a: a.astype(np.int64), "y_test in .* is of type int64"),
        ("x_test", lambda a: a[:, :2], r"x_test in .* has shape \(10, 32, 32, 2\)"),
    ],
)  # fmt: skip
def test_wrong_content(
    key: str, change, says: str, small: Arrays, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write("cifar10.npz", tmp_path / "given", small | {key: change(small[key])}, monkeypatch)
    with pytest.raises(EmaisError, match=says):
        load("cifar10", tmp_path / "given")
    assert not (tmp_path / "user-cache").exists()  # what is wrong is not kept


def test_broken_npz_and_mosaic(small: Arrays, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trees.put(tmp_path / "a/cifar10.npz", b"PK\x03\x04 and so on")
    with pytest.raises(EmaisError, match="npz cannot be read"):
        load("cifar10", tmp_path / "a")
    write("train_0.webp", tmp_path / "b", small, monkeypatch)
    Image.new("RGB", (64, 33)).save(tmp_path / "b/train_2.webp", lossless=True)
    with pytest.raises(EmaisError, match=r"train_2.webp is 64x33 pixels"):
        load("cifar10", tmp_path / "b")
    (tmp_path / "b/train_1.webp").write_bytes(b"RIFF")
    with pytest.raises(EmaisError, match=r"train_1.webp is damaged or no image") as caught:
        load("cifar10", tmp_path / "b")
    assert " at 0x" not in str(caught.value)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda y: y[:, None], r"has shape \(10, 1\), expected \(n,\)"),
        (lambda y: np.where(y == 3, 77, y).astype(np.uint8), "has the label 77, expected labels from 0 to 9"),
    ],
)
def test_labels_of_the_mosaics(
    change, says: str, small: Arrays, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write("train_0.webp", tmp_path / "given", small | {"y_test": change(small["y_test"])}, monkeypatch)
    with pytest.raises(EmaisError, match=rf"test in .*given/labels.npz {says}"):
        load("cifar10", tmp_path / "given")


# ---- what is kept


@pytest.mark.parametrize("form", cifar10_files.READERS)
def test_unchanged_files_are_read_once(
    form: str, small: Arrays, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(form, tmp_path / "given", small, monkeypatch)
    load("cifar10", tmp_path / "given")
    monkeypatch.setitem(cifar10_files.READERS, form, lambda path: pytest.fail(f"{path} was read again"))
    assert np.array_equal(load("cifar10", tmp_path / "given" / form).x_train.numpy(), small["x_train"])


@pytest.mark.parametrize("damage", ["cut", "junk"])
@pytest.mark.parametrize(
    ("form", "file"),
    [
        ("cifar-10-batches-py", "cifar-10-batches-py/test_batch"),
        ("cifar-10-batches-bin", "cifar-10-batches-bin/data_batch_5.bin"),
        ("cifar-10-python.tar.gz", "cifar-10-python.tar.gz"),
        ("cifar-10-binary.tar.gz", "cifar-10-binary.tar.gz"),
        ("cifar10.npz", "cifar10.npz"),
        ("train_0.webp", "train_3.webp"),
        ("train_0.webp", "labels.npz"),
    ],
)
def test_changed_files_are_checked_in_spite_of_a_cache(
    damage: str, form: str, file: str, small: Arrays, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(form, tmp_path / "given", small, monkeypatch)
    load("cifar10", tmp_path / "given")
    path = tmp_path / "given" / file
    path.write_bytes(path.read_bytes()[:-500] if damage == "cut" else b"junk")
    with pytest.raises(EmaisError, match=str(path)):
        load("cifar10", tmp_path / "given" / form)


# ---- the pickles


class Hostile:
    def __reduce__(self) -> tuple[object, ...]:
        return (Path("run").write_text, ("it ran",))


def test_a_pickle_cannot_run_anything(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(EmaisError, match=r"some-file is not a batch .* it asks for "):
        unpickle_batch(pickle.dumps({b"data": Hostile()}, protocol=2), "some-file")
    assert list(tmp_path.iterdir()) == []


def test_only_bytes_are_unpickled(small: Arrays) -> None:
    images, labels = small["x_test"], small["y_test"]
    data, numbers = unpickle_batch(trees.python2_batch(images, labels), "some-file")
    assert np.array_equal(data, images.reshape(10, 3072))
    assert numbers == labels.tolist()
    with pytest.raises(EmaisError, match=r"type b'O', bytes are expected"):
        unpickle_batch(trees.python2_batch(images, labels, kind=b"O"), "some-file")
    with pytest.raises(EmaisError, match=r"asks for other.core"):
        unpickle_batch(trees.python2_batch(images, labels, names=b"other"), "some-file")


def test_our_python2_pickles_are_numpys(small: Arrays) -> None:
    """What the tests write is what a plain unpickler and numpy make an array of."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # numpy has renamed what old pickles ask for
        batch = pickle.loads(trees.python2_batch(small["x_test"], small["y_test"]), encoding="bytes")
    assert np.array_equal(batch[b"data"], small["x_test"].reshape(10, 3072))


@pytest.mark.parametrize(
    ("labels", "says"),
    [
        ([10], "has the label 10, expected labels from 0 to 9"),
        ([1, 2], r"has data of shape \(1, 3072\) and 2 labels"),
        ([-1], "has the label -1, expected"),
    ],
)
def test_labels_of_a_pickle(
    labels: list[int], says: str, small: Arrays, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write("cifar-10-batches-py", tmp_path, small, monkeypatch)
    batch = trees.python2_batch(small["x_test"][:1], np.array(labels))
    (tmp_path / "cifar-10-batches-py/data_batch_2").write_bytes(batch)
    with pytest.raises(EmaisError, match=rf"data_batch_2 {says}"):
        load("cifar10", tmp_path)


def test_labels_of_a_binary_batch(small: Arrays, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write("cifar-10-batches-bin", tmp_path, small, monkeypatch)
    batch = trees.binary_batch(small["x_test"][:1], np.array([77], np.uint8))
    (tmp_path / "cifar-10-batches-bin/data_batch_2.bin").write_bytes(batch)
    with pytest.raises(EmaisError, match=r"data_batch_2.bin has the label 77, expected labels from 0 to 9"):
        load("cifar10", tmp_path)

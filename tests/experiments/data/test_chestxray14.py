"""ChestX-ray14 in every layout: one folder or twelve, unpacked or zipped; its lists checked against each other."""

from __future__ import annotations

import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
import trees

from emais import EmaisError
from emais.experiments.data import Data, chestxray14, load
from emais.experiments.data.chestxray14_lists import FINDINGS

Files = dict[str, bytes]
TABLE = "Data_Entry_2017_v2020.csv"
ROW = b"00000002_000.png,No Finding,0,2,58,M,PA,2682,2749,0.143,0.143\r\n"
TWELVE = tuple(f"images_{k:03}/images" for k in range(1, 13))


@pytest.fixture(autouse=True)
def _sealed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    trees.sealed(monkeypatch, tmp_path)


def unpacked(files: Files, folder: Path) -> Path:
    for name, content in files.items():
        trees.put(folder / name, content)
    return folder


def zipped(files: Files, path: Path, top: str = "") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w") as out:
        for name, content in files.items():
            out.writestr(f"{top}{name}", content)
    return path


@pytest.mark.parametrize("folders", [("images",), TWELVE])
@pytest.mark.parametrize("table", chestxray14.TABLE_FILES)
@pytest.mark.parametrize("form", ["folder", "zip", "zip with a folder", "data", "zip in data"])
def test_every_layout(form: str, folders: tuple[str, ...], table: str, tmp_path: Path) -> None:
    files = trees.chest(folders, table)
    place: Path | None = tmp_path / "given"
    if form in ("folder", "data"):
        unpacked(files, tmp_path / ("given" if form == "folder" else "data/chestxray14"))
    elif form == "zip in data":
        zipped(files, tmp_path / "data/chestxray14_subset.zip")
    else:
        place = zipped(files, tmp_path / "any.zip", "top/" if form == "zip with a folder" else "")
    check(load("chestxray14", None if "data" in form else place))


def check(d: Data) -> None:
    assert (d.name, d.num_classes, d.multi_label) == ("chestxray14", 14, True)
    assert d.title == "ChestX-ray14 (subset of 5 images)"
    assert d.classes == FINDINGS
    assert (tuple(d.x_train.shape), tuple(d.x_test.shape)) == ((3, 1, 80, 80), (2, 1, 80, 80))
    assert (d.x_train.dtype, d.y_train.dtype) == (torch.uint8, torch.float32)
    assert [image.unique().tolist() for image in (*d.x_train, *d.x_test)] == [[10], [20], [30], [40], [50]]
    found = [{FINDINGS[k] for k in row.nonzero().ravel().tolist()} for row in (*d.y_train, *d.y_test)]
    assert found == [{*labels.split("|")} - {"No Finding"} for labels, _ in trees.CHEST.values()]
    assert {*d.y_train.unique().tolist()} == {0.0, 1.0}


@pytest.mark.parametrize("end", [b"", b","])
def test_the_table_of_2017(end: bytes, tmp_path: Path) -> None:
    """The publisher's header ends with a comma; rows may, too."""
    table = "Data_Entry_2017.csv"
    files = trees.chest(TWELVE, table)
    header, *rows = files[table].split(b"\r\n")
    files[table] = b"\n".join([header + b",", *(row + end for row in rows)]) + b"\n"
    check(load("chestxray14", unpacked(files, tmp_path / "given")))


def test_size(tmp_path: Path) -> None:
    files = trees.chest()
    ramp = np.tile(np.arange(100, dtype=np.uint8), (100, 1))
    files["images/00000001_000.png"] = trees.png(ramp)
    home = unpacked(files, tmp_path / "given")
    whole, half = (load("chestxray14", home, size=size).x_train[0, 0] for size in (100, 50))
    assert np.array_equal(whole.numpy(), ramp)
    assert (half[:, 1:-1].float() - torch.arange(100).view(50, 2).float().mean(1)[1:-1]).abs().max() <= 0.5
    with pytest.raises(EmaisError, match="size must be a whole number"):
        load("chestxray14", home, size=0)


def test_the_whole_data_set_is_not_called_a_subset(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chestxray14, "COMPLETE", (3, 2))
    assert load("chestxray14", unpacked(trees.chest(), tmp_path / "given")).title == "ChestX-ray14"


@pytest.mark.parametrize(
    ("file", "old", "new", "says"),
    [
        (TABLE, b"Emphysema", b"Enphysema", r"00000001_001.png has the unknown finding 'Enphysema'"),
        (TABLE, b"Patient ID", b"Patient", "no column 'Patient ID'"),
        (TABLE, b"No Finding", b"No Finding|Mass", r"line 4: 00000002_000.png has 'No Finding\|Mass', which contra"),
        (TABLE, ROW, ROW + ROW.replace(b"No Finding", b"Mass"), f"{TABLE}, line 5, is a second row of 00000002_00"),
        (TABLE, ROW, ROW + ROW, r"line 5, is a second row of 00000002_000.png"),  # even if they agree
        (TABLE, b"Cardiomegaly|", b"Cardiomegaly,", f"{TABLE}, line 3, has 12 fields, the header has 11"),
        (TABLE, b",0,3,", b",3,", r"line 5, has 10 fields, the header has 11"),
        (TABLE, b"Hernia", b"Hernia" * 30000, rf"{TABLE}, line 5, cannot be read \(field larger than field limit"),
        (TABLE, b"00000002_000.png", b"00000009_000.png", r"1 listed images are not in the table.*00000002_000.png"),
        (TABLE, b",0,3,", b",0,2,", r"1 patients are in both lists, 2 for one"),
        ("test_list.txt", b"00000004_000.png", b"00000001_000.png", "1 images are listed twice"),
        ("test_list.txt", b"00000003_000.png\n00000004_000.png\n", b"", "3 training and 0 test images"),
        (TABLE, None, None, f"has no file {TABLE}"),
        ("train_val_list.txt", None, None, r"has no file train_val_list.txt"),
        ("images/00000003_000.png", None, None, r"lacks 1 of the 5 images in its lists, 00000003_000.png for one"),
    ],
)
def test_lists_that_do_not_agree(file: str, old: bytes | None, new: bytes | None, says: str, tmp_path: Path) -> None:
    files = trees.chest()
    content = files.pop(file)
    if old is not None and new is not None:
        assert old in content
        files[file] = content.replace(old, new)
    path = zipped(files, tmp_path / "some.zip")
    with pytest.raises(EmaisError, match=says) as caught:
        load("chestxray14", path)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize(
    ("content", "says"),
    [(b"GIF", "damaged or no image"), (trees.png(np.zeros((80, 81), np.uint8)), "is 81x80 pixels, expected a square")],
)
def test_bad_image(content: bytes, says: str, tmp_path: Path) -> None:
    files = trees.chest() | {"images/00000004_000.png": content}
    with pytest.raises(EmaisError, match=rf"images/00000004_000.png .*{says}") as caught:
        load("chestxray14", unpacked(files, tmp_path / "given"))
    assert " at 0x" not in str(caught.value)


@pytest.mark.parametrize("form", ["folder", "zip"])
@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("images_001/images/00000001_000.png", "thumbnails/00000001_000.png"),
        ("old/test_list.txt", "test_list.txt"),
        (TABLE, f"old/{TABLE}"),
    ],
)
def test_two_files_of_one_name(first: str, second: str, form: str, tmp_path: Path) -> None:
    files = trees.chest(TWELVE)
    files |= {first: files.get(first, b"other"), second: files.get(second, b"other")}
    pack = unpacked if form == "folder" else zipped
    name = first.rpartition("/")[2]
    with pytest.raises(EmaisError, match=rf"has {name} more than once, as {first} and as {second}: leave one of them"):
        load("chestxray14", pack(files, tmp_path / "given.zip"))


def test_files_that_are_not_listed_may_share_a_name(tmp_path: Path) -> None:
    others = dict.fromkeys(("a/readme.txt", "b/readme.txt", "a/00000099_000.png", "b/00000099_000.png"), b"other")
    check(load("chestxray14", unpacked(trees.chest(TWELVE) | others, tmp_path / "given")))


def test_damaged_zip(tmp_path: Path) -> None:
    path = zipped(trees.chest(), tmp_path / "some.zip")
    whole = path.read_bytes()
    path.write_bytes(whole[:-30])
    with pytest.raises(EmaisError, match=r"some.zip is not a readable .zip"):
        load("chestxray14", path)
    at = whole.index(b"IDAT", whole.index(b"00000003_000.png")) + 8
    path.write_bytes(whole[:at] + bytes([whole[at] ^ 255]) + whole[at + 1 :])
    with pytest.raises(EmaisError, match=r"some.zip/images/00000003_000.png cannot be read .*CRC"):
        load("chestxray14", path)


def test_two_zips(tmp_path: Path) -> None:
    for name in ("chestxray14_a.zip", "ChestX-ray14.zip"):
        zipped(trees.chest(), tmp_path / "data" / name)
    with pytest.raises(EmaisError, match=r"ChestX-ray14.zip, chestxray14_a.zip: give the one you mean"):
        load("chestxray14")


def test_nothing_there() -> None:
    with pytest.raises(EmaisError) as caught:
        load("chestxray14")
    for words in ("data/chestxray14", "NIH", "images_012", "train_val_list.txt", *chestxray14.TABLE_FILES):
        assert words in str(caught.value)

"""ChestX-ray14, the whole of it or a subset in the same layout, from a folder or straight from a .zip."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np

from ...errors import EmaisError, positive_int
from .base import Bytes, Data, PixelArrays
from .cache import cached, stamps
from .chestxray14_lists import FINDINGS, Split, read_split
from .images import decode_all, grey_resized
from .places import missing, places
from .sources import Folder, Source, Zip

TABLE_FILES = ("Data_Entry_2017_v2020.csv", "Data_Entry_2017.csv")
LISTS = ("train_val_list.txt", "test_list.txt")
COMPLETE = (86524, 25596)  # images in the two lists of the whole data set


def load_chestxray14(folder: Path | str | None = None, size: int = 80) -> Data:
    """ChestX-ray14: chest X-rays in grey, each with any of 14 findings; 86524 train and 25596 test.

    folder: NIH's files, unpacked or in one .zip, or the .zip itself. size: images are shrunk from 1024 to so many
    pixels a side; the default leaves room for random crops of 64 or 72.

    Paper: sec:experiment
    """
    positive_int("size", size)
    looked = places(folder, ("chestxray14", "ChestX-ray14", "chestxray14_subset_80px"))
    with find_source(looked) as source:
        return load_from(source, size)


def find_source(looked: list[Path]) -> Source:
    """The first place that has, or is, the data."""
    for place in looked:
        if place.suffix == ".zip" and place.is_file():
            return Zip(place)
        if any((place / table).is_file() for table in TABLE_FILES):
            return Folder(place)
        zips = sorted(place.glob("[Cc]hest[Xx]*.zip"))
        if len(zips) > 1:
            raise EmaisError(
                f"{place} has {', '.join(path.name for path in zips)}: give the one you mean (--folder FILE)"
            )
        if zips:
            return Zip(zips[0])
    layout = (
        f"images/*.png or images_001/images/*.png to images_012/images/*.png, {' or '.join(TABLE_FILES)}, "
        f"{' and '.join(LISTS)}, or a chestx*.zip of these"
    )
    source = "the NIH Clinical Center’s ChestX-ray14 page (NIHCC on Box)"
    raise missing("ChestX-ray14", looked, source, layout)


def load_from(source: Source, size: int) -> Data:
    """Everything from an open source."""
    found = by_name(source)
    table = next((table for table in TABLE_FILES if table in found), TABLE_FILES[0])
    texts = [source.read(the_one(source, found, file)) for file in (table, *LISTS)]
    split = read_split(texts, str(source.path), table)
    absent = [image for image in split.images if image not in found]
    if absent:
        raise EmaisError(
            f"{source.path} lacks {len(absent)} of the {len(split.images)} images in its lists, {absent[0]} for one: "
            "unpack all of them"
        )
    names = {image: the_one(source, found, image) for image in split.images}
    lists = hashlib.sha256(b"\0".join(texts)).hexdigest()
    settings = {"size": size, "lists": lists, "files": stamps(source, names.values())}
    arrays = cached("chestxray14", settings, lambda: decoded_chest(source, split, names, size))
    return Data.of("chestxray14", chest_title(split), FINDINGS, arrays)


def by_name(source: Source) -> dict[str, list[str]]:
    """Where the files of every name lie, in whatever folders."""
    found: dict[str, list[str]] = {}
    for path in source.names():
        found.setdefault(path.rpartition("/")[2], []).append(path)
    return found


def the_one(source: Source, found: dict[str, list[str]], name: str) -> str:
    """Where the file of this name lies; two of them are refused, as they may differ."""
    paths = found.get(name, [name])  # one that is absent is refused when it is read
    if len(paths) > 1:
        raise EmaisError(f"{source.path} has {name} more than once, as {paths[0]} and as {paths[1]}: leave one of them")
    return paths[0]


def chest_title(split: Split) -> str:
    """The name to print."""
    if (len(split.train), len(split.test)) == COMPLETE:
        return "ChestX-ray14"
    return f"ChestX-ray14 (subset of {len(split.images):,} images)"


def decoded_chest(source: Source, split: Split, names: dict[str, str], size: int) -> PixelArrays:
    """Images and labels of both lists, in the order of the lists."""

    def decode(image: str) -> Bytes:
        return grey_resized(source.read(names[image]), source.where(names[image]), size)

    images = decode_all(split.images, decode, (1, size, size), "ChestX-ray14")
    labels = np.stack([split.labels[image] for image in split.images])
    cut = [len(split.train)]
    (x_train, x_test), (y_train, y_test) = np.split(images, cut), np.split(labels, cut)
    return {"x_train": x_train, "y_train": y_train, "x_test": x_test, "y_test": y_test}

"""A page with a gallery of the samples that `imp.samples()` lists: pictures or text, and what is known of each.

>>> import tempfile, emais
>>> imp = emais.EMAIS(num_samples=6, batch_size=2)
>>> with tempfile.TemporaryDirectory() as folder:
...     page = write_gallery(Path(folder) / "samples.html", imp.samples(), lambda index: f"text {index}")
...     "text 5" in page.read_text("utf-8")
True
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from ...errors import EmaisError
from ...observing.samples import Sample, Samples
from ..files import write_whole
from .figures.scales import tick_label
from .inline_pictures import data_uri, png
from .log_page import short_number
from .pages import from_template

LONGEST_TEXT = 1000  # letters of a sample that are shown
Image: TypeAlias = Tensor | NDArray[Any]
Renderer: TypeAlias = Callable[[int], bytes | Image | str]
Labels: TypeAlias = Callable[[int], object] | Sequence[object] | Mapping[int, object] | Image
SHELVES = {
    "hardest": (
        "The hardest",
        "The largest mean gradient norm first. A wrong label is one reason, a rare kind of sample another.",
    ),
    "unstable": ("The most unstable", "The gradient norms that change most, the largest deviation first."),
    "never_seen": ("Never seen", "Samples that were in no minibatch yet."),
}


@dataclass(frozen=True)
class Card:
    """One sample as the page shows it: a picture, or words, or neither."""

    name: str
    label: str
    alt: str
    picture: str
    words: str
    facts: Sequence[tuple[str, str]]


@dataclass(frozen=True)
class Shelf:
    """One list of samples."""

    anchor: str
    title: str
    about: str
    cards: Sequence[Card]

    @property
    def texts(self) -> bool:
        """Whether the cards have text, which needs more room than a picture."""
        return any(card.words for card in self.cards)


@dataclass(frozen=True)
class GalleryPage:
    """All lists under a title."""

    title: str
    about: str
    shelves: Sequence[Shelf]


def write_gallery(
    path: Path | str,
    samples: Samples,
    render: Renderer | None = None,
    *,
    labels: Labels | None = None,
    title: str = "Samples to look at",
) -> Path:
    """Write the page as one file that needs no network, and return its path.

    render: from an index to a picture or to text (str). A picture is the bytes of a PNG, JPEG, GIF, WebP or SVG file;
    an image tensor (H, W), (1, H, W) or (3, H, W); or a numpy array (H, W), (H, W, 1) or (H, W, 3); uint8, or floats
    from 0 to 1. labels: what stands beside the index, by index, or a function of it. Text and labels are escaped:
    whatever a data set holds is shown, and never run.
    """
    path = Path(path)
    if path.is_dir():
        raise EmaisError(f"{path} is a folder: give a file, e.g. {path / 'samples.html'}")
    text = gallery(samples, render, labels=labels, title=title)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, text)
    return path


def gallery(
    samples: Samples, render: Renderer | None = None, *, labels: Labels | None = None, title: str = "Samples to look at"
) -> str:
    """The HTML of the page; see `write_gallery`."""
    shelves = [
        Shelf(name, heading, about, [card_of(sample, render, labels) for sample in getattr(samples, name)])
        for name, (heading, about) in SHELVES.items()
    ]
    steps, total, unseen = map(tick_label, (samples.step, samples.num_samples, samples.num_never_seen))
    about = (
        f"{samples.method} after {steps} steps: {total} samples, of which {unseen} were never seen. “Drawn” is how "
        "often a sample is drawn, as a multiple of uniform sampling."
    )
    return from_template("gallery.html", GalleryPage(clean(title), about, shelves))


def card_of(sample: Sample, render: Renderer | None, labels: Labels | None) -> Card:
    """A sample with its picture or text."""
    name = f"Sample {sample.index}"
    label = clean(label_of(sample.index, labels))
    shown = "" if render is None else render(sample.index)
    picture = words = ""
    if isinstance(shown, str):
        words = clean(shown if len(shown) <= LONGEST_TEXT else f"{shown[:LONGEST_TEXT]}…")
    elif isinstance(shown, bytes | Tensor | np.ndarray):
        picture = data_uri(shown if isinstance(shown, bytes) else png(shown))
    else:
        raise EmaisError(
            f"render must give bytes, a tensor, a numpy array or a str, got {type(shown).__name__} for sample "
            f"{sample.index}"
        )
    return Card(name, label, f"{name}: {label}" if label else name, picture, words, facts_of(sample))


def label_of(index: int, labels: Labels | None) -> str:
    """What stands beside the index."""
    if labels is None:
        return ""
    try:
        found: Any = labels(index) if callable(labels) else labels[index]
    except LookupError:
        if callable(labels):  # the user's own code
            raise
        raise EmaisError(
            f"labels has none for sample {index}: give one for each sample of the data set, or a function of the index"
        ) from None
    return str(found.tolist() if isinstance(found, Tensor) else found)


def facts_of(sample: Sample) -> list[tuple[str, str]]:
    """What is known, with its name; of a sample never seen there is little."""
    seen = sample.last_step > 0
    known = [
        ("loss", None if sample.loss is None else short_number(sample.loss)),
        ("mean norm", short_number(sample.mean) if seen else None),
        ("deviation", short_number(sample.deviation) if seen else None),
        ("last step", tick_label(sample.last_step) if seen else "never"),
        ("drawn", f"{short_number(sample.relative_probability)}×"),
    ]
    return [(name, value) for name, value in known if value is not None]


def clean(text: str) -> str:
    """Text that can be written as UTF-8, whatever a data set held."""
    return text.encode("utf-8", "replace").decode("utf-8")

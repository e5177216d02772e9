"""The gallery: pictures inside the page, text and labels escaped, and a page that a browser shows as it should."""

from __future__ import annotations

import base64
import re
import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
import torch
from browser import CHROMIUM, Browser
from page_checks import accessible, fits

import emais
from emais.errors import EmaisError
from emais.experiments.report.gallery import gallery, write_gallery
from emais.experiments.report.inline_pictures import data_uri, png

HOSTILE = "<script>document.title = 'hit'</script><img src=x onerror=\"document.title = 'hit'\">"


@pytest.fixture
def samples():
    """Of 12 samples 4 were never seen."""
    imp = emais.EMAIS(12, batch_size=4)
    for _ in range(2):
        draw, z = imp.draw(), torch.zeros(4, 2, requires_grad=True)
        imp.observe((z * torch.rand(4, 2)).sum(1), z, draw)
    return imp.samples(5, losses=torch.arange(12.0))


def decoded(picture):
    """Width, height, kind and pixels of a PNG file that has one IDAT and no filters."""
    width, height, depth, kind = struct.unpack(">IIBB", picture[16:26])
    start = picture.index(b"IDAT")
    (length,) = struct.unpack(">I", picture[start - 4 : start])
    data = picture[start + 4 : start + 4 + length]
    assert struct.unpack(">I", picture[start + 4 + length : start + 8 + length])[0] == zlib.crc32(b"IDAT" + data)
    lines = zlib.decompress(data)
    size = len(lines) // height
    assert depth == 8
    return width, height, kind, [list(lines[k * size + 1 : (k + 1) * size]) for k in range(height)]


def test_png():
    grey = torch.tensor([[0, 128, 255], [1, 2, 3]], dtype=torch.uint8)
    assert decoded(png(grey)) == (3, 2, 0, grey.tolist())
    assert decoded(png(grey[None])) == decoded(png(grey))
    assert decoded(png(grey.float() / 255)) == decoded(png(grey))
    colour = torch.tensor([[[1.0]], [[1.0005]], [[-0.0005]]])  # as rounding leaves them
    assert decoded(png(colour)) == (1, 1, 2, [[255, 255, 0]])
    for wrong in (torch.zeros(3), torch.zeros(2, 4, 4), torch.zeros(0, 4)):
        with pytest.raises(EmaisError, match=r"must be \(H, W\)"):
            png(wrong)


@pytest.mark.parametrize("wrong", [255.0, 1.01, -0.01, float("nan"), float("inf")])
@pytest.mark.parametrize("kind", [torch.tensor, np.array])
def test_floats_that_are_no_image_are_refused(wrong, kind):
    with pytest.raises(EmaisError, match=r"must be from 0 to 1, got .*: divide by 255 or give uint8"):
        png(kind([[0.0, 1.0], [wrong, 0.5]]))


@pytest.mark.parametrize(
    ("start", "kind"),
    [(b"\x89PNG\r\n\x1a\n", "png"), (b"\xff\xd8\xff", "jpeg"), (b"GIF89a", "gif"), (b"RIFF1234WEBP", "webp"),
     (b" \n<svg>", "svg+xml"), (b"<?xml", "svg+xml")],
)  # fmt: skip
def test_kinds_of_pictures(start, kind):
    assert data_uri(start + b"rest") == f"data:image/{kind};base64,{base64.b64encode(start + b'rest').decode()}"


def test_bytes_that_are_no_picture_are_refused():
    with pytest.raises(EmaisError, match="give text as str"):
        data_uri(b"hello")


def test_pictures_and_labels(samples):
    seen = []

    def render(index):
        seen.append(index)
        return torch.full((2, 2), index / 12)

    text = gallery(samples, render, labels=torch.arange(12) * 11)
    listed = [s.index for s in (*samples.hardest, *samples.unstable, *samples.never_seen)]
    assert seen == listed
    assert len(samples.never_seen) == 4
    pictures = re.findall(r'<img src="data:image/png;base64,([^"]*)" alt="Sample (\d+): (\d+)">', text)
    assert [int(index) for _, index, _ in pictures] == listed
    assert all(int(label) == 11 * int(index) for _, index, label in pictures)
    assert decoded(base64.b64decode(pictures[0][0]))[3][0][0] == round(255 * listed[0] / 12)
    assert not re.search(r"https?:|//[a-z]|<script", text)


def test_what_a_data_set_holds_is_escaped(samples):
    text = gallery(samples, lambda index: HOSTILE + "\ud800", labels=lambda index: HOSTILE, title=HOSTILE)
    assert "<script" not in text
    assert "<img" not in text
    assert "&lt;script&gt;" in text
    assert "script-src 'none'" in text
    svg = gallery(samples, lambda index: HOSTILE.replace("<script", "<svg><script").encode())
    assert "<svg" not in svg  # in an image, where nothing runs


def test_a_text_that_turns_the_direction_turns_only_itself(samples):
    override = "\u202edesrever"
    text = gallery(samples, lambda index: override, labels=lambda index: override, title=override)
    body = text[text.index("<body") :]
    assert body.count(override) == body.count(f"<bdi>{override}</bdi>") > 3


def test_the_name_stands_before_what_is_shown(samples):
    text = gallery(samples, lambda index: f"text of {index}")
    for index in {sample.index for sample in samples.hardest}:
        assert text.index(f"<b>Sample {index}</b>") < text.index(f"text of {index}<")


@pytest.mark.parametrize("labels", [["a"] * 3, {0: "a"}, torch.zeros(3), np.zeros(3)])
def test_labels_that_are_too_few_are_told(samples, labels):
    with pytest.raises(EmaisError, match=r"labels has none for sample \d+: give one for each sample"):
        gallery(samples, labels=labels)


def test_images_of_numpy(samples):
    grey = torch.tensor([[0, 128, 255], [1, 2, 3]], dtype=torch.uint8)
    colour = torch.rand(3, 2, 4)
    assert png(grey.numpy()) == png(grey.numpy()[..., None]) == png(grey)
    assert png(colour.permute(1, 2, 0).numpy()) == png(colour)
    assert png(colour.permute(1, 2, 0).double().numpy().astype(">f8")) == png(colour)
    for wrong in (np.zeros(3), np.zeros((3, 4, 4)), np.zeros((2, 2), dtype=complex), np.array([["a"]])):
        with pytest.raises(EmaisError, match=r"must be \(H, W\), \(H, W, 1\) or \(H, W, 3\)"):
            png(wrong)
    assert gallery(samples, lambda index: np.zeros((2, 2, 3))).count('<img src="data:image/png') == 14


def test_long_text_is_cut(samples):
    assert "x" * 1000 + "…</bdi>" in gallery(samples, lambda index: "x" * 5000)


def test_what_is_written(samples, tmp_path):
    path = write_gallery(str(tmp_path / "new" / "page.html"), samples)
    assert path.read_text("utf-8") == gallery(samples)
    with pytest.raises(EmaisError, match=r"is a folder: give a file, e\.g\. .*samples\.html"):
        write_gallery(tmp_path, samples)
    for wrong, kind in ((3, "int"), (None, "NoneType")):
        with pytest.raises(EmaisError, match=f"got {kind} for sample"):
            write_gallery(path, samples, lambda index, wrong=wrong: wrong)


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed here")
def test_the_gallery_in_a_browser(samples, tmp_path: Path):
    words = write_gallery(tmp_path / "words.html", samples, lambda index: HOSTILE + "w" * 200, labels=lambda i: HOSTILE)
    svg = f'<svg xmlns="http://www.w3.org/2000/svg" width="4" height="4">{HOSTILE}</svg>'.encode()
    pictures = write_gallery(
        tmp_path / "pictures.html", samples, lambda index: svg if index % 2 else torch.rand(3, 8, 8), labels=["l"] * 12
    )
    with Browser(tmp_path / "profile") as browser:
        for page in (words, pictures):
            for width in (1200, 400):
                size = {"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": True}
                browser.call("Emulation.setDeviceMetricsOverride", **size)
                browser.open(page)
                assert browser.run("document.title") == "Samples to look at"
                fetched = browser.run("performance.getEntriesByType('resource').map(e => e.name)")
                assert [name for name in fetched if not name.startswith("data:")] == []
                assert fits(browser)
                assert accessible(browser) == []
        assert browser.run("[...document.images].every(i => i.complete)")
        assert browser.problems == []

"""The documentation site: no page and no public name is left out. That its links lead somewhere is for `make site`."""

import doctest
import importlib
import inspect
import os
import re
import subprocess
import sys

import pytest
import yaml
from browser import CHROMIUM, Browser
from page_checks import accessible, fits
from places import ROOT

import emais
from emais.experiments.report.gallery import write_gallery

DOCS = ROOT / "docs"
API = "\n".join(path.read_text("utf-8") for path in sorted((DOCS / "api").glob("*.md")))
DARK = "#1e2129"  # behind the text of the dark scheme of the theme
GALLERY = "emais.experiments.report.gallery.write_gallery"
ENTRIES = re.findall(r"^::: (.*)$", API, re.M)


class Settings(yaml.SafeLoader):
    """Reads mkdocs.yml as mkdocs does, where a tag may name something in Python."""


Settings.add_multi_constructor("tag:yaml.org,2002:python/name:", lambda loader, suffix, node: suffix)


@pytest.fixture
def settings():
    return yaml.load((ROOT / "mkdocs.yml").read_text(), Settings)


@pytest.fixture
def site_text(monkeypatch):
    monkeypatch.syspath_prepend(DOCS)
    return importlib.import_module("site_text")


def pages(nav):
    """All pages of a navigation, however deep."""
    if isinstance(nav, str):
        return [nav]
    parts = nav.values() if isinstance(nav, dict) else nav
    return [page for part in parts for page in pages(part)]


def test_every_page_is_in_the_navigation_once(settings):
    found = pages(settings["nav"])
    own = {path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md") if "templates" not in path.parts}
    assert len(found) == len(set(found))
    assert set(found) == own | {"index.md", "changelog.md", "tour.md"}


def test_nothing_is_loaded_from_elsewhere(settings):
    """Fonts are the reader's own, styles and scripts lie in docs/."""
    assert settings["theme"]["font"] is False
    own = [*settings["extra_css"], *settings.get("extra_javascript", [])]
    assert all((DOCS / name).is_file() for name in own)
    styles = "".join((DOCS / name).read_text() for name in settings["extra_css"])
    assert "http" not in styles
    assert "@import" not in styles


def luminance(colour):
    parts = [int(colour[k : k + 2], 16) / 255 for k in (1, 3, 5)]
    linear = [v / 12.92 if v <= 0.03928 else ((v + 0.055) / 1.055) ** 2.4 for v in parts]
    return sum(share * v for share, v in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def contrast(one, other):
    low, high = sorted(map(luminance, (one, other)))
    return (high + 0.05) / (low + 0.05)


def test_colours_can_be_read():
    """Links on white and on the dark background, and white on the header: 4.5 at least (WCAG AA)."""
    colours = dict(re.findall(r"--([\w-]*teal): (#\w{6})", (DOCS / "site.css").read_text()))
    for name in ("teal", "dark-teal"):
        assert contrast(colours[name], "#ffffff") >= 4.5
    assert contrast(colours["light-teal"], DARK) >= 4.5


PAGES = ("index.html", "api/engines.html", "guides/logging.html", "tour.html")


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed here")
def test_pages_of_the_site_in_a_browser(tmp_path):
    """Only where mkdocs is installed: `make site` does it."""
    pytest.importorskip("mkdocs")
    pytest.importorskip("material")
    made = tmp_path / "site"
    command = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict", "--site-dir", str(made)]
    subprocess.run(command, cwd=ROOT, check=True, env=os.environ | {"NO_MKDOCS_2_WARNING": "1"}, capture_output=True)
    with Browser(tmp_path / "profile") as browser:
        for page in PAGES:
            for width in (1200, 400):
                size = {"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": True}
                browser.call("Emulation.setDeviceMetricsOverride", **size)
                browser.open(made / page)
                fetched = browser.run("performance.getEntriesByType('resource').map(e => e.name)")
                assert [name for name in fetched if not name.startswith(("file:", "data:"))] == []
                assert fits(browser)
                # icons without a label of their own are in links and buttons that have one
                assert [problem for problem in accessible(browser) if problem != "no label"] == [], page


def test_the_reference_has_every_public_name():
    missing = [
        name for name in emais.__all__ if name not in ("METHODS", "functional") and f"emais.{name}" not in ENTRIES
    ]
    missing += [name for name in emais.METHODS if f'emais.METHODS["{name}"]' not in ENTRIES]
    functions = set(emais.functional.__all__) - {"LR_RULES"}
    missing += sorted(name for name in functions if f"emais.functional.{name}" not in ENTRIES)
    assert missing == []
    assert "`emais.functional.LR_RULES`" in API


def test_the_reference_has_nothing_but_public_names(site_text):
    """Which file something is in may change: an entry begins at `emais` or at `emais.functional`.

    The gallery is the one exception: `emais` alone does not import what makes pages.
    """
    public = {*emais.__all__}
    assert GALLERY in ENTRIES
    assert write_gallery.__module__ == GALLERY.rpartition(".")[0]
    for entry in sorted({*ENTRIES} - {GALLERY}):
        if re.fullmatch(r"[\w.]+", entry):
            first, *rest = entry.removeprefix("emais.").split(".")
            assert first in public, entry
            value = getattr(emais, first)
            for part in rest:
                value = getattr(value, part)  # AttributeError: it is gone
        else:
            path = site_text.resolved(f"::: {entry}").removeprefix("::: ")
            module, _, name = path.rpartition(".")
            assert isinstance(getattr(importlib.import_module(module), name), type), entry


def test_the_texts_of_the_site(site_text):
    assert doctest.testmod(site_text).failed == 0
    home = site_text.from_top((ROOT / "README.md").read_text("utf-8"))
    for target in re.findall(r"\]\((?!http)([^)#]+)", home):
        assert (DOCS / target).is_file(), f"README.md links to {target}, which is not below docs/"


def test_docstrings_keep_their_examples_apart_from_the_text(site_text):
    """Of all public names: an example is fenced, with what it prints, and the text after it is not."""
    for name in emais.__all__:
        docstring = inspect.getdoc(getattr(emais, name)) or ""
        if ">>> " not in docstring or name == "METHODS":
            continue
        made = site_text.shown(docstring)
        outside = re.sub(r"```pycon\n.*?\n```", "", made, flags=re.S)
        assert ">>>" not in outside, name
        assert made.count("```") % 2 == 0, name

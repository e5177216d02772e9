"""The documentation site: no page and no public name is left out. That its links lead somewhere is for `make site`."""

import doctest
import importlib
import inspect
import re

import pytest
import yaml
from places import ROOT

import emais

DOCS = ROOT / "docs"
API = "\n".join(path.read_text("utf-8") for path in sorted((DOCS / "api").glob("*.md")))
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
    assert set(found) == own | {"index.md", "changelog.md"}


def test_nothing_is_loaded_from_elsewhere(settings):
    """Fonts are the reader's own, styles and scripts lie in docs/."""
    assert settings["theme"]["font"] is False
    own = [*settings["extra_css"], *settings.get("extra_javascript", [])]
    assert all((DOCS / name).is_file() for name in own)
    styles = "".join((DOCS / name).read_text() for name in settings["extra_css"])
    assert "http" not in styles
    assert "@import" not in styles


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
    """Which file something is in may change: an entry begins at `emais` or at `emais.functional`."""
    public = {*emais.__all__}
    for entry in ENTRIES:
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

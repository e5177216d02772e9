"""Hooks of the documentation site (mkdocs.yml)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files
from site_text import from_notebook, from_top, inside, resolved

ROOT = Path(__file__).parent.parent
FROM_TOP = {"index.md": "README.md", "changelog.md": "CHANGELOG.md"}


def on_files(files: Files, config: Any) -> Files:
    """Add the pages that lie in the top folder."""
    for name, source in FROM_TOP.items():
        files.append(File.generated(config, name, content=from_top((ROOT / source).read_text("utf-8"))))
    tour = (ROOT / "examples" / "tour.ipynb").read_text("utf-8")
    files.append(File.generated(config, "tour.md", content=from_notebook(tour)))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Let links lead to pages of the site, and resolve the entries of an API page."""
    return resolved(inside(markdown, page.file.src_uri))

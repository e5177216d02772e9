"""Docstrings as the site shows them: an extension of griffe, which reads them (mkdocs.yml)."""

from __future__ import annotations

from typing import Any

from griffe import Extension, Object
from site_text import shown


class Shown(Extension):
    """Rewrites every docstring as it is read."""

    def on_object(self, *, obj: Object, **_: Any) -> None:
        """Called for each module, class, function and attribute."""
        if obj.docstring is not None:
            obj.docstring.value = shown(obj.docstring.value)

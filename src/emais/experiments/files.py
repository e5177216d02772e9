"""Files that are written whole or not at all."""

from __future__ import annotations

from pathlib import Path


def write_whole(path: Path, text: str) -> None:
    """Write a text; what was there before stays until all of the new text is on the disk."""
    if path.exists() and not path.is_file():  # such as /dev/stdout
        path.write_text(text, encoding="utf-8")
        return
    target = path.resolve()  # of a link what it points to
    part = target.with_name(f"{target.name}.part")
    try:
        part.write_text(text, encoding="utf-8")
        part.replace(target)
    finally:
        part.unlink(missing_ok=True)

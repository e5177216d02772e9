"""Files that are written whole or not at all."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path


def replaced(target: Path, write: Callable[[Path], object]) -> None:
    """Have a file written under another name beside its own, which it gets when it is complete."""
    part = target.with_name(f"{target.name}.{os.getpid()}.part")
    try:
        write(part)
        if target.exists():
            with suppress(OSError):  # a file system without modes
                shutil.copymode(target, part)
        part.replace(target)
    finally:
        part.unlink(missing_ok=True)


def write_whole(path: Path, text: str) -> None:
    """Write a text; what was there before stays until the new text is complete, where that can be had."""
    if path.exists() and not (path.is_file() and os.access(path, os.W_OK)):
        path.write_text(text, encoding="utf-8")  # such as /dev/stdout, or a file that refuses
        return
    try:
        replaced(path.resolve(), lambda part: part.write_text(text, encoding="utf-8"))  # of a link what it points to
    except OSError as error:
        if error.errno not in (errno.EACCES, errno.EPERM, errno.ENAMETOOLONG):
            raise OSError(error.errno, error.strerror, str(path)) from None  # not the temporary file's name
        path.write_text(text, encoding="utf-8")  # a folder that takes no other files

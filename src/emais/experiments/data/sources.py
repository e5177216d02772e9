"""Files from a folder, a .zip or a .tar.gz, read in the same way and with errors that name the file."""

from __future__ import annotations

import io
import os
import tarfile
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path

from ...errors import EmaisError

DAMAGED = (OSError, EOFError, zlib.error, zipfile.BadZipFile, tarfile.TarError, RuntimeError)


class Source:
    """A tree of files; names are relative, with slashes."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def names(self) -> list[str]:
        """All files, sorted."""
        raise NotImplementedError

    def content(self, name: str) -> bytes:
        """The bytes of a file; KeyError where there is none of that name."""
        raise NotImplementedError

    def stamp(self, name: str) -> tuple[int, int]:
        """Two numbers that change with a file, without reading it."""
        raise NotImplementedError

    def read(self, name: str) -> bytes:
        """The bytes of a file, or an error that says which file of what could not be read."""
        try:
            return self.content(name)
        except KeyError:
            raise EmaisError(f"{self.path} has no file {name}: it is incomplete, get it again") from None
        except DAMAGED as error:
            raise EmaisError(f"{self.where(name)} cannot be read ({error}): get it again") from error

    def where(self, name: str) -> str:
        """A file's place, for messages."""
        return str(self.path / name)

    def __enter__(self) -> Source:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing to close, unless a subclass has something."""


class Folder(Source):
    """Files on the disk."""

    def names(self) -> list[str]:
        """All files below, sorted."""
        start = len(os.path.join(self.path, ""))
        found = (os.path.join(at, name) for at, _, names in os.walk(self.path) for name in names)
        return sorted(path[start:].replace(os.sep, "/") for path in found)

    def content(self, name: str) -> bytes:
        """The bytes of a file."""
        try:
            return (self.path / name).read_bytes()
        except FileNotFoundError:
            raise KeyError(name) from None

    def stamp(self, name: str) -> tuple[int, int]:
        """Size, and when it was last written."""
        try:
            found = os.stat(os.path.join(self.path, name))
        except OSError as error:  # not there, or a link to nothing
            raise EmaisError(f"{self.where(name)} cannot be read ({error.strerror}): get it again") from error
        return found.st_size, found.st_mtime_ns


class Zip(Source):
    """Members of a .zip, read without unpacking it; several threads may read at once."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        try:
            self._zip = zipfile.ZipFile(path)
        except DAMAGED as error:
            raise EmaisError(f"{path} is not a readable .zip ({error}): get it again") from error

    def names(self) -> list[str]:
        """All members that are files, sorted."""
        return sorted(info.filename for info in self._zip.infolist() if not info.is_dir())

    def content(self, name: str) -> bytes:
        """The bytes of a member."""
        return self._zip.read(name)

    def stamp(self, name: str) -> tuple[int, int]:
        """Size and checksum."""
        found = self._zip.getinfo(name)
        return found.file_size, found.CRC

    def __exit__(self, *_: object) -> None:
        self._zip.close()


class Tar(Source):
    """Members of a .tar.gz, all unpacked into memory: a compressed tar can only be read from its beginning."""

    def __init__(self, path: Path, content: bytes) -> None:
        super().__init__(path)
        try:
            self._members = members(content)
        except DAMAGED as error:
            raise EmaisError(f"{path} is not a readable .tar.gz ({error}): get it again") from error

    def names(self) -> list[str]:
        """All members that are files, sorted."""
        return sorted(self._members)

    def content(self, name: str) -> bytes:
        """The bytes of a member."""
        return self._members[name]


def members(content: bytes) -> Mapping[str, bytes]:
    """Name and bytes of every regular file in a .tar.gz."""
    with tarfile.open(fileobj=io.BytesIO(content), mode="r:gz") as tar:
        files = ((member.name, tar.extractfile(member)) for member in tar if member.isfile())
        return {name: file.read() for name, file in files if file is not None}

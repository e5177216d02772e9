"""Finished runs as JSON lines: appended one by one, never twice, and readable after a crash."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from ...errors import EmaisError
from ..config import Config
from .record import LAYOUT, Record, RunRecord, has_key, measures, rounded, run_key, upgraded

try:
    import fcntl
except ImportError:  # not on this system: two processes must not share a file there
    fcntl = None  # type: ignore[assignment]

__all__ = ["LAYOUT", "Record", "Results", "rounded"]

SPACE = 1 << 14  # bytes that must be free for each of up to 128 runs; a record has some 6,000


class Results:
    """A file of finished runs.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     results = Results(Path(folder) / "runs.jsonl")
    ...     config = Config("digits", "perceptron", "emais")
    ...     results.missing([config]) == [config]
    True
    """

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)

    def read(self) -> list[RunRecord]:
        """The records of all runs; any other line, such as one torn by a crash, is as if it were not there."""
        return [record for record in map(RunRecord.parse, self.lines()) if record is not None]

    def lines(self) -> list[Any]:
        """All that the file holds, runs or not."""
        return list(whole_lines(self._content()))

    def count(self) -> int:
        """How many lines there are, whole or not, but for empty ones."""
        return sum(bool(line.strip()) for line in self._content().split(b"\n"))

    def _content(self) -> bytes:
        if self.path.is_dir():
            raise EmaisError(f"{self.path} is a folder where there should be a file of runs: move it away")
        if self.path.exists() and not self.path.is_file():
            raise EmaisError(f"{self.path} is no file of runs: give another one with --results")
        return self.path.read_bytes() if self.path.exists() else b""

    def missing(self, configs: list[Config]) -> list[Config]:
        """Those that have no record yet, in their order."""
        done = {record.key for record in self.read()}
        return [config for config in configs if config.key() not in done]

    def must_be_writable(self, runs: int = 1, known: Callable[[object], bool] = has_key) -> None:
        """Say before hours of training that so many runs could not be written down; leaves no file behind.

        known: what tells a line of such a file from one of another kind.
        """
        self._must_hold(known)
        there = self.path.exists() or self.path.is_symlink()
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            if there:
                with self.path.open("a+b") as file, locked(file):
                    pass
            with tempfile.TemporaryFile(dir=self.path.resolve().parent) as probe, locked(probe):
                probe.write(bytes(SPACE * min(runs, 128)))
        except PermissionError as error:
            if not there or not os.access(self.path, os.W_OK):  # else it is the folder that takes no other files
                raise self._unwritable(error) from None
        except OSError as error:
            raise self._unwritable(error) from None

    def _must_hold(self, known: Callable[[object], bool]) -> None:
        """Refuse a file of another kind; one that is empty, or holds a single torn record, will do."""
        content = self._content().strip()
        whole = list(whole_lines(content))
        torn = not whole and content.startswith(b'{"') and b"\n" not in content
        if content and not torn and not any(map(known, whole)):
            raise EmaisError(f"{self.path} is no file of runs: give another one with --results")

    def _unwritable(self, error: OSError) -> EmaisError:
        reason = error.strerror or error
        return EmaisError(f"{self.path} cannot be written ({reason}): give another place with --results")

    def append(self, record: Record) -> bool:
        """Write the record of a run, unless another process has recorded the same run meanwhile."""
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open("a+b") as file, locked(file):
                return add(file, record)
        except OSError as error:
            raise self._unwritable(error) from None


def add(file: IO[bytes], record: Record) -> bool:
    """Write a record to an open file, unless there is one of the same run."""
    file.seek(0)
    content = file.read()
    last = content[content.rfind(b"\n") + 1 :]
    whole = any(True for _ in whole_lines(last))
    if last.startswith(b"{") and not whole:  # torn: what is left of a line that was never finished
        file.truncate(len(content) - len(last))
        last = b""
    key = run_key(upgraded(dict(record)))
    if any(has_key(line) and run_key(upgraded(line)) == key and measures(line) for line in whole_lines(content)):
        return False
    file.write((b"\n" if last else b"") + RunRecord.of(record).to_json().encode() + b"\n")
    file.flush()
    return True


def whole_lines(content: bytes) -> Iterator[Any]:
    """What the lines hold, without those that are not whole or no JSON.

    >>> list(whole_lines(b'{"seed": 0}\\n{"se\\n\\xff\\n123\\n{"seed": 1'))
    [{'seed': 0}, 123]
    """
    for line in content.split(b"\n"):
        try:
            yield json.loads(line.decode("utf-8"))
        except (ValueError, RecursionError):  # no text, or no JSON
            continue


@contextmanager
def locked(file: IO[bytes]) -> Iterator[None]:
    """No other process writes meanwhile."""
    if fcntl is not None:
        fcntl.flock(file, fcntl.LOCK_EX)
    try:
        yield
    finally:
        if fcntl is not None:
            fcntl.flock(file, fcntl.LOCK_UN)

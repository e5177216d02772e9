"""Finished runs as JSON lines: appended one by one, never twice, and readable after a crash."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from typing import IO, Any

from .config import Config

try:
    import fcntl
except ImportError:  # not on this system: two processes must not share a file there
    fcntl = None  # type: ignore[assignment]

Record = dict[str, Any]


def config_of(record: Record) -> Config:
    """The configuration that a record was made with."""
    names = [f.name for f in fields(Config)]
    return Config(**{name: record[name] for name in names if name in record})


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

    def read(self) -> list[Record]:
        """All whole records; a last line that was torn by a crash is as if it were not there."""
        if not self.path.exists():
            return []
        return list(records(self.path.read_text(encoding="utf-8")))

    def missing(self, configs: list[Config]) -> list[Config]:
        """Those that have no record yet, in their order."""
        done = {config_of(record).key() for record in self.read()}
        return [config for config in configs if config.key() not in done]

    def append(self, record: Record) -> bool:
        """Write a record, unless another process has recorded the same run meanwhile."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a+", encoding="utf-8") as file, locked(file):
            file.seek(0)
            text = file.read()
            whole = text.rfind("\n") + 1
            if whole < len(text):  # torn: what is left of a line that was never finished
                file.truncate(len(text[:whole].encode()))
            if any(config_of(r).key() == config_of(record).key() for r in records(text)):
                return False
            file.write(json.dumps(record) + "\n")
            file.flush()
        return True


def records(text: str) -> Iterator[Record]:
    """The records of all whole lines."""
    for line in text[: text.rfind("\n") + 1].splitlines():
        try:
            yield json.loads(line)
        except json.JSONDecodeError:
            continue


@contextmanager
def locked(file: IO[str]) -> Iterator[None]:
    """No other process writes meanwhile."""
    if fcntl is not None:
        fcntl.flock(file, fcntl.LOCK_EX)
    try:
        yield
    finally:
        if fcntl is not None:
            fcntl.flock(file, fcntl.LOCK_UN)

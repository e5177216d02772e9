"""The log of a run that may still be going: a file of JSON lines, or a CSV file, read as it grows."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

STEP_NAMES = ("step", "emais/step", "global_step", "trainer/global_step", "_step")  # the first that a line has counts
LARGEST_STEP = 1e15  # steps
HUGE, TINY_VALUE = 1e300, 1e-300  # beyond them differences of values would overflow, or be lost


@dataclass
class LoggedSeries:
    """One quantity: its steps, which rise, and its values, which are finite."""

    steps: list[float] = field(default_factory=list)
    values: list[float] = field(default_factory=list)

    def put(self, step: float, value: float) -> None:
        """Add a value; another one at the same step replaces it."""
        if self.steps and self.steps[-1] == step:
            self.values[-1] = value
        else:
            self.steps.append(step)
            self.values.append(value)

    def cut(self, step: float) -> None:
        """Forget what was logged at this step or later."""
        while self.steps and self.steps[-1] >= step:
            self.steps.pop()
            self.values.pop()


class RunLog:
    """What a log holds so far, by name. `read` takes in what was added; a line without its end waits for the rest.

    Lines that are no JSON objects, and values that are no finite numbers, are passed over. A line without a step counts
    as the next one. Where the steps go back, a run was resumed: what it had logged from there on is replaced.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "run.jsonl"
    ...     _ = path.write_text('{"step": 10, "loss": 2.5}\\n{"step": 20, "lo')
    ...     log = RunLog(path)
    ...     log.read()
    ...     log.series
    {'loss': LoggedSeries(steps=[10.0], values=[2.5])}
    """

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        self._start()

    def _start(self) -> None:
        self.series: dict[str, LoggedSeries] = {}
        self.step = 0.0  # the latest
        self._offset, self._file = 0, (0, 0)
        self._parse: Callable[[str], Mapping[str, Any] | None] | None = None

    def read(self) -> None:
        """Take in all whole lines that were added. A file that was replaced or cut is read from its beginning."""
        with self.path.open("rb") as file:
            size = file.seek(0, 2)
            found = self.path.stat()
            if (found.st_dev, found.st_ino) != self._file or size < self._offset:
                self._start()
                self._file = (found.st_dev, found.st_ino)
            file.seek(self._offset)
            content = file.read()
        whole = content.rfind(b"\n") + 1
        self._offset += whole
        for line in content[:whole].splitlines():
            self._add(line.decode("utf-8", "replace"))

    def _add(self, line: str) -> None:
        if not line.strip():
            return
        if self._parse is None:  # the first line tells which of the two it is
            self._parse = json_object if line.lstrip().startswith("{") else CsvLines(line)
            if isinstance(self._parse, CsvLines):
                return
        row = self._parse(line)
        if row is not None:
            self._take(row)

    def _take(self, row: Mapping[str, Any]) -> None:
        numbers = dict(numbers_of(row))
        name = next((name for name in STEP_NAMES if name in numbers), None)
        step = self.step + 1 if name is None else numbers.pop(name)
        if not step >= 0 or not numbers:
            return
        if step < self.step:
            for series in self.series.values():
                series.cut(step)
            self.series = {name: series for name, series in self.series.items() if series.steps}
        self.step = step
        for key, value in numbers.items():
            self.series.setdefault(key, LoggedSeries()).put(step, value)


def json_object(line: str) -> Mapping[str, Any] | None:
    """What a line holds, if that is an object."""
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


class CsvLines:
    """Lines under a heading."""

    def __init__(self, heading: str) -> None:
        self._names = next(csv.reader([heading]), [])

    def __call__(self, line: str) -> Mapping[str, Any] | None:
        """A line by the names of its columns."""
        try:
            cells = next(csv.reader([line]), [])
        except csv.Error:
            return None
        return dict(zip(self._names, cells, strict=False))


def numbers_of(row: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    """The finite numbers of a line, also where they are written as text.

    >>> dict(numbers_of({"a": 1, "b": "2.5", "c": None, "d": float("nan"), "e": [1], "f": True, "g": "x"}))
    {'a': 1.0, 'b': 2.5}
    """
    for name, value in row.items():
        if isinstance(value, bool) or not isinstance(value, int | float | str):
            continue
        try:
            number = float(value)
        except (ValueError, OverflowError):
            continue
        if math.isfinite(number) and abs(number) <= HUGE:
            yield name, number if abs(number) >= TINY_VALUE else 0.0

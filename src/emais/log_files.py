"""Where the rows of a log go: files of JSON lines or CSV, TensorBoard, or a function."""

from __future__ import annotations

import csv
import io
import json
import math
import os
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import torch

from .errors import EmaisError

R_EDGES = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0)  # of the histogram of r: one bin below, one above
Numbers = dict[str, Any]


class Sink(Protocol):
    """Where rows go."""

    def write(self, row: Numbers, step: int) -> None:
        """One row."""

    def close(self) -> None:
        """No row follows."""


def sink_of(to: Any) -> Sink:
    """What writes to a path, a writer or a function."""
    if isinstance(to, str | Path):
        path = Path(to)
        if path.suffix not in (".jsonl", ".csv"):
            raise EmaisError(f"a log is a .jsonl or a .csv file, got {str(to)!r}: choose one of these endings")
        return JsonLines(path) if path.suffix == ".jsonl" else Csv(path)
    if hasattr(to, "add_scalar"):
        return TensorBoard(to)
    if callable(to):
        return Called(to)
    raise EmaisError(
        f"a log goes to a path, a TensorBoard writer, or a function of (numbers, step=), got {type(to).__name__}"
    )


class GrowingFile:
    """A file that is appended to, line by line, so that others can read along.

    Where the steps go back, a run was resumed: what the file has from there on is dropped, so that a step occurs once.
    step_of: the step of a line, or None; whole: whether a last line without its end is all there.
    """

    def __init__(self, path: Path, step_of: Callable[[str], float | None], whole: Callable[[str], bool]) -> None:
        self._path, self._step_of, self._whole = path, step_of, whole
        self._file = path.open("a", encoding="utf-8", newline="")
        self._step: int | None = None  # of the latest row

    def add(self, line: str, step: int) -> None:
        """Write a line of a step."""
        if self._step is None or step <= self._step:
            self._drop_from(step)
        self._file.write(f"{line}\n")
        self._file.flush()
        self._step = step

    def lines(self) -> list[str]:
        """The lines that are there, without one that was torn."""
        found = self._path.read_text("utf-8", errors="surrogateescape").split("\n")
        last = found.pop()
        return [*found, last] if last and self._whole(last) else found

    def _drop_from(self, step: int) -> None:
        before = self._path.read_bytes()
        kept = [line for line in self.lines() if not (self._step_of(line) or 0) >= step]
        after = "".join(f"{line}\n" for line in kept).encode("utf-8", "surrogateescape")
        if after == before:
            return
        self._file.close()
        beside = self._path.with_name(f"{self._path.name}.new")
        beside.write_bytes(after)
        os.replace(beside, self._path)  # a reader sees the one or the other
        self._file = self._path.open("a", encoding="utf-8", newline="")

    def close(self) -> None:
        """Close the file."""
        self._file.close()


class JsonLines:
    """One JSON object a line, written at once; null for what is not finite."""

    def __init__(self, path: Path) -> None:
        self._file = GrowingFile(path, json_step, lambda line: json_row(line) is not None)

    def write(self, row: Numbers, step: int) -> None:
        """One line; r as counts between `R_EDGES`."""
        r = row.pop("emais/r")
        counts = torch.bucketize(r, torch.tensor(R_EDGES, device="cpu")).bincount(minlength=len(R_EDGES) + 1).tolist()
        values = {name: value if math.isfinite(value) else None for name, value in row.items()}
        self._file.add(json.dumps({"step": step, **values, "emais/r_histogram": counts}), step)

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def json_row(line: str) -> Numbers | None:
    """What a line holds, if that is a JSON object."""
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def json_step(line: str) -> float | None:
    """The step of a line of JSON.

    >>> json_step('{"step": 5}'), json_step("torn")
    (5, None)
    """
    step = (json_row(line) or {}).get("step")
    return step if isinstance(step, int | float) else None


class Csv:
    """A row a line, under the names of the first; an empty cell for what is not finite."""

    def __init__(self, path: Path) -> None:
        # a number may have lost its last digits, so a last line without its end is never taken as whole
        self._file = GrowingFile(path, self._step_of, lambda line: False)
        self._names = next(csv.reader(self._file.lines()[:1]), [])
        self._path, self._told = path, False

    def _step_of(self, line: str) -> float | None:
        cells = dict(zip(self._names, next(csv.reader([line]), []), strict=False))
        try:
            return float(cells["step"])
        except (KeyError, ValueError):
            return None

    def write(self, row: Numbers, step: int) -> None:
        """One line."""
        del row["emais/r"]
        values = {"step": step, **row}
        heading = "" if self._names else f"{csv_line(list(values))}\n"
        self._names = self._names or list(values)
        new = sorted(values.keys() - set(self._names))
        if new and not self._told:
            self._told = True
            warnings.warn(
                f"{', '.join(new)} are no columns of {self._path}, so they are left out: give them from the first row "
                "on, or log to a .jsonl file, whose rows may differ",
                stacklevel=4,
            )
        cells = [csv_cell(values.get(name, math.nan)) for name in self._names]
        self._file.add(f"{heading}{csv_line(cells)}", step)

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def csv_line(cells: list[str]) -> str:
    """A line of CSV.

    >>> csv_line(["a,b", "c"])
    '"a,b",c'
    """
    written = io.StringIO()
    csv.writer(written, lineterminator="").writerow(cells)
    return written.getvalue()


def csv_cell(value: float) -> str:
    """A number for a cell.

    >>> csv_cell(0.1), csv_cell(math.nan)
    ('0.1', '')
    """
    return str(value) if math.isfinite(value) else ""


class TensorBoard:
    """A scalar for each number, and a histogram of r; numbers that are not finite are left out."""

    def __init__(self, writer: Any) -> None:
        self._writer = writer

    def write(self, row: Numbers, step: int) -> None:
        """One step."""
        r = row.pop("emais/r")
        if len(r):
            self._writer.add_histogram("emais/r", r, step)
        for name, value in row.items():
            if math.isfinite(value):
                self._writer.add_scalar(name, value, step)

    def close(self) -> None:
        """The writer is the user's."""


class Called:
    """A function that takes the numbers that are finite."""

    def __init__(self, function: Callable[..., object]) -> None:
        self._function = function

    def write(self, row: Numbers, step: int) -> None:
        """One call."""
        del row["emais/r"]
        self._function({name: value for name, value in row.items() if math.isfinite(value)}, step=step)

    def close(self) -> None:
        """Nothing was opened."""

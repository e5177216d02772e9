"""A log of a run: its numbers every so many steps, into a file, to TensorBoard, or to any function."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import torch

from .engine import Engine
from .errors import EmaisError, positive_int

SUMMARY = (
    "n_ems", "score", "score_low", "score_high", "lr_scale", "tr_is", "tr_unif", "tr_opt", "max_r", "max_share",
    "effective_steps", "steps_saved", "fallback_steps",
)  # fmt: skip
COUNTS = ("nonfinite", "degenerate")
R_EDGES = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0)  # of the histogram of r: one bin below, one above
Numbers = dict[str, Any]


def log_numbers(engine: Engine, steps: int | None = None) -> dict[str, float]:
    """The numbers of the latest steps (default: epoch) by the names that all loggers use, such as `emais/n_ems`.

    N_ems, S(W) and the factor are made from averages over these steps; `emais/lr` is the learning rate of the latest
    step, with its factor. docs/guides/logging.md has the list.

    >>> import emais
    >>> sorted(log_numbers(emais.EMAIS(100, 10)))[:3]
    ['emais/degenerate', 'emais/effective_steps', 'emais/fallback_steps']
    """
    summary, diagnostics = engine.summary(steps), engine.diagnostics
    found = {name: float(getattr(summary, name)) for name in SUMMARY}
    found |= {name: float(getattr(diagnostics, name)) for name in COUNTS}
    if engine.attached.lr is not None:
        found["lr"] = float(engine.attached.lr) * float(engine.attached.applied)
    return {f"emais/{name}": value for name, value in found.items()}


class Sink(Protocol):
    """Where rows go."""

    def write(self, row: Numbers, step: int) -> None:
        """One row."""

    def close(self) -> None:
        """No row follows."""


class Log:
    """Writes down a run every so many steps. Call `step` after each `optimizer.step()`.

    to: a path that ends in .jsonl or .csv, which is appended to; TensorBoard's SummaryWriter; or a function that is
    called as to(numbers, step=...), such as wandb.log or mlflow.log_metrics. every: steps between two rows; a row is of
    these steps, of at most an epoch.

    >>> import emais
    >>> imp = emais.EMAIS(100, 10)
    >>> log = Log(lambda numbers, step: print(step, numbers["loss"]), imp, every=2)
    >>> log.step(loss=0.5); log.step(loss=0.25)
    2 0.25
    """

    def __init__(self, to: Any, engine: Engine, *, every: int = 50) -> None:
        if not isinstance(engine, Engine):
            raise EmaisError(f"a log needs the engine, got {type(engine).__name__}: emais.Log(to, imp)")
        self._engine, self.every, self._count = engine, positive_int("every", every), 0
        self._sink = sink_of(to)

    def step(self, **more: float) -> None:
        """An optimizer step was made; more: numbers of your own, such as loss=..., written as they are now."""
        if "step" in more:
            raise EmaisError("the log counts the steps itself: give step= another name")
        self._count += 1
        if self._count % self.every == 0:
            step = self._engine.summary(1).steps or self._count
            row: Numbers = {name: float(torch.as_tensor(value).detach()) for name, value in more.items()}
            row |= log_numbers(self._engine, self.every)
            self._sink.write(row | {"emais/r": self._engine.diagnostics.r}, step)

    def close(self) -> None:
        """Close the file, if there is one."""
        self._sink.close()

    def __enter__(self) -> Log:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


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


class JsonLines:
    """One JSON object a line, written at once, so that others can read along; null for what is not finite."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("a", encoding="utf-8")

    def write(self, row: Numbers, step: int) -> None:
        """One line; r as counts between `R_EDGES`."""
        r = row.pop("emais/r")
        counts = torch.bucketize(r, torch.tensor(R_EDGES)).bincount(minlength=len(R_EDGES) + 1).tolist()
        values = {name: value if math.isfinite(value) else None for name, value in row.items()}
        self._file.write(json.dumps({"step": step, **values, "emais/r_histogram": counts}) + "\n")
        self._file.flush()

    def close(self) -> None:
        """Close the file."""
        self._file.close()


class Csv:
    """A row a line, under the names of the first; an empty cell for what is not finite."""

    def __init__(self, path: Path) -> None:
        found = path.read_text("utf-8").splitlines()[:1] if path.is_file() else []
        self._names = next(csv.reader(found), [])
        self._file = path.open("a", encoding="utf-8", newline="")

    def write(self, row: Numbers, step: int) -> None:
        """One line."""
        del row["emais/r"]
        values = {"step": step, **row}
        if not self._names:
            self._names = list(values)
            csv.writer(self._file).writerow(self._names)
        if new := sorted(values.keys() - set(self._names)):
            raise EmaisError(f"the columns of this log are {', '.join(self._names)}: {new[0]} is not among them")
        csv.writer(self._file).writerow([shown(values.get(name, math.nan)) for name in self._names])
        self._file.flush()

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def shown(value: float) -> str:
    """A number for a cell.

    >>> shown(0.1), shown(math.nan)
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

"""Finished runs as JSON lines: appended one by one, never twice, and readable after a crash."""

from __future__ import annotations

import json
import math
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from typing import IO, Any

from ...errors import EmaisError
from ..config import Config, told_apart

try:
    import fcntl
except ImportError:  # not on this system: two processes must not share a file there
    fcntl = None  # type: ignore[assignment]

Record = dict[str, Any]
METRICS = ("test_error", "map")
SPACE = 1 << 14  # bytes that must be free for each of up to 128 runs; a record has some 6,000
RUN = {"model", "method", "optimizer", "num_steps", "seed"}  # what the record of a run has in any case


LAYOUT = 2  # of the records that this version writes; `upgraded` reads older ones, which do not say theirs


def upgraded(record: Record) -> Record:
    """A record of the first layout in the words of this one: what these words meant then has other names today.

    `lenet5` was the network with ReLU, the schedule counted effective steps under RAIS's learning-rate rule,
    Self-paced set 1/K from its first minibatch, and EMAIS-auto had the powers 1 and 0.5. That a record has no `layout`
    goes on telling that it is old.

    >>> old = {"model": "lenet5", "method": "rais", "rule": None, "options": {}}
    >>> upgraded(old)
    {'model': 'lenet5-relu', 'method': 'rais', 'rule': None, 'options': {}, 'schedule': 'effective'}
    >>> upgraded(upgraded(old)) == upgraded(old), upgraded({**old, "layout": 2})["model"]
    (True, 'lenet5')
    """
    if "layout" in record:
        return record
    found = {**record, "model": {"lenet5": "lenet5-relu"}.get(record["model"], record["model"])}
    if record.get("rule") == "rais" or (record["method"] == "rais" and record.get("rule") is None):
        found.setdefault("schedule", "effective")
    then: dict[str, Record] = {"self-paced": {"warmup_epochs": 0}, "emais-auto": {"powers": [1, 0.5]}}
    found["options"] = then.get(record["method"], {}) | record.get("options", {})
    return found


def key_of(record: Record) -> tuple[Any, ...]:
    """`Config.key` of the run that a record is of, which may be one that this version knows nothing about.

    >>> config = Config("digits", "perceptron", "emais", seed=3, options={"tau": 5})
    >>> key_of(vars(config)) == config.key()
    True
    """
    values = [record.get(f.name, f.default) for f in fields(Config) if f.name != "options"]
    return (*values, *told_apart(record.get("options", {})))


def is_run(record: object) -> bool:
    """Whether this can be the record of a run."""
    return has_key(record) and measures(record)  # type: ignore[arg-type]


def has_key(record: object) -> bool:
    """Whether this says which run it is of."""
    if not isinstance(record, dict) or not record.keys() >= RUN or not isinstance(record["seed"], int):
        return False
    try:
        hash(key_of(record))
    except (TypeError, AttributeError):  # a list or a mapping where there should be a number, or the other way round
        return False
    return True


def measures(record: Record) -> bool:
    """Whether what a record has measured is made of numbers, and its curves are of one length.

    >>> measures({"test_error": None, "curves": {"step": [1, 2], "loss": [0.5, None]}}), measures({"test_error": "x"})
    (True, False)
    """
    curves = record.get("curves", {})
    if not isinstance(curves, dict) or not all(isinstance(points, list) for points in curves.values()):
        return False
    tests = [name for name in curves if "test_step" in curves and name in (*METRICS, "test_step")]
    lengths = [{len(curves[name]) for name in curves if (name in tests) is here} for here in (True, False)]
    single = [record.get(name) for name in (*METRICS, "recalibrated")]
    values = [*single, *(x for points in curves.values() for x in points)]
    return (
        all(len(found) <= 1 for found in lengths)
        and all(x is None or isinstance(x, int | float) for x in values)
        and isinstance(record.get("ms_per_step", 0), int | float)
    )


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
        """The records of all runs; any other line, such as one torn by a crash, is as if it were not there."""
        return [upgraded(line) for line in self.lines() if is_run(line)]

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
        done = set(map(key_of, self.read()))
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
        """Write a record, unless another process has recorded the same run meanwhile."""
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
    key = key_of(upgraded(record))
    if any(has_key(line) and key_of(upgraded(line)) == key and measures(line) for line in whole_lines(content)):
        return False
    file.write((b"\n" if last else b"") + json.dumps(record).encode() + b"\n")
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


def rounded(value: Any) -> Any:
    """Floats to six digits, NaN to null, all through a nested record.

    >>> rounded({"a": [1 / 3, float("nan")], "b": 2})
    {'a': [0.333333, None], 'b': 2}
    """
    if isinstance(value, dict):
        return {k: rounded(v) for k, v in value.items()}
    if isinstance(value, list):
        return [rounded(v) for v in value]
    if isinstance(value, float):
        return float(f"{value:.6g}") if math.isfinite(value) else None
    return value

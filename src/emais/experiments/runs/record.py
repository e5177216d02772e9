"""The record of one run: what a line of a result file says, with a type for each thing that is read from it."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any, TypeGuard

from ...errors import EmaisError
from ..config import Config, option_key
from ..numbers import number

Record = Mapping[str, Any]  # whatever reads like a record: of a run, of a study, of a measured time
Key = tuple[Any, ...]

LAYOUT = 2  # of the records that this version writes; `upgraded` reads older ones, which do not say theirs
METRICS = ("test_error", "map")
IDENTITY = {"model", "method", "optimizer", "num_steps", "seed"}  # what the record of a run has in any case
MEASURED = {"data", "ms_per_step"}  # and what tables and figures need besides
CURVES_NEEDED = {"step", "loss", "n_ems", "score", "test_step"}


@dataclass(frozen=True, eq=False)
class RunRecord(Mapping[str, Any]):
    """The record of a run, in today's words. It reads like a mapping, and equals one with the same entries.

    entries: all that the line has, known to this version or not; they are written as they were read.

    >>> record = RunRecord({"model": "lenet5", "method": "emais", "seed": 3, "curves": {"loss": [0.5, None]}})
    >>> record.seed, record["seed"], record.curve("loss"), record.hardware
    (3, 3, [0.5, nan], None)
    """

    entries: Mapping[str, Any]

    @classmethod
    def of(cls, record: Record) -> RunRecord:
        """The same record with types; itself if it has them already."""
        return record if isinstance(record, cls) else cls(record)

    @classmethod
    def parse(cls, line: object) -> RunRecord | None:
        """From what a JSON line holds; None where that is no record of a run.

        >>> RunRecord.parse({"note": "no run"}) is None
        True
        """
        return cls(upgraded(line)) if is_run(line) else None

    def to_json(self) -> str:
        """As one line of a file, without its end."""
        return json.dumps(dict(self.entries))

    # ---- as a mapping

    def __getitem__(self, name: str) -> Any:
        return self.entries[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.entries)

    def __len__(self) -> int:
        return len(self.entries)

    def __or__(self, changes: Record) -> RunRecord:
        return RunRecord({**self.entries, **changes})

    # ---- which run it is of

    @property
    def data(self) -> str:
        """The data set's name."""
        return str(self.entries["data"])

    @property
    def num_steps(self) -> int:
        """The length of the run."""
        return int(self.entries["num_steps"])

    @property
    def steps(self) -> int:
        """Steps that the run took; fewer than `num_steps` where it ended at equal progress."""
        return int(self.entries.get("steps", self.num_steps))

    @property
    def seed(self) -> int:
        """The seed of the run."""
        return int(self.entries["seed"])

    @cached_property
    def key(self) -> Key:
        """`Config.key` of the run, also where this version does not know one of its settings."""
        return run_key(self.entries)

    @cached_property
    def setting_key(self) -> Key:
        """`key` with the seed 0: what all seeds of a setting share."""
        return run_key({**self.entries, "seed": 0})

    @cached_property
    def config(self) -> Config | None:
        """The configuration; None where this version does not know its data, model, method or settings."""
        known = {f.name: self.entries[f.name] for f in fields(Config) if f.name in self.entries}
        try:
            return Config(**known)
        except EmaisError:
            return None

    # ---- what was measured

    @property
    def curves(self) -> Mapping[str, list[Any]]:
        """Numbers along the run, by name; null stands for one that is not finite."""
        found: Mapping[str, list[Any]] = self.entries["curves"]
        return found

    def curve(self, name: str) -> list[float]:
        """One of the curves; NaN where it has null."""
        return [number(value) for value in self.curves[name]]

    def value(self, metric: str) -> float:
        """`test_error`, `map` or `recalibrated`, in percent; NaN where the run has none."""
        return number(self.entries.get(metric))

    @property
    def ms_per_step(self) -> float:
        """Milliseconds of training for each step."""
        return float(self.entries["ms_per_step"])

    @property
    def complete(self) -> bool:
        """Whether it has what the tables and figures need."""
        curves = self.entries.get("curves")
        return self.entries.keys() >= MEASURED and isinstance(curves, Mapping) and curves.keys() >= CURVES_NEEDED

    # ---- where it comes from

    @property
    def data_title(self) -> str | None:
        """The data set as it was found: whole, or a subset."""
        return self._text("data_title")

    @property
    def hardware(self) -> str | None:
        """The GPU or processor."""
        return self._text("hardware")

    @property
    def source(self) -> str | None:
        """The hash of the code that made it."""
        return self._text("source")

    @property
    def layout(self) -> int | None:
        """The layout of the line; None for the first one, which did not say."""
        found: int | None = self.entries.get("layout")
        return found

    def _text(self, name: str) -> str | None:
        found = self.entries.get(name)
        return None if found is None else str(found)


def typed(records: Iterable[Record]) -> list[RunRecord]:
    """Records of runs with types, as analysis reads them."""
    return [RunRecord.of(record) for record in records]


# ---- what a line says


def run_key(record: Record) -> Key:
    """`Config.key` of the run that a record is of, which may be one that this version knows nothing about.

    >>> config = Config("digits", "perceptron", "emais", seed=3, options={"tau": 5})
    >>> run_key(vars(config)) == config.key()
    True
    """
    values = [record.get(f.name, f.default) for f in fields(Config) if f.name != "options"]
    return (*values, *option_key(record.get("options", {})))


def upgraded(record: dict[str, Any]) -> dict[str, Any]:
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
    then: dict[str, dict[str, Any]] = {"self-paced": {"warmup_epochs": 0}, "emais-auto": {"powers": [1, 0.5]}}
    found["options"] = then.get(record["method"], {}) | record.get("options", {})
    return found


# ---- whether a line is a record of a run


def is_run(line: object) -> TypeGuard[dict[str, Any]]:
    """Whether this can be the record of a run."""
    return has_key(line) and measures(line)


def has_key(line: object) -> TypeGuard[dict[str, Any]]:
    """Whether this says which run it is of."""
    if not isinstance(line, dict) or not line.keys() >= IDENTITY or not isinstance(line["seed"], int):
        return False
    try:
        hash(run_key(line))
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
    finals = [record.get(name) for name in (*METRICS, "recalibrated")]
    values = [*finals, *(x for points in curves.values() for x in points)]
    return (
        equally_long(curves)
        and all(x is None or isinstance(x, int | float) for x in values)
        and isinstance(record.get("ms_per_step", 0), int | float)
    )


def equally_long(curves: Mapping[str, list[Any]]) -> bool:
    """Whether all curves have as many points, those of the test set and the others apart.

    >>> equally_long({"step": [1, 2], "loss": [3, 4], "test_step": [2], "test_error": [9]})
    True
    """
    tests = [name for name in curves if "test_step" in curves and name in (*METRICS, "test_step")]
    lengths = [{len(curves[name]) for name in curves if (name in tests) is here} for here in (True, False)]
    return all(len(found) <= 1 for found in lengths)


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

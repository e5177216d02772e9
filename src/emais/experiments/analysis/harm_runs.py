"""The runs of the harm suite (benchmarks/harm): a line of harm.jsonl, the problems and the methods."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

HARM_FILE = "harm.jsonl"
FIRST_TUNING_SEED = 100  # runs with this seed or a later one were made to tune SGD-Scan


@dataclass(frozen=True)
class Entry:
    """A method in one of the forms: equal "steps", equal "progress", or "shortened" to the steps of the latter."""

    method: str
    form: str


BASE = Entry("sgd-scan", "steps")
REPLACED = Entry("sgd-uni", "steps")  # what drawing with replacement costs by itself
PAPER = Entry("emais", "steps")
EQUAL_STEPS = Entry("emais-auto", "steps")
PROGRESS = Entry("emais-auto", "progress")
SHORTENED = Entry("sgd-scan", "shortened")
ENTRIES = {  # in the order of the tables; shortened comes after the run at equal progress
    BASE: "SGD-Scan",
    REPLACED: "SGD-Uni",
    PAPER: "EMAIS, paper",
    EQUAL_STEPS: "EMAIS-auto, equal steps",
    PROGRESS: "EMAIS-auto, equal progress",
    SHORTENED: "SGD-Scan, shortened",
}
PROBLEMS = {
    "wine": "wine (106 samples)",
    "digits-n512": "digits with N = 512",
    "breast-cancer": "breast cancer",
    "diabetes": "diabetes (regression)",
    "diabetes-outliers": "diabetes with 8 outliers",
    "digits": "digits",
    "digits-wrong10": "digits with 10 % wrong labels",
    "digits-wrong40": "digits with 40 % wrong labels",
    "digits-rare": "digits: is it an 8? (1 %)",
    "digits-duplicates": "digits with many duplicates",
    "digits-noise": "digits with strong augmentation",
    "sst2": "SST-2 (8,000 sentences)",
    "digits-n2": "digits with N = 2",
    "digits-long": "digits (long run)",
    "fmnist-short": "Fashion-MNIST (short run)",
    "fmnist-long": "Fashion-MNIST (long run)",
}


@dataclass(frozen=True)
class Tuned:
    """What is tuned: learning rate and weight decay."""

    rate: float
    decay: float


@dataclass(frozen=True)
class HarmRun:
    """A run, as it is kept. A number that is not finite is None.

    planned: steps of the schedule; start_loss: on training samples, before the first step; errors: percent of wrong
    classes, or the mean absolute deviation.
    """

    problem: str
    method: str
    form: str
    seed: int
    rate: float
    decay: float
    planned: int
    steps: int
    effective_steps: float
    mean_factor: float
    max_factor: float
    max_r: float
    start_loss: float | None
    train_loss: float | None
    train_error: float | None
    valid_loss: float | None
    valid_error: float | None
    test_loss: float | None
    test_error: float | None
    seconds: float
    source: str

    @property
    def entry(self) -> Entry:
        """The method and its form."""
        return Entry(self.method, self.form)

    @property
    def tuned(self) -> Tuned:
        """The setting that it was made with."""
        return Tuned(self.rate, self.decay)

    @property
    def diverged(self) -> bool:
        """Whether a loss is not finite, or the training loss is above that of the untrained network."""
        start, end = self.start_loss, self.train_loss
        return start is None or end is None or None in (self.valid_loss, self.test_loss) or end > start


def read_harm(path: Path) -> list[HarmRun]:
    """The runs of a file, or of harm.jsonl in a folder; none if there is no such file."""
    path = path / HARM_FILE if path.is_dir() else path
    lines = path.read_text("utf-8").splitlines() if path.is_file() else []
    return [HarmRun(**json.loads(line)) for line in lines]

"""Runs at equal progress beside SGD-Scan over all steps, and beside SGD-Scan shortened to as few: paired by seed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from ..config import Config
from ..numbers import mean_sd
from ..runs.catalogue import ITEMS
from ..runs.leaders import leader_of
from ..runs.record import Record, RunRecord
from .harm_differences import Difference, paired
from .settings import Setting, of_item

PAIRED = ("test_error", "train_loss")


@dataclass(frozen=True)
class ProgressRow:
    """One data set, network, rate and T: SGD-Scan, EMAIS-auto at equal progress, and SGD-Scan shortened."""

    base: Setting
    progress: Setting
    shortened: Setting

    @property
    def config(self) -> Config:
        """SGD-Scan's."""
        return self.base.config

    @property
    def seeds(self) -> int:
        """That all three have been run with, at least."""
        return min(len(setting.records) for setting in (self.base, self.progress, self.shortened))

    @property
    def share(self) -> float:
        """The steps that equal progress took, over those of SGD-Scan with the same seeds."""
        own, base = self._pairs(self.progress)
        return sum(run.steps for run in own) / sum(run.steps for run in base) if own else math.nan

    def mean(self, setting: Setting, kind: str) -> float:
        """Of the test error or the training loss over the seeds."""
        return mean_sd([run.value(kind) for run in setting.records])[0]

    def difference(self, setting: Setting, kind: str) -> Difference:
        """To SGD-Scan with the same seeds."""
        own, base = self._pairs(setting)
        return paired([run.value(kind) for run in own], [run.value(kind) for run in base])

    def marks(self, setting: Setting) -> list[str]:
        """For test error and training loss "worse" or "better" by more than two standard errors, or nothing."""
        return [self.difference(setting, kind).mark for kind in PAIRED]

    def _pairs(self, setting: Setting) -> tuple[list[RunRecord], list[RunRecord]]:
        base = {run.seed: run for run in self.base.records}
        own = [run for run in setting.records if run.seed in base]
        return own, [base[run.seed] for run in own]


def progress_rows(records: Sequence[Record], complete: bool = True) -> list[ProgressRow]:
    """The rows of which all three settings were run with two seeds at least, or all rows."""
    found = {s.config.key(): s for s in of_item(ITEMS["equal_progress"], records)}
    rows = []
    for short in found.values():
        if short.config.follow:
            base = found[replace(short.config, follow="").key()]
            rows.append(ProgressRow(base, found[leader_of(short.config).key()], short))
    return [
        row for row in rows if not complete or min(len(s.records) for s in (row.base, row.progress, row.shortened)) > 1
    ]

"""The table: paired differences to SGD-Scan with their standard errors, and how often a method is worse."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from .suite import BASE, ENTRIES, FIRST_TUNING_SEED
from .training import Entry, Run

LIMIT = 2.0  # standard errors
HEAD = ("problem", "method", "test loss", "± s.e.", "", "test error", "± s.e.", "", "train loss", "steps %", "seeds")
TITLES = {
    BASE: "SGD-Scan",
    Entry("emais", "steps"): "EMAIS, paper",
    Entry("emais-auto", "steps"): "EMAIS-auto, equal steps",
    Entry("emais-auto", "progress"): "EMAIS-auto, equal progress",
    Entry("sgd-scan", "shortened"): "SGD-Scan, shortened",
}


@dataclass(frozen=True)
class Difference:
    """The mean of paired differences and its standard error, infinite where a run diverged, NaN with one pair."""

    mean: float
    error: float

    @property
    def mark(self) -> str:
        """WORSE or better where the mean is more than two standard errors from 0."""
        if self.mean == math.inf or self.mean > LIMIT * self.error:
            return "WORSE"
        return "better" if self.mean < -LIMIT * self.error else ""


def difference(own: Sequence[float | None], base: Sequence[float | None]) -> Difference:
    """Of pairs, own minus base; None stands for a run that diverged, and such a base takes its pair out."""
    pairs = [(x, y) for x, y in zip(own, base, strict=True) if y is not None]
    if any(x is None for x, _ in pairs):
        return Difference(math.inf, math.nan)
    gaps = [x - y for x, y in pairs if x is not None]
    if not gaps:
        return Difference(math.nan, math.nan)
    error = statistics.stdev(gaps) / math.sqrt(len(gaps)) if len(gaps) > 1 else math.nan
    return Difference(statistics.mean(gaps), error)


@dataclass(frozen=True)
class Line:
    """A method on a problem, against SGD-Scan with the same seeds."""

    problem: str
    entry: Entry
    own: list[Run]
    base: list[Run]

    def difference(self, kind: str) -> Difference:
        """kind: test_loss, test_error, train_loss."""
        own, base = ([None if run.diverged else getattr(run, kind) for run in runs] for runs in (self.own, self.base))
        return difference(own, base)

    def average(self, kind: str) -> float:
        """Of the method itself, over the runs that did not diverge."""
        values = [getattr(run, kind) for run in self.own if not run.diverged]
        return statistics.mean(values) if values else math.nan

    @property
    def diverged(self) -> int:
        """How many runs did."""
        return sum(run.diverged for run in self.own)

    @property
    def steps(self) -> float:
        """Percent of SGD-Scan's."""
        return 100 * sum(run.steps for run in self.own) / sum(run.steps for run in self.base)

    def cells(self) -> tuple[str, ...]:
        train, share, seeds = f"{self.average('train_loss'):.4g}", f"{self.steps:.1f}", str(len(self.own))
        if self.entry == BASE:
            means = (f"{self.average('test_loss'):.4f}", "", "", f"{self.average('test_error'):.3f}", "", "")
            return (self.problem, TITLES[BASE], *means, train, share, seeds)
        loss, error = self.difference("test_loss"), self.difference("test_error")
        if self.diverged:
            return (
                "",
                TITLES[self.entry],
                f"{self.diverged} diverged",
                "",
                loss.mark,
                "",
                "",
                error.mark,
                train,
                share,
                seeds,
            )
        first = (f"{loss.mean:+.4f}", f"{loss.error:.4f}", loss.mark)
        second = (f"{error.mean:+.3f}", f"{error.error:.3f}", error.mark)
        return ("", TITLES[self.entry], *first, *second, train, share, seeds)


def lines(runs: Sequence[Run]) -> Iterator[Line]:
    """For every problem SGD-Scan, and each method on the seeds that both have, with the setting that was run last."""
    compared = [run for run in runs if run.seed < FIRST_TUNING_SEED]
    for problem in dict.fromkeys(run.problem for run in compared):
        latest = [run for run in compared if run.problem == problem][-1].setting
        own = [run for run in compared if run.problem == problem and run.setting == latest]
        base = {run.seed: run for run in own if run.entry == BASE}
        for entry in ENTRIES:
            found = {run.seed: run for run in own if run.entry == entry and run.seed in base}
            if found:
                yield Line(problem, entry, list(found.values()), [base[seed] for seed in found])


def text(runs: Sequence[Run]) -> str:
    """The table and the counts. Of methods the numbers are differences to SGD-Scan, but for training loss and steps."""
    found = list(lines(runs))
    rows = [HEAD, *(line.cells() for line in found)]
    widths = [max(len(row[k]) for row in rows) for k in range(len(HEAD))]
    body = [
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |" for row in rows
    ]
    body.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    sources = sorted({run.source for run in runs})
    return "\n".join([*body, "", *counts(found), f"source of the library: {', '.join(sources)}"])


def counts(found: Sequence[Line]) -> Iterator[str]:
    """For each method, on how many problems it is worse, or better, by more than two standard errors."""
    for entry in ENTRIES[1:]:
        own = [line for line in found if line.entry == entry]
        if not own:
            continue
        words = []
        for kind in ("test_loss", "test_error"):
            marks = [line.difference(kind).mark for line in own]
            words.append(f"{kind.replace('_', ' ')} worse on {marks.count('WORSE')}, better on {marks.count('better')}")
        diverged = sum(line.diverged for line in own)
        share = statistics.mean(line.steps for line in own)
        words += [f"{diverged} runs diverged", f"{share:.1f} % of the steps"]
        yield f"{TITLES[entry]}, {len(own)} problem{'s' * (len(own) > 1)}: {'; '.join(words)}"
    yield "By chance a method without any effect gets each mark on about 4 of 100 problems (ten seeds)."

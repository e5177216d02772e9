"""What the harm suite shows: paired differences to SGD-Scan with their standard errors, and how often one is worse."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from .harm_runs import BASE, ENTRIES, FIRST_TUNING_SEED, Entry, HarmRun, Tuned

LIMIT = 2.0  # standard errors


@dataclass(frozen=True)
class Difference:
    """The mean of paired differences and its standard error, infinite where a run diverged, NaN with one pair."""

    mean: float
    error: float

    @property
    def mark(self) -> str:
        """worse or better where the mean is more than two standard errors from 0."""
        if self.mean == math.inf or self.mean > LIMIT * self.error:
            return "worse"
        return "better" if self.mean < -LIMIT * self.error else ""


def paired(own: Sequence[float | None], base: Sequence[float | None]) -> Difference:
    """Of pairs, own minus base; None stands for a run that diverged, and such a base takes its pair out.

    >>> paired([2.0, 4.0, 9.0], [1.0, 2.0, 6.0]).mark, paired([1.0, None], [1.0, 2.0]).mean
    ('worse', inf)
    """
    pairs = [(x, y) for x, y in zip(own, base, strict=True) if y is not None]
    if any(x is None for x, _ in pairs):
        return Difference(math.inf, math.nan)
    gaps = [x - y for x, y in pairs if x is not None]
    if not gaps:
        return Difference(math.nan, math.nan)
    error = statistics.stdev(gaps) / math.sqrt(len(gaps)) if len(gaps) > 1 else math.nan
    return Difference(statistics.mean(gaps), error)


@dataclass(frozen=True)
class Comparison:
    """Runs of a method on a problem, and those with the same seeds that they are compared with."""

    problem: str
    entry: Entry
    own: Sequence[HarmRun]
    base: Sequence[HarmRun]

    def difference(self, kind: str) -> Difference:
        """kind: test_loss, test_error, train_loss."""
        own, base = ([None if run.diverged else getattr(run, kind) for run in runs] for runs in (self.own, self.base))
        return paired(own, base)

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
        """Percent of the other runs' steps."""
        return 100 * sum(run.steps for run in self.own) / sum(run.steps for run in self.base)


class Harm:
    """All comparisons of a file of runs, problem by problem, with the setting that was run last.

    >>> Harm([]).problems
    []
    """

    def __init__(self, runs: Sequence[HarmRun]) -> None:
        self._runs: dict[str, list[HarmRun]] = {}
        for run in runs:
            if run.seed < FIRST_TUNING_SEED:
                self._runs.setdefault(run.problem, []).append(run)
        self.problems = list(self._runs)

    def tuned(self, problem: str) -> Tuned:
        """The learning rate and the weight decay of a problem."""
        return self._runs[problem][-1].tuned

    def own(self, problem: str, entry: Entry) -> dict[int, HarmRun]:
        """The runs of a method by their seeds."""
        tuned = self.tuned(problem)
        return {run.seed: run for run in self._runs[problem] if run.entry == entry and run.tuned == tuned}

    def compare(self, problem: str, entry: Entry, base: Entry = BASE) -> Comparison | None:
        """A method against another one, on the seeds that both have; None if there are none."""
        own, other = self.own(problem, entry), self.own(problem, base)
        seeds = [seed for seed in own if seed in other]
        return Comparison(problem, entry, [own[k] for k in seeds], [other[k] for k in seeds]) if seeds else None

    def comparisons(self) -> Iterator[Comparison]:
        """For every problem SGD-Scan itself, and each method against it."""
        for problem in self.problems:
            found = (self.compare(problem, entry) for entry in ENTRIES)
            yield from (comparison for comparison in found if comparison is not None)

    def of(self, entry: Entry) -> list[Comparison]:
        """One method on all problems."""
        return [comparison for comparison in self.comparisons() if comparison.entry == entry]

    def marked(self, entry: Entry, mark: str, kind: str, base: Entry = BASE) -> list[str]:
        """The problems on which a method is worse, or better, than another by more than two standard errors."""
        found = (self.compare(problem, entry, base) for problem in self.problems)
        return [c.problem for c in found if c is not None and c.difference(kind).mark == mark]

    def steps(self, entry: Entry) -> float:
        """Percent of SGD-Scan's steps, as a mean over problems."""
        return statistics.mean(c.steps for c in self.of(entry))

    def count(self, entry: Entry) -> int:
        """How many runs of a method there are."""
        return sum(len(c.own) for c in self.of(entry))

    def diverged(self, entry: Entry) -> int:
        """How many of them diverged."""
        return sum(c.diverged for c in self.of(entry))

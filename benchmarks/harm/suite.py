"""What is run in which order: tuning, then all methods seed by seed; and the file that remembers it."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path

from emais.experiments.analysis.harm_runs import (
    BASE,
    ENTRIES,
    FIRST_TUNING_SEED,
    PROGRESS,
    SHORTENED,
    Entry,
    HarmRun,
    Tuned,
    read_harm,
)

from .data import Folders
from .problems import DECAYS, Problem
from .training import train

FINALISTS = 6  # settings that get all tuning seeds; the others get the first
EXTENSIONS = 4  # rates that are tried at most beyond those of a problem


class Store:
    """The runs of a file; `get` makes those that it lacks, and appends each as it ends."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.runs = read_harm(path)

    def get(
        self, problem: Problem, entry: Entry, setting: Tuned, seed: int, planned: int, make: Callable[[], HarmRun]
    ) -> HarmRun:
        """The run that is in the file, or else a new one."""
        wanted = (problem.name, entry, setting, seed, planned)
        for run in self.runs:
            if (run.problem, run.entry, run.tuned, run.seed, run.planned) == wanted:
                return run
        run = make()
        self.runs.append(run)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(asdict(run)) + "\n")
        return run


@dataclass(frozen=True)
class Suite:
    """How much is run: seeds of the comparison, seeds of tuning, and by what the numbers of steps are divided.

    scale_decay: whether the learning-rate factor multiplies weight decay, too.
    """

    store: Store
    folders: Folders
    seeds: int = 10
    tuning_seeds: int = 4
    divided_by: int = 1
    scale_decay: bool = True

    def run(self, problem: Problem, entry: Entry, setting: Tuned, seed: int, planned: int | None = None) -> HarmRun:
        """One run, of the problem's number of steps if none is given."""
        steps = planned or max(1, problem.steps // self.divided_by)
        make = lambda: train(problem, entry, setting, seed, steps, self.folders, self.scale_decay)  # noqa: E731
        return self.store.get(problem, entry, setting, seed, steps, make)

    def tuned(self, problem: Problem) -> Tuned:
        """The setting with which SGD-Scan's validation loss is least, on seeds that are not used afterwards.

        While the best rate is the lowest or the highest, the next one is tried, too.
        """
        rates = sorted(problem.rates)
        best = self.best(problem, rates)
        while best.rate in (rates[0], rates[-1]) and len(rates) < len(problem.rates) + EXTENSIONS:
            rates = sorted([*rates, neighbour(best.rate, up=best.rate == rates[-1])])
            best = self.best(problem, rates)
        return best

    def best(self, problem: Problem, rates: Iterable[float]) -> Tuned:
        """The best of all settings with these rates: all with the first seed, the best of them with the others."""
        settings = [Tuned(rate, decay) for rate, decay in product(rates, DECAYS)]
        seeds = range(FIRST_TUNING_SEED, FIRST_TUNING_SEED + self.tuning_seeds)
        first = {setting: [self.run(problem, BASE, setting, seeds[0])] for setting in settings}
        finalists = ranked(first)[:FINALISTS]
        found = {s: first[s] + [self.run(problem, BASE, s, seed) for seed in seeds[1:]] for s in finalists}
        left = ranked(found)
        if not left:
            raise RuntimeError(f"{problem.name}: SGD-Scan diverges with all settings; lower its rates")
        return left[0]

    def compared(
        self, problem: Problem, setting: Tuned, entries: Iterable[Entry] = tuple(ENTRIES)
    ) -> Iterator[HarmRun]:
        """All methods, seed by seed."""
        for seed in range(self.seeds):
            steps: int | None = None  # of the run at equal progress
            for entry in entries:
                run = self.run(problem, entry, setting, seed, steps if entry == SHORTENED else None)
                if entry == PROGRESS:
                    steps = run.steps
                yield run


def neighbour(rate: float, up: bool) -> float:
    """The next of 0.01, 0.03, 0.1, 0.3, 1, 3, and so on in both directions."""
    place = round(2 * math.log10(rate)) + (1 if up else -1)
    return float(f"{3 if place % 2 else 1}e{place // 2}")


def ranked(runs: dict[Tuned, list[HarmRun]]) -> list[Tuned]:
    """Settings by their mean validation loss, best first; without those that diverged in any run."""
    kept = {setting: own for setting, own in runs.items() if not any(run.diverged for run in own)}
    return sorted(kept, key=lambda setting: mean(run.valid_loss or 0.0 for run in kept[setting]))


def mean(values: Iterable[float]) -> float:
    values = list(values)
    return sum(values) / len(values)

"""What pages say in numbers: each number by a name, from the recorded runs, and claims that must hold to be printed."""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Sequence
from typing import Any

from ..config import Config
from ..numbers import with_sd
from ..runs.catalogue import HELD_OUT, ITEMS
from ..runs.record import Record, RunRecord, typed
from . import paper
from .equal_progress import ProgressRow, progress_rows
from .quantities import average, best_of, first_step, last_moving
from .settings import Setting, better, by_row, of_item, settings_of
from .significance import LEVEL, holm
from .verdicts import differ, p_value, paper_p_value, verdict

HOMES: dict[str, dict[str, Any]] = {  # how each data set is trained unless something else is said
    "fmnist": {"model": "lenet5", "lr": 0.01, "weight_decay": 1e-3},
    "cifar10": {"model": "resnet18", "lr": 0.1, "weight_decay": 5e-4},
    "chestxray14": {"model": "resnet50", "lr": 0.1, "weight_decay": 1e-4},
}
FORMER: dict[str, dict[str, Any]] = {  # methods as they were in the first study
    "rais-effective": {"method": "rais", "schedule": "effective"},
    "self-paced-random": {"method": "self-paced", "options": {"warmup_epochs": 0}},
    "emais-auto-two": {"method": "emais-auto", "options": {"powers": (1, 0.5)}},
}


class Facts:
    """Facts about recorded runs. A method may be one of `FORMER`; `changes` are settings other than the usual ones.

    >>> run = vars(Config("fmnist", "lenet5", "emais")) | {"layout": 2, "curves": {}}
    >>> facts = Facts([run | {"seed": k, "test_error": 10.0 + k} for k in range(3)])
    >>> facts.value("fmnist", 6250, "emais"), facts.seeds("fmnist", 6250, "emais")
    ('11.00 ± 1.00', 3)
    """

    def __init__(self, records: Sequence[Record]) -> None:
        self.records = typed(records)

    def of(self, data: str, steps: int, method: str, *, held_out: bool = False, **changes: Any) -> Setting:
        """The setting with all its runs; an error where there are none."""
        given = HOMES[data] | {"method": method} | FORMER.get(method, {}) | changes
        if given.get("optimizer") == "adam":
            given["lr"] = changes.get("lr", 0.001)
        config = Config(data=data, num_steps=steps, **given)
        own = [r for r in self.records if (r.seed >= HELD_OUT) == held_out]
        (setting,) = settings_of([config], own)
        if not setting.records:
            raise LookupError(f"there are no runs of {config}")
        return setting

    # ---- numbers

    def mean(self, *where: Any, **changes: Any) -> float:
        """Of the metric over the seeds."""
        return self.of(*where, **changes).mean

    def value(self, *where: Any, **changes: Any) -> str:
        """Mean and standard deviation as text."""
        setting = self.of(*where, **changes)
        return with_sd(setting.mean, setting.sd)

    def seeds(self, *where: Any, **changes: Any) -> int:
        """How many there are."""
        return len(self.of(*where, **changes).records)

    def typical(self, *where: Any, **changes: Any) -> float:
        """The median of the metric over the seeds."""
        return statistics.median(self.of(*where, **changes).values)

    def worst(self, *where: Any, **changes: Any) -> float:
        """The metric of the worst seed."""
        setting = self.of(*where, **changes)
        return (min if setting.metric == "map" else max)(setting.values)

    def paper(self, *where: Any, **changes: Any) -> float:
        """The paper's mean of the same setting."""
        value = paper.find(self.of(*where, **changes).config)
        if value is None:
            raise LookupError(f"the paper has no value for {where}")
        return value.mean

    def lead(self, data: str, steps: int, method: str, over: str = "sgd-scan", **changes: Any) -> float:
        """By how many points a method is better than another; negative where it is worse."""
        one, other = self.of(data, steps, method, **changes), self.of(data, steps, over, **changes)
        return one.mean - other.mean if one.metric == "map" else other.mean - one.mean

    def best(self, label: str, method: str) -> Setting:
        """A method at its best learning rate in a table of tuned rates."""
        found = best_of([s for s in of_item(ITEMS[label], self.records) if s.config.method == method and s.records])
        if found is None:
            raise LookupError(f"there are no runs of {method} in {label}")
        return found

    def tuned(self, steps: int, method: str, label: str = "tuned") -> Setting:
        """A method on Fashion-MNIST at its tuned rate and weight decay, with seeds not used for tuning."""
        own = of_item(ITEMS[label], self.records)
        found = [s for s in own if (s.config.num_steps, s.config.method) == (steps, method) and s.records]
        if not found:
            raise LookupError(f"there are no runs of {method} at its tuned rate over {steps} steps")
        return found[0]

    def tuned_lead(self, steps: int, method: str, over: str = "sgd-scan", label: str = "tuned") -> float:
        """By how many points a tuned method is better than another tuned one; negative where it is worse."""
        return self.tuned(steps, over, label).mean - self.tuned(steps, method, label).mean

    def tuned_sure(self, steps: int, method: str, over: str = "sgd-scan", label: str = "tuned") -> bool:
        """Whether a tuned method is better than another tuned one by more than chance."""
        one, other = self.tuned(steps, method, label), self.tuned(steps, over, label)
        return p_value(one, other) < LEVEL and better(one, one.mean, other.mean)

    def at_equal_progress(self, model: str, steps: int, lr: float) -> ProgressRow:
        """Runs at equal progress beside SGD-Scan of so many steps."""
        for row in progress_rows(self.records):
            if (row.config.model, row.config.num_steps, row.config.lr) == (model, steps, lr):
                return row
        raise LookupError(f"there are no runs of {model} at equal progress with {steps} steps and rate {lr}")

    def room(self, *where: Any, **changes: Any) -> float:
        """How many times N the best possible sampler's N_ems would be, from sums over the second half of the run."""
        setting = self.of(*where, **changes)
        return average(setting, "tr_unif") / average(setting, "tr_opt")

    def standstill(self, *where: Any, **changes: Any) -> float:
        """After which share of the run the learning rate is 0, as a mean over seeds; NaN where it never is."""
        setting = self.of(*where, **changes)
        return last_moving(setting) / setting.config.num_steps

    def half(self, quantity: str, *where: Any, **changes: Any) -> float:
        """The mean of a curve over the second half of the run and over seeds."""
        return average(self.of(*where, **changes), quantity)

    def last(self, quantity: str, *where: Any, **changes: Any) -> float:
        """The last point of a curve, as a mean over seeds."""
        return statistics.fmean(r.curve(quantity)[-1] for r in self.of(*where, **changes).records)

    def peak(self, quantity: str, *where: Any, **changes: Any) -> float:
        """The largest finite value of a curve after the first fifth of the run, over all seeds."""
        curves = [r.curve(quantity) for r in self.of(*where, **changes).records]
        return max(v for curve in curves for v in curve[len(curve) // 5 :] if math.isfinite(v))

    def steps_to(self, error: float, *where: Any, **changes: Any) -> float:
        """Steps until the test error is first at most so much, as a mean over seeds; NaN where one never is."""
        return statistics.fmean(first_step(r, error) for r in self.of(*where, **changes).records)

    def recalibrated(self, *where: Any, **changes: Any) -> float:
        """The metric with BatchNorm's statistics of uniform minibatches, over the seeds where it was measured."""
        found = [r.value("recalibrated") for r in self.of(*where, **changes).records if "recalibrated" in r]
        return statistics.fmean(found)

    def span(self, settings: Sequence[Setting]) -> float:
        """The distance between the largest and the smallest of several means."""
        means = [s.mean for s in settings]
        return max(means) - min(means)

    def minutes(self, label: str) -> float:
        """Of training, of all runs of the paper's methods in a table."""
        return sum(r.ms_per_step * r.steps for r in self.runs(label)) / 6e4

    def runs(self, label: str) -> list[RunRecord]:
        """All runs of the paper's methods in a table."""
        settings = of_item(ITEMS[label], self.records)
        return [r for s in settings if s.config.method not in paper.OURS for r in s.records]

    # ---- claims

    def p(self, one: Setting, other: Setting) -> float:
        """The p-value of Welch's test for two settings."""
        return p_value(one, other)

    def ahead(self, labels: Sequence[str], method: str, over: str = "sgd-scan") -> tuple[int, int, int]:
        """In how many rows of some tables a method is ahead of another, by more than chance, and how many there are.

        Holm's correction is over all rows that have enough seeds.
        """
        rows = [row for label in labels for row in by_row(of_item(ITEMS[label], self.records))]
        named = [{s.config.method: s for s in row if s.records} for row in rows]
        pairs = [(row[method], row[over]) for row in named if method in row and over in row]
        first = [better(a, a.mean, b.mean) for a, b in pairs]
        return sum(first), sum(x and y for x, y in zip(first, differ(pairs), strict=True)), len(pairs)

    def sure(self, data: str, steps: int | Sequence[int], method: str, over: str = "sgd-scan", **changes: Any) -> bool:
        """Whether a method is better than another by more than chance at all lengths, with Holm's correction."""
        lengths = [steps] if isinstance(steps, int) else steps
        pairs = [(self.of(data, n, method, **changes), self.of(data, n, over, **changes)) for n in lengths]
        clear = all(p < LEVEL for p in holm([p_value(*pair) for pair in pairs]))
        return clear and all(better(a, a.mean, b.mean) for a, b in pairs)

    def open(self, data: str, steps: int | Sequence[int], method: str, over: str = "sgd-scan", **changes: Any) -> bool:
        """Whether two methods are not told apart, at none of the lengths, without any correction."""
        lengths = [steps] if isinstance(steps, int) else steps
        pairs = [(self.of(data, n, method, **changes), self.of(data, n, over, **changes)) for n in lengths]
        return not any(p_value(*pair) < LEVEL for pair in pairs)

    def agreeing(self, label: str, corrected: bool = False) -> tuple[int, int]:
        """How many values of a table agree with the paper's, and how many there are."""
        pairs = [(s, v) for s in of_item(ITEMS[label], self.records) if (v := paper.find(s.config)) and s.records]
        if corrected:
            return sum(not p < LEVEL for p in holm([paper_p_value(s, v) for s, v in pairs])), len(pairs)
        return sum(verdict(s, v).kind == "agrees" for s, v in pairs), len(pairs)

    def farthest(self, label: str, method: str) -> float:
        """The largest distance of a method's means from the paper's, over the rows of a table."""
        own = [s for s in of_item(ITEMS[label], self.records) if s.config.method == method]
        return max(abs(s.mean - v.mean) for s in own if (v := paper.find(s.config)))

    def order(self, label: str) -> tuple[int, int]:
        """In how many pairs of methods our order is the paper's, and how many pairs count, over the rows of a table.

        A pair counts where the paper's means differ by more than twice the larger of its two standard deviations.
        """
        same = total = 0
        for row in by_row(of_item(ITEMS[label], self.records)):
            known = [(s, v) for s in row if (v := paper.find(s.config)) and math.isfinite(s.mean)]
            for (a, one), (b, other) in itertools.combinations(known, 2):
                if abs(one.mean - other.mean) > 2 * max(one.sd, other.sd):
                    total += 1
                    same += (one.mean - other.mean) * (a.mean - b.mean) > 0
        return same, total


def claim(holds: bool) -> str:
    """Nothing, if what a sentence claims holds; else an error, so that it is not printed."""
    if not holds:
        raise ValueError("this claim does not hold any more: change the sentence")
    return ""

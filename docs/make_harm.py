"""What docs/harm.md and docs/guides/advice.md say of the harm suite: its tables, and its runs by name.

docs/render.py gives these names to the templates. A problem that has no runs yet is simply not in the tables.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from emais.experiments.analysis.harm_differences import Comparison, Difference, Harm
from emais.experiments.analysis.harm_runs import (
    BASE,
    EQUAL_STEPS,
    PAPER,
    PROBLEMS,
    PROGRESS,
    REPLACED,
    SHORTENED,
    Entry,
    HarmRun,
    read_harm,
)
from emais.experiments.report.tables.cells import Table, to_markdown
from emais.experiments.report.tables.harm import harm_complete, harm_counts, harm_glance, signed

RESULTS = Path(__file__).parent.parent / "benchmarks" / "results"
ENTRIES = {
    "SCAN": BASE,
    "UNI": REPLACED,
    "PAPER": PAPER,
    "STEPS": EQUAL_STEPS,
    "PROGRESS": PROGRESS,
    "SHORTENED": SHORTENED,
}


class Suite(Harm):
    """The suite as pages speak of it: an error where there are no runs, and what was run with more weight decay."""

    def __init__(
        self, runs: Sequence[HarmRun], raised: Sequence[HarmRun] = (), unscaled: Sequence[HarmRun] = ()
    ) -> None:
        super().__init__(runs)
        self._raised, self._unscaled = raised, unscaled

    def on(self, problem: str, entry: Entry, base: Entry = BASE) -> Comparison:
        """A method against another on a problem."""
        found = self.compare(problem, entry, base) if problem in self.problems else None
        if found is None:
            raise LookupError(f"the harm suite has no runs of {entry} and {base} on {problem}")
        return found

    def loss(self, problem: str, entry: Entry, base: Entry = BASE) -> Difference:
        """The difference in test loss."""
        return self.on(problem, entry, base).difference("test_loss")

    def error(self, problem: str, entry: Entry, base: Entry = BASE) -> Difference:
        """The difference in test error."""
        return self.on(problem, entry, base).difference("test_error")

    def factor(self, problem: str, entry: Entry = EQUAL_STEPS) -> float:
        """The mean learning-rate factor of a run."""
        return self.on(problem, entry).average("mean_factor")

    def max_r(self, problem: str, entry: Entry) -> float:
        """The largest r of all runs."""
        return max(run.max_r for run in self.on(problem, entry).own)

    def more_decay(self, times: int, problem: str, entry: Entry) -> Comparison:
        """A method with so many times the weight decay, against SGD-Scan as it was tuned."""
        decay = times * self.tuned(problem).decay
        own = [r for r in self._raised if (r.problem, r.entry) == (problem, entry) and abs(r.decay / decay - 1) < 1e-6]
        if not own:
            raise LookupError(f"there are no runs of {entry} on {problem} with {times} times the weight decay")
        base = self.own(problem, BASE)
        return Comparison(problem, entry, own, [base[run.seed] for run in own])

    def unscaled(self, problem: str, entry: Entry) -> Comparison:
        """A method whose weight decay is not multiplied by the factor, against the same method as it is."""
        own = [run for run in self._unscaled if (run.problem, run.entry) == (problem, entry)]
        base = self.own(problem, entry)
        return Comparison(problem, entry, own, [base[run.seed] for run in own])

    def unscaled_marked(self, entry: Entry, mark: str, kind: str) -> list[str]:
        """The problems on which that is worse, or better, by more than two standard errors."""
        return [name for name in self.problems if self.unscaled(name, entry).difference(kind).mark == mark]


class FactorChecks:
    """Factors that runs applied, beside the exact ones of the same moments (benchmarks/factor_check.py)."""

    def __init__(self, rows: Sequence[dict[str, Any]]) -> None:
        self._rows = rows

    def table(self) -> str:
        """A row for each problem: applied, exact for logits, exact for parameters, at four moments of the run."""
        progress = sorted({row["progress"] for row in self._rows})
        head = ["problem", *(f"at {100 * share:.0f} %" for share in progress)]
        lines = [head, ["---"] + ["---:"] * len(progress)]
        for kind in dict.fromkeys(map(_kind, self._rows)):
            own = {row["progress"]: row for row in self._rows if _kind(row) == kind}
            lines.append([" ".join(filter(None, kind)), *(_three(own[share]) for share in progress)])
        return "\n".join(f"| {' | '.join(line)} |" for line in lines)

    def logits(self) -> list[float]:
        """The exact factor for logits over that for parameters, from the smallest to the largest."""
        return sorted(row["logits"]["factor"] / row["parameters"]["factor"] for row in self._rows)

    def applied(self) -> list[float]:
        """The applied factor over the exact one for parameters, from the smallest to the largest."""
        return sorted(row["applied"] / row["parameters"]["factor"] for row in self._rows)


def _kind(row: dict[str, Any]) -> tuple[str, str]:
    """The problem, and at which rate it was trained; rows from before there were others have none."""
    times = row.get("rate_times", 1.0)
    return PROBLEMS[row["problem"]], "" if times == 1 else f"at {times:g} × the rate"


def _three(row: dict[str, Any]) -> str:
    found = row["applied"], row["logits"]["factor"], row["parameters"]["factor"]
    return " / ".join(f"{factor:.2f}" for factor in found)


def factor_checks() -> FactorChecks:
    """All looks that are there."""
    lines = (RESULTS / "factor_check.jsonl").read_text("utf-8").splitlines()
    return FactorChecks([json.loads(line) for line in lines])


def suite() -> Suite:
    """All runs that are there."""
    more = (read_harm(RESULTS / f"harm_{kind}.jsonl") for kind in ("decay", "unscaled"))
    return Suite(read_harm(RESULTS), *more)


def listed(problems: Sequence[str]) -> str:
    """Problems in words.

    >>> listed(["sst2", "digits-n2"]), listed([])
    ('SST-2 (8,000 sentences), digits with N = 2', 'none')
    """
    return ", ".join(PROBLEMS[name] for name in problems) or "none"


def untitled(table: Table) -> str:
    """A table under a heading of the page."""
    return to_markdown(replace(table, title=""))


def names() -> dict[str, Any]:
    """What templates may call."""
    found = suite()
    tables = {"glance": harm_glance(found), "counts": harm_counts(found), "complete": harm_complete(found)}
    return {
        **ENTRIES,
        "harm": found,
        "factors": factor_checks(),
        "median": statistics.median,
        "factor": found.factor,
        "harm_table": {name: untitled(table) for name, table in tables.items()},
        "listed": listed,
        "signed": signed,
    }

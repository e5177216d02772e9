"""What docs/guides/inspection.md says of flipped labels, from benchmarks/results/label_errors.jsonl."""

from __future__ import annotations

import json
import statistics
from pathlib import Path
from typing import Any

from emais.experiments.numbers import mean_sd, with_sd

RESULTS = Path(__file__).parent.parent / "benchmarks" / "results" / "label_errors.jsonl"
TOPS = (100, 300, 1200)
RANKS = {
    "hardest": "mean gradient norm (`hardest`)",
    "unstable": "deviation (`unstable`)",
    "loss": "plain loss at the end of the run",
}
METHODS = {"emais": "EMAIS", "emais-auto": "EMAIS-auto"}


def rows() -> list[dict[str, Any]]:
    """All that was measured."""
    return [json.loads(line) for line in RESULTS.read_text("utf-8").splitlines()]


def precisions(method: str, ranked_by: str, top: int) -> list[float]:
    """The share of flipped labels among the first, in percent, of each seed."""
    found = [r["precision"][str(top)] for r in rows() if (r["method"], r["ranked_by"]) == (method, ranked_by)]
    if not found:
        raise LookupError(f"no runs of {method} ranked by {ranked_by}: python benchmarks/label_errors.py")
    return found


def label_errors(method: str, ranked_by: str, top: int) -> float:
    """Its mean over the seeds."""
    return statistics.fmean(precisions(method, ranked_by, top))


def label_table() -> str:
    """A row for each method and way to rank."""
    head = ["method", "ranked by", *(f"first {top}" for top in TOPS)]
    lines = [head, ["---", "---", *(["---:"] * len(TOPS))]]
    for method, name in METHODS.items():
        for ranked_by, words in RANKS.items():
            cells = [with_sd(*mean_sd(precisions(method, ranked_by, top)), 1) for top in TOPS]
            lines.append([name, words, *cells])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def label_run() -> dict[str, Any]:
    """What all runs share: steps, number of seeds, processor."""
    first, seeds = rows()[0], {r["seed"] for r in rows()}
    return {"steps": first["steps"], "seeds": len(seeds), "cpu": first["hardware"]["cpu"]}

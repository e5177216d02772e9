"""What docs/templates/audit.md shows: audits beside real runs, from benchmarks/results/audit.jsonl."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from emais.observing.stretch import NORMAL, Stretch

RESULTS = Path(__file__).parent.parent / "benchmarks" / "results"
Row = dict[str, Any]


def names() -> dict[str, Any]:
    """What the template may call."""
    return {
        "audit_table": audit_table,
        "audit_gap": audit_gap,
        "audit_inside": audit_inside,
        "audit_noise_inside": lambda problem, file="audit.jsonl": audit_inside(problem, file=file, noise_alone=True),
        "audit_seeds": lambda: len({row["seed"] for row in records()}),
        "audit_cpu": lambda: records()[0]["cpu"],
    }


@cache
def records(file: str = "audit.jsonl") -> list[Row]:
    """The audits and the real runs beside them."""
    return [json.loads(line) for line in (RESULTS / file).read_text("utf-8").splitlines()]


def pairs(problem: str, kind: str, real: str, file: str = "audit.jsonl", epoch: int = 0) -> Iterator[tuple[Row, Row]]:
    """Audits of a problem, and the real run of the same seed; epoch 0: of all."""
    own = [row for row in records(file) if row["problem"].startswith(problem) and epoch in (0, row["epoch"])]
    found = {(row["problem"], row["kind"], row["seed"], row["epoch"]): row for row in own}
    for (name, which, seed, at), row in found.items():
        if which == kind:
            yield row, found[name, real, seed, at]


def limits(row: Row, noise_alone: bool = False) -> tuple[float, float]:
    """From and to: the 95 % interval of a pilot, the range of a projection. Of older rows `before` is not known."""
    if row["kind"] == "pilot" or noise_alone:
        return row["n_ems_low"], row["n_ems_high"]
    error = math.log(row["n_ems_high"] / row["n_ems"]) / NORMAL
    return Stretch(row["n_ems"], error, row["bound"]).likely(row.get("before") or math.nan)


def audit_inside(
    problem: str = "",
    kind: str = "projected",
    real: str = "same rate",
    file: str = "audit.jsonl",
    *,
    epoch: int = 0,
    noise_alone: bool = False,
) -> str:
    """How many real runs were where the audit said, as in "9 of 9"."""
    inside = []
    for own, other in pairs(problem, kind, real, file, epoch):
        low, high = limits(own, noise_alone)
        inside.append(low <= other["n_ems"] <= high)
    return f"{sum(inside)} of {len(inside)}"


def audit_gap(problem: str, epoch: int, kind: str = "projected", real: str = "same rate") -> float:
    """By how much an audit's N_ems differed at most from that of the real run of the same seed, as a part of it."""
    return max(abs(own["n_ems"] / other["n_ems"] - 1) for own, other in pairs(problem, kind, real, epoch=epoch))


def audit_table() -> str:
    """Means over seeds; a cell in bold misses 15 %."""
    audits = ("projected | likely | same rate", "pilot | real")
    head = ["", "N", "epoch", *(f"{columns} | off by | inside" for columns in audits), "bound"]
    lines = [f"| {' | '.join(head)} |", "|---|" + "---:|" * 12]
    for problem, size, epoch in dict.fromkeys((r["problem"], r["batch_size"], r["epoch"]) for r in records()):
        found = list(pairs(problem, "projected", "same rate", epoch=epoch))
        cells = [problem, str(size), str(epoch), *_beside(problem, "projected", "same rate", epoch)]
        low, high = (statistics.mean(x) for x in zip(*(limits(own) for own, _ in found), strict=True))
        cells.insert(4, f"{low:.0f} to {high:.0f}")
        pilots = _beside(problem, "pilot", "real", epoch) or ["", _mean(problem, "real", epoch), "", ""]
        bound = statistics.mean(own["bound"] for own, _ in found)
        lines.append(f"| {' | '.join([*cells, *pilots, f'{bound:.0f}'])} |")
    return "\n".join(lines)


def _beside(problem: str, kind: str, real: str, epoch: int) -> list[str]:
    """Audit, real run, how far off, and how many inside; nothing where no such audit was made."""
    if not any(True for _ in pairs(problem, kind, real, epoch=epoch)):
        return []
    gap, inside = audit_gap(problem, epoch, kind, real), audit_inside(problem, kind, real, epoch=epoch)
    off = f"{100 * gap:.1f} %" if gap <= 0.15 else f"**{100 * gap:.1f} %**"
    return [_mean(problem, kind, epoch), _mean(problem, real, epoch), off, inside]


def _mean(problem: str, kind: str, epoch: int) -> str:
    rows = (r for r in records() if (r["problem"], r["kind"], r["epoch"]) == (problem, kind, epoch))
    return f"{statistics.mean(r['n_ems'] for r in rows):.0f}"

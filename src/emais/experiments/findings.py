"""What the results say, in sentences made from the numbers, whoever wins."""

from __future__ import annotations

import math
from collections.abc import Sequence

from .catalogue import ITEMS
from .moretables import best_rate
from .paper import RUN_SECONDS_FMNIST, SEEDS, TITLES, find
from .results import Record
from .selection import Setting, better, by_row, method_name, of_item, present
from .tables import bold, decimal, tally, verdict, with_sd

RIVALS = ("sgd-scan", "rais", "emais")


def findings(records: Sequence[Record]) -> list[str]:
    """A few sentences: who is best where, agreement with the paper, tuned learning rates, time."""
    found = [row_sentence(row) for label in tables() for row in by_row(present(of_item(ITEMS[label], records)))]
    for label in tables():
        settings = present(of_item(ITEMS[label], records))
        kinds = [verdict(s, find(s.config)).kind for s in settings]
        if any(kind != "none" for kind in kinds):
            found.append(f"{label}: {tally(kinds)}")
    return [*found, *tuned_sentence(records), *time_sentence(records)]


def tables() -> list[str]:
    """The labels of tables of results."""
    return [label for label in ITEMS if label.startswith("tab:")]


def row_sentence(row: Sequence[Setting]) -> str:
    """Who is best in a row, and how EMAIS and SGD-Scan stand."""
    config = row[0].config
    ranked = sorted((s for s in row if math.isfinite(s.mean)), key=lambda s: s.mean, reverse=row[0].metric == "map")
    optimizer = {"sgd": "SGD", "adam": "Adam"}.get(config.optimizer, config.optimizer)
    name = TITLES.get(config.data, config.data)
    start = f"{name}, {optimizer}, weight decay {decimal(config.weight_decay)}, {config.num_steps} steps:"
    if not ranked:
        return f"{start} no finite result."
    best = ranked[0]
    measure = "highest mAP" if best.metric == "map" else "lowest test error"
    text = f"{start} {method_name(best.config)} has the {measure}, {with_sd(best.mean, best.sd)} %"
    others = [s for s in ranked if s.config.method in RIVALS and s is not best]
    if others:
        text += f"; {', '.join(f'{method_name(s.config)} {with_sd(s.mean, s.sd)} %' for s in others)}"
    near = [method_name(s.config) for s, strong in zip(ranked, bold(ranked), strict=True) if strong and s is not best]
    return f"{text}. Within its standard deviation: {', '.join(near) or 'no other'}."


def tuned_sentence(records: Sequence[Record]) -> list[str]:
    """The comparison with each method at its own best learning rate."""
    settings = present(of_item(ITEMS["tuned_lr"], records))
    best: dict[str, Setting] = {}
    for method in dict.fromkeys(s.config.method for s in settings):
        own = [s for s in settings if s.config.method == method]
        best |= {s.config.method: s for s in own if s.config.lr == best_rate(own)}
    if not {"emais", "sgd-scan"} <= best.keys():
        return []
    listed = ", ".join(f"{method_name(s.config)} {with_sd(s.mean, s.sd)} % at {s.config.lr:g}" for s in best.values())
    gap = abs(best["emais"].mean - best["sgd-scan"].mean)
    ahead = better(best["emais"], best["emais"].mean, best["sgd-scan"].mean)
    steps = best["emais"].config.num_steps
    text = (
        f"With the learning rate tuned for each method ({steps} steps): {listed}. EMAIS is then {gap:.2f} points "
        f"{'ahead of' if ahead else 'behind'} SGD-Scan"
    )
    same = {s.config.method: s for s in settings if s.config.lr == 0.01}
    if {"emais", "sgd-scan"} <= same.keys():
        off = same["sgd-scan"].mean - same["emais"].mean
        text += f"; at the paper's learning rate it is {abs(off):.2f} points {'ahead' if off > 0 else 'behind'}"
    return [f"{text}."]


def time_sentence(records: Sequence[Record]) -> list[str]:
    """The time that the runs of tab:res_fmnist took, beside the paper's."""
    settings = of_item(ITEMS["tab:res_fmnist"], records)
    runs = [r for s in settings for r in s.records]
    if not runs:
        return []
    seconds = sum(r["ms_per_step"] * r["num_steps"] for r in runs) / 1e3
    paper = SEEDS * sum(mean for row in RUN_SECONDS_FMNIST.values() for mean, _ in row)
    places = ", ".join(sorted({str(r["hardware"]) for r in runs}))
    return [
        f"The {len(runs)} runs of tab:res_fmnist took {seconds / 60:.1f} minutes of training on {places}, side by "
        f"side; the paper's 120 add up to {paper / 3600:.1f} hours on a Tesla V100."
    ]

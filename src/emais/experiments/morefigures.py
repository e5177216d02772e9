"""Figures beyond the paper: all methods side by side, over steps and against cost; `figures` gives all there are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from .catalogue import ITEMS
from .chart import Chart
from .figures import (
    CLIPPED,
    Figure,
    Line,
    key_of,
    kind_of,
    metric_chart,
    paper_figures,
    place,
    score_chart,
    series,
)
from .paper import NAMES, TITLES
from .results import Record
from .selection import Setting, by_row, of_item, present

TABLES = ("tab:res_fmnist", "tab:res_cinic10", "tab:res_nih", "tab:adam")
FLAT = "RAIS moves along its schedule by its gain: where its line turns flat, its learning rate has come down to 0."
HIGH = "The axis ends at two and a half times the lowest final test error; what lies above is cut off."
MEANING = (
    "S(W) is estimated from each method's own draws: Presampling draws by the norms of the present model, so it is at "
    "0 by construction, and this is about one draw from its candidates, not about the minibatch. RAIS comes near 0 "
    "once its learning rate has come down to 0 and the model stands still."
)
COST = (
    "A step counts as its measured time relative to plain SGD ({}). Where that was measured with another model than "
    "the one trained here, it stands in for it; Presampling's cost depends on the model most."
)


def ratios(timings: Sequence[Record]) -> tuple[str, dict[str, float]]:
    """The measured case that knows most methods, and each method's step time relative to plain SGD there."""
    cases: dict[str, dict[str, float]] = {}
    for timing in timings:
        name = "sgd-scan" if timing["method"] == "sgd" else str(timing["method"])
        cases.setdefault(timing["case"], {})[name] = float(timing["ratio"])
    if not cases:
        return "", {}
    best = max(cases, key=lambda case: (len(cases[case].keys() & NAMES.keys()), "graph" in case))
    return best, cases[best]


def method_figures(label: str, records: Sequence[Record], timings: Sequence[Record]) -> list[Figure]:
    """All methods of a table beside each other: the metric over steps, S(W) over steps, the metric against cost."""
    rows = by_row(present(of_item(ITEMS[label], records)))
    if not rows:
        return []
    first, many = rows[0][0], len({row[0].config.weight_decay for row in rows}) > 1
    kind, cut = ("mAP", "") if first.metric == "map" else ("Test error", f"{HIGH} ")
    metrics, scores = [], []
    for row in rows:
        lines: list[Line] = [(s, "", None) for s in row]
        where = f"{place(row[0])}{f', weight decay {row[0].config.weight_decay:g}' if many else ''}"
        metrics.append(metric_chart(f"{kind}, {where}", lines, key_of(row[0], f"{label}-metric")))
        scores.append(score_chart(f"S(W), {where}", lines, key_of(row[0], f"{label}-score")))
    title = f"all methods, {TITLES[first.config.data]}{' with Adam' if first.config.optimizer == 'adam' else ''}"
    found = [
        Figure(f"{label} over steps", f"{kind} over steps: {title}", metrics, f"{cut}{FLAT}"),
        Figure(f"{label} S(W)", f"S(W) over steps: {title}", scores, f"{CLIPPED} {MEANING}"),
    ]
    case, cost = ratios(timings)
    if case:
        timed = [against_cost(chart, row, cost, label) for chart, row in zip(metrics, rows, strict=True)]
        found.append(Figure(f"{label} cost", f"{kind} against cost: {title}", timed, f"{cut}{COST.format(case)}"))
    return found


def against_cost(chart: Chart, row: Sequence[Setting], cost: dict[str, float], label: str) -> Chart:
    """The same chart with the cost of the steps on its x axis, for the methods whose cost is known."""
    drawn = [series(s, s.metric, cost=cost[s.config.method]) for s in row if s.config.method in cost]
    return replace(chart, x_label="cost in steps of plain SGD", series=drawn, name=key_of(row[0], f"{label}-cost"))


def lengths_figure(records: Sequence[Record]) -> list[Figure]:
    """fig:cinic10_35000-140000_IS_score: S(W) of EMAIS for each length of the runs, on the data at hand."""
    kinds: dict[tuple[str, str, float], list[Setting]] = {}
    for label in TABLES:
        for s in present(of_item(ITEMS[label], records)):
            if s.config.method == "emais" and s.config.optimizer == "sgd":
                kinds.setdefault(kind_of(s), []).append(s)
    charts = []
    for (data, _, decay), own in kinds.items():
        lines = [(s, f"{s.config.num_steps} steps", k) for s, k in zip(own, (4, 2, 0, 3), strict=False)]
        where = f"{TITLES.get(data, data)}, weight decay {decay:g}"
        charts.append(score_chart(f"S(W), {where}", lines, key_of(own[0], "lengths")))
    title = "S(W) under Linear-τ for runs of different lengths"
    return [Figure("fig:cinic10_35000-140000_IS_score", title, charts, CLIPPED)] if charts else []


def figures(records: Sequence[Record], timings: Sequence[Record] = ()) -> list[Figure]:
    """All figures that there are runs for: the paper's, then those beyond it."""
    beyond = [figure for label in TABLES for figure in method_figures(label, records, timings)]
    return [*paper_figures(records), *lengths_figure(records), *beyond]

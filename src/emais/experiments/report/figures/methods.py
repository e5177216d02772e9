"""Figures beyond the paper: all methods side by side, over steps and over time; `figures` gives all there are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ...analysis.settings import Setting, by_row, method_name, of_item, present, starred, variant
from ...numbers import decimal
from ...runs.catalogue import ITEMS
from ...runs.store import Record
from ..tables.step_times import Case, best_case
from .chart import Chart
from .curves import (
    CLIPPED,
    HIGH,
    Figure,
    Line,
    chart_name,
    data_and_steps,
    metric_chart,
    score_chart,
    series,
    size_chart,
)
from .notes import scores_note, sizes_note, still_note, who
from .paper import paper_figures

TABLES = ("tab:res_fmnist", "tab:res_cinic10", "tab:res_nih", "tab:adam")
TIME = (
    "The time of a step was measured apart from these runs, with nothing beside it on the machine and without tests of "
    "the model: {}, on {}. It is SGD-Scan's, {:.2f} ms, times the ratio in tab:per_iter_time."
)


def method_figures(label: str, records: Sequence[Record], timings: Sequence[Record]) -> list[Figure]:
    """All methods of a table beside each other: the metric, N_ems and S(W) over steps, the metric over time."""
    settings = present(of_item(ITEMS[label], records))
    rows = by_row(settings)
    if not rows:
        return []
    first = rows[0][0]
    kind, cut = metric_kind(first)
    data = f"{first.title}{' with Adam' if first.config.optimizer == 'adam' else ''}"
    title = f"{who(settings, ITEMS[label])}, {data}"
    metrics, sizes, scores = (list(charts) for charts in zip(*row_charts(label, rows), strict=True))
    return [
        Figure(f"{label} over steps", f"{kind} over steps: {title}", metrics, f"{cut}{still_note(settings)}"),
        Figure(f"{label} N_ems", f"N_ems over steps: {title}", sizes, sizes_note(settings)),
        Figure(f"{label} S(W)", f"S(W) over steps: {title}", scores, f"{CLIPPED} {scores_note(settings)}"),
        *time_figure(label, data, metrics, rows, timings),
    ]


def metric_kind(setting: Setting) -> tuple[str, str]:
    """What the metric is called in a title, and what a note says of its axis."""
    return ("mAP", "") if setting.metric == "map" else ("Test error", f"{HIGH} ")


def row_charts(label: str, rows: Sequence[Sequence[Setting]]) -> list[tuple[Chart, Chart, Chart]]:
    """The metric, N_ems and S(W) of each row of a table."""
    many = len({row[0].config.weight_decay for row in rows}) > 1
    found = []
    for row in rows:
        lines: list[Line] = [(s, starred(s.config), None) for s in row]
        where = f"{data_and_steps(row[0])}{f', weight decay {decimal(row[0].config.weight_decay)}' if many else ''}"
        metric = metric_chart(f"{metric_kind(row[0])[0]}, {where}", lines, chart_name(row[0], f"{label}-metric"))
        size = size_chart(f"Nₑₘₛ, {where}", lines, chart_name(row[0], f"{label}-size"))
        found.append((metric, size, score_chart(f"S(W), {where}", lines, chart_name(row[0], f"{label}-score"))))
    return found


def time_figure(
    label: str, data: str, metrics: Sequence[Chart], rows: Sequence[Sequence[Setting]], timings: Sequence[Record]
) -> list[Figure]:
    """The metric over time, where the steps of such runs were timed: with SGD only."""
    first = rows[0][0]
    case = best_case(timings, first.config.model) if first.config.optimizer == "sgd" else None
    if case is None:
        return []
    kind, cut = metric_kind(first)
    charts = [over_time(one, row, case, label) for one, row in zip(metrics, rows, strict=True)]
    note = f"{cut}{TIME.format(case.name, case.place, case.base)}{untimed(rows, case)}"
    return [Figure(f"{label} over time", f"{kind} over time: the methods that were timed, {data}", charts, note)]


def over_time(one: Chart, row: Sequence[Setting], case: Case, label: str) -> Chart:
    """The same chart with seconds on its x axis, for the methods whose step was timed."""
    timed = [(s, case.ms(s.config.method) / 1e3) for s in row if s.config.method in case.methods]
    drawn = [series(s, s.metric, starred(s.config), cost=cost) for s, cost in timed]
    return replace(one, x_label="seconds", series=drawn, name=chart_name(row[0], f"{label}-time"))


def untimed(rows: Sequence[Sequence[Setting]], case: Case) -> str:
    """Which methods are not in the picture."""
    names = {s.config.method: method_name(s.config) for row in rows for s in row if s.config.method not in case.methods}
    return f" Not timed there, so not shown: {', '.join(names.values())}." if names else ""


def auto_figure(records: Sequence[Record]) -> list[Figure]:
    """EMAIS-auto beside EMAIS and each of its candidates alone, where these were run."""
    charts = []
    for row in by_row(present(of_item(ITEMS["emais_auto"], records))):
        alone = [s for s in row if "factors" in s.config.options]
        if not alone:
            continue
        lines: list[Line] = [(s, starred(s.config), None) for s in row if not s.config.options]
        lines += [(s, variant(s.config).partition(" with ")[2], k) for s, k in zip(alone, (1, 2, 4, 3), strict=False)]
        key = chart_name(row[0], "auto")
        charts += [
            metric_chart(f"Test error, {data_and_steps(row[0])}", lines, f"{key}-1"),
            size_chart("Nₑₘₛ", lines, f"{key}-2"),
            score_chart("S(W)", lines, f"{key}-3"),
        ]
    title = "EMAIS-auto beside EMAIS and each time constant alone"
    return [Figure("emais_auto over steps", title, charts, f"{HIGH} {CLIPPED}")] if charts else []


def figures(records: Sequence[Record], timings: Sequence[Record] = ()) -> list[Figure]:
    """All figures that there are runs for: the paper's, then those beyond it."""
    beyond = [figure for label in TABLES for figure in method_figures(label, records, timings)]
    return [*paper_figures(records), *auto_figure(records), *beyond]

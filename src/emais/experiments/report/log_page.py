"""The page of one run, from its log: what importance sampling does, the run's own values, and the latest of all."""

from __future__ import annotations

import math
import shlex
import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..analysis.run_log import LoggedSeries, RunLog
from ..numbers import DASH
from .figures.chart import Chart, Series, draw
from .figures.curves import CLIPPED, SCORE_AXIS, PictureGroup
from .figures.scales import tick_label
from .pages import from_template
from .tables.cells import Cell, Table

PREFIX = "emais/"
POINTS_SHOWN = 300  # of a line
MOST_CHARTS = 60
LONGEST = 34  # letters of a name beside an axis
TRACES = ("tr_is", "tr_unif", "tr_opt")
INTERVAL = ("score_low", "score_high")  # drawn as a band around the score
QUANTILES = ("r_p10", "r_p50", "r_p90", "r_p99")
SAMPLING, OWN_VALUES, FURTHER = "Importance sampling", "Training", "Further values of the engine"
# title, axis, quantities, options of the chart
KNOWN_CHARTS: tuple[tuple[str, str, tuple[str, ...], dict[str, Any]], ...] = (
    ("Effective minibatch size Nₑₘₛ", "Nₑₘₛ (samples)", ("n_ems",), {"y_from": 0.0}),
    ("Efficiency score S(W)", "S(W)", ("score", *INTERVAL), SCORE_AXIS),
    ("Learning-rate factor", "factor", ("lr_scale",), {"y_from": 0.0}),
    ("Variance of the gradient", "trace of the covariance", TRACES, {"y_from": 0.0}),
    ("Importance coefficients r", "r", QUANTILES, {"y_from": 0.0}),
)
WORDS = {  # of the legends
    "n_ems": "Nₑₘₛ", "score": "S(W) with its 95 % interval", "lr_scale": "mean factor", "tr_is": "sampler in use",
    "tr_unif": "uniform sampling", "tr_opt": "best possible sampler", "r_p10": "10th percentile", "r_p50": "median",
    "r_p90": "90th percentile", "r_p99": "99th percentile",
}  # fmt: skip


@dataclass(frozen=True)
class LogPage:
    """status: how far the run is; groups: charts by their heading; command: what makes this page as one file."""

    title: str
    status: str
    command: str
    groups: Mapping[str, PictureGroup] = field(default_factory=dict)
    latest: Table | None = None


def log_page(log: RunLog, live: str = "") -> str:
    """The page of what a log holds; live: as of `render`."""
    moment = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(log.path.stat().st_mtime))
    status = f"At step {tick_label(log.step)}, last written at {moment}."
    page = LogPage(log_title(log.path), status, one_file(log.path), log_groups(log), latest_table(log))
    return from_template("log.html", page, live)


def waiting_page(path: Path, why: str, live: str) -> str:
    """The page of a run of which there is nothing to show yet."""
    return from_template("log.html", LogPage(log_title(path), why, one_file(path)), live)


def log_title(path: Path) -> str:
    """The name of the file."""
    return f"EMAIS: {path.name}"


def one_file(path: Path) -> str:
    """The command that writes the page."""
    return f"emais report {shlex.quote(str(path))} --out page.html"


# ---- charts


def log_groups(log: RunLog) -> dict[str, PictureGroup]:
    """All quantities that change, under up to three headings."""
    short = {name.removeprefix(PREFIX): name for name in log.series}
    known = [
        chart_of(title, label, {n: log.series[short[n]] for n in names if n in short}, **options)
        for title, label, names, options in KNOWN_CHARTS
        if any(n in short for n in names)
    ]
    told = {short[n] for _, _, names, _ in KNOWN_CHARTS for n in names if n in short}
    rest = [name for name, series in log.series.items() if name not in told and has_curve(series)]
    rest = rest[: MOST_CHARTS - len(known)]
    own = [chart_of(name, name, {name: log.series[name]}) for name in rest if not name.startswith(PREFIX)]
    further = [chart_of(name, name, {name: log.series[name]}) for name in rest if name.startswith(PREFIX)]
    note = f"{CLIPPED} {medians(log)}".strip() if "score" in short else medians(log)
    named = {SAMPLING: (known, note), OWN_VALUES: (own, medians(log)), FURTHER: (further, medians(log))}
    return {
        heading: PictureGroup([draw(numbered(chart, f"{heading}-{k}")) for k, chart in enumerate(charts)], words)
        for heading, (charts, words) in named.items()
        if charts
    }


def has_curve(series: LoggedSeries) -> bool:
    """Whether there is a curve to draw."""
    return len(set(series.values)) > 1


def medians(log: RunLog) -> str:
    """What a point of a long line is."""
    size = max((values_per_point(series) for series in log.series.values()), default=1)
    return f"Each point is the median of up to {size} values." if size > 1 else ""


def values_per_point(series: LoggedSeries) -> int:
    """How many values a point stands for."""
    return math.ceil(len(series.steps) / POINTS_SHOWN)


def chart_of(title: str, label: str, lines: Mapping[str, LoggedSeries], **options: Any) -> Chart:
    """A line for each quantity; the ends of an interval make a band around what they belong to."""
    if len(label) > LONGEST:
        label = f"{label[: LONGEST - 1]}…"
    halves = half_widths(*(lines[end] for end in INTERVAL)) if {"score", *INTERVAL} <= lines.keys() else None
    drawn = {name: series for name, series in lines.items() if halves is None or name not in INTERVAL}
    made = [thinned(WORDS.get(name, name), series, halves) for name, series in drawn.items()]
    return Chart(title, "step", label, made, **options)


def half_widths(low: LoggedSeries, high: LoggedSeries) -> dict[float, float]:
    """Half the width of an interval, by step.

    >>> half_widths(LoggedSeries([1.0], [0.25]), LoggedSeries([1.0, 2.0], [0.75, 0.5]))
    {1.0: 0.25}
    """
    lows = dict(zip(low.steps, low.values, strict=True))
    return {s: (v - lows[s]) / 2 for s, v in zip(high.steps, high.values, strict=True) if s in lows}


def numbered(chart: Chart, name: str) -> Chart:
    """A chart that no other on the page is confused with."""
    fields = {k: v for k, v in vars(chart).items() if k != "name"}
    return Chart(**fields, name=name)


def thinned(name: str, series: LoggedSeries, halves: Mapping[float, float] | None = None) -> Series:
    """At most so many points, each the median of values that follow each other, at their last step; halves: of a band.

    >>> line = thinned("a", LoggedSeries([1.0, 2.0], [5.0, 6.0]))
    >>> line.x, line.mean
    ([1.0, 2.0], [5.0, 6.0])
    """
    size = values_per_point(series) or 1
    groups = [slice(k, k + size) for k in range(0, len(series.steps), size)]
    x = [series.steps[group][-1] for group in groups]
    y = [statistics.median(series.values[group]) for group in groups]
    widths = [(halves or {}).get(step, math.nan) for step in series.steps]
    return Series(name, x, y, [statistics.median(widths[group]) for group in groups])


# ---- the table


def latest_table(log: RunLog) -> Table:
    """Every quantity with its latest value."""
    rows = [[Cell(name), *value_cells(series)] for name, series in log.series.items()]
    return Table(["name", "latest", "at step", "lowest", "highest"], rows, "A value that never changes has no chart.")


def value_cells(series: LoggedSeries) -> Sequence[Cell]:
    """Latest value and its step, lowest and highest."""
    latest, step = series.values[-1], series.steps[-1]
    numbers = [latest, min(series.values), max(series.values)]
    shown = [Cell(short_number(v), sort=v) for v in numbers]
    return [shown[0], Cell(tick_label(step), sort=step), *shown[1:]]


def short_number(value: float) -> str:
    """A number of any size in few digits.

    >>> short_number(0.031416), short_number(1234567.0), short_number(204.4), short_number(-0.5)
    ('0.0314', '1.23e+06', '204', '−0.5')
    """
    if not math.isfinite(value):
        return DASH
    if abs(value) < 1e6 and (abs(value) >= 100 or value == int(value)):
        return tick_label(float(round(value)))
    return f"{value:.3g}".replace("-", "\u2212")

"""Line charts: a mean with a band per series, reference lines, and values on hover."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from .drawing import Box, Drawing, Frame, LegendKey, element, path, px, text
from .scales import Axis, tick_label

PLOT = Box(76, 456, 10, 240)
COLOURS = 9  # charts.css names so many; more series begin again with the first

Point = tuple[float, float, float]  # x, mean, spread


@dataclass(frozen=True)
class Series:
    """One line: x, the mean at each x, and the spread (half the height of the band; NaN draws none).

    colour: which of the colours, by default the next one.
    """

    name: str
    x: Sequence[float]
    mean: Sequence[float]
    spread: Sequence[float]
    colour: int | None = None

    def points(self, log_y: bool) -> list[Point]:
        """(x, mean, spread) wherever there is something to draw."""
        rows = zip(self.x, self.mean, self.spread, strict=True)
        return [(x, m, s) for x, m, s in rows if math.isfinite(m) and (m > 0 or not log_y)]


@dataclass(frozen=True)
class Chart:
    """A titled chart. references: (value, label) of dashed lines; y_from and y_to fix an end of the y axis.

    name: tells the chart from others of the same title on a page; places: digits after the point in the legend, about
    three significant ones if None.
    """

    title: str
    x_label: str
    y_label: str
    series: Sequence[Series]
    log_y: bool = False
    references: Sequence[tuple[float, str]] = ()
    y_from: float | None = None
    y_to: float | None = None
    name: str = ""
    places: int | None = None

    def colours(self) -> list[int]:
        """The colour of each series."""
        return [(k if s.colour is None else s.colour) % COLOURS for k, s in enumerate(self.series)]

    def points(self) -> list[list[Point]]:
        """Those of each series that can be drawn."""
        return [series.points(self.log_y) for series in self.series]


def legend_value(value: float, spread: float = math.nan, places: int | None = None) -> str:
    """A value with so many places or about three significant digits, and its spread to the same place.

    >>> legend_value(0.0031416), legend_value(91.25, 3.1), legend_value(0.0)
    ('0.00314', '91.2 ± 3.1', '0.00')
    >>> legend_value(2.5e-6)
    '2.5e−06'
    >>> legend_value(10.154, 0.16, places=2)
    '10.15 ± 0.16'
    """
    if places is None and 0 < abs(value) < 1e-4:
        return f"{value:.1e}".replace("-", "\u2212")
    if places is None:
        places = 2 if value == 0 else min(6, max(0, 2 - math.floor(math.log10(abs(value)))))
    shown = f"{value:.{places}f}".replace("-", "\u2212")
    return f"{shown} ± {spread:.{places}f}" if math.isfinite(spread) else shown


# ---- axes


def y_axis(chart: Chart) -> Axis:
    """An axis that holds all means, bands and references, with a little air."""
    points = [point for own in chart.points() for point in own]
    ends = [v for _, m, s in points for v in ((m, m - s, m + s) if math.isfinite(s) else (m,))]
    free = (log_ends if chart.log_y else even_ends)(chart, ends, [m for _, m, _ in points])
    low, high = (v if fixed is None else fixed for v, fixed in zip(free, (chart.y_from, chart.y_to), strict=True))
    if not low < high:  # all values lie beyond a fixed end
        low, high = free
    return Axis(low, high, PLOT.bottom, PLOT.top, chart.log_y)


def log_ends(chart: Chart, ends: Sequence[float], means: Sequence[float]) -> tuple[float, float]:
    """Of a logarithmic axis. A band may reach below zero: then two fifths of the lowest mean must do."""
    shown = [v for v in ends if v > 0] or [0.1, 1.0]
    return max(min(shown), 0.4 * min(means, default=min(shown))) / 1.1, max(shown) * 1.1


def even_ends(chart: Chart, ends: Sequence[float], means: Sequence[float]) -> tuple[float, float]:
    """Of an even axis, which ends at 0 where all values are positive."""
    shown = [*ends, *(v for v, _ in chart.references)] or [0.1, 1.0]
    low, high = min(shown), max(shown)
    air = 0.06 * (high - low) or max(0.5, 1e-9 * abs(high))  # 0.5 is lost beside a very large number
    return (max(0.0, low - air) if low >= 0 else low - air), high + air


def frame_of(chart: Chart) -> Frame:
    """From 0 to the last x, and over all that is drawn."""
    last = max((x for series in chart.series for x in series.x), default=1.0) or 1.0
    x = Axis(0.0, last, PLOT.left, PLOT.right)
    return Frame(PLOT, x, y_axis(chart), chart.x_label, chart.y_label)


# ---- the picture


def curve(points: Sequence[Point], colour: int, x: Axis, y: Axis) -> Markup:
    """The band and the line of one series."""
    banded = [p for p in points if math.isfinite(p[2])]
    there = [f"{px(x(a))} {px(y(m + s))}" for a, m, s in banded]
    back = [f"{px(x(a))} {px(y(m - s))}" for a, m, s in reversed(banded)]
    band = [path("band", f"M{'L'.join(there + back)}Z")] if banded else []
    line = [path("line", "M" + "L".join(f"{px(x(a))} {px(y(m))}" for a, m, _ in points))] if points else []
    return element("g", *band, *line, class_=f"s{colour}")


def references(chart: Chart, frame: Frame) -> list[Markup]:
    """Dashed lines; the name of each stands under its tick, where no line runs."""
    names = [text(PLOT.left - 8, frame.y(value) + 17, name, "end", "note") for value, name in chart.references]
    return [*(frame.level(value, "reference") for value, _ in chart.references), *names]


def svg(chart: Chart) -> Markup:
    """The picture alone."""
    frame = frame_of(chart)
    clip = "clip-" + "".join(c if c.isalnum() else "-" for c in (chart.name or chart.title).lower())
    edge = f"M{px(PLOT.left)} {px(PLOT.top - 2)}H{px(PLOT.right + 2)}V{px(PLOT.bottom + 2)}H{px(PLOT.left)}Z"
    lines = [curve(p, k, frame.x, frame.y) for k, p in zip(chart.colours(), chart.points(), strict=True)]
    dots = [element("circle", class_=f"dot s{k}", r="3.5") for k in chart.colours()]
    cross = path("cross", f"M0 {px(PLOT.top)}V{px(PLOT.bottom)}")
    marks = [
        *references(chart, frame),
        element("clipPath", element("path", d=edge), id=clip),
        element("g", *lines, clip_path=f"url(#{clip})"),
        element("g", cross, *dots, class_="hover", visibility="hidden"),
    ]
    return frame.picture(f"{chart.title}: {chart.y_label} over {chart.x_label}", marks)


def early_end(x: Sequence[float], high: float) -> str:
    """What a legend says of a line that ends more than a point before the others.

    >>> early_end([10, 20, 30], 60), early_end([10, 20, 30], 35)
    (' (ended at 30)', '')
    """
    return f" (ended at {tick_label(round(x[-1]))})" if len(x) > 1 and high - x[-1] > x[-1] - x[-2] else ""


def draw(chart: Chart) -> Drawing:
    """The picture with its title and legend; the legend shows the last values, and on hover those under the pointer.

    The script finds, for each series: x, the pixel of each point, the text to show, and what is said beyond its end.
    """
    frame = frame_of(chart)
    hover, legend = [], []
    for k, series, points in zip(chart.colours(), chart.series, chart.points(), strict=True):
        texts = [legend_value(m, s, chart.places) for _, m, s in points]
        at = [[frame.x(a), frame.y.clipped(m)] for a, m, _ in points]
        end = early_end([a for a, _, _ in points], frame.x.high)
        hover.append({"x": [a for a, _, _ in points], "at": at, "text": texts, "end": end})
        legend.append(LegendKey(series.name, f"s{k}", texts[-1] + end if texts else "\u2013"))
    shown = json.dumps(hover, separators=(",", ":"))
    return Drawing(chart.title, svg(chart), legend, hover=shown, where=(chart.x_label, tick_label(frame.x.high)))

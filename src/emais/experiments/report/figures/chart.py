"""Line charts as inline SVG: a mean with a band per series, round ticks, reference lines, and values on hover."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

WIDTH, HEIGHT = 480, 290
LEFT, RIGHT, TOP, BOTTOM = 76, 456, 10, 240  # edges of the plot: the labels around it are larger on a phone
COLOURS = 9  # the report's style names so many, `page` one fewer; more series begin again with the first


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

    def points(self, log_y: bool) -> list[tuple[float, float, float]]:
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


@dataclass(frozen=True)
class Axis:
    """Maps values from `low` to `high` onto pixels from `start` to `end`."""

    low: float
    high: float
    start: float
    end: float
    log: bool = False

    def __call__(self, value: float) -> float:
        """The pixel of a value."""
        low, high = self.low, self.high
        if self.log:
            value, low, high = math.log10(max(value, low)), math.log10(low), math.log10(high)
        return round(self.start + (value - low) / (high - low) * (self.end - self.start), 1)

    def ticks(self) -> list[float]:
        """Round values inside the axis."""
        return log_ticks(self.low, self.high) if self.log else round_ticks(self.low, self.high)


def round_ticks(low: float, high: float, most: int = 6) -> list[float]:
    """Multiples of 1, 2 or 5 times a power of ten from low to high, at most `most` of them.

    >>> round_ticks(0.0, 4000.0), round_ticks(0.03, 0.11)
    ([0.0, 1000.0, 2000.0, 3000.0, 4000.0], [0.04, 0.06, 0.08, 0.1])
    """
    unit = 10.0 ** math.floor(math.log10((high - low) / most))
    for step in (unit, 2 * unit, 5 * unit, 10 * unit, 20 * unit):
        first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
        if last - first < most:
            break
    return [float(f"{k * step:.12g}") for k in range(first, last + 1)]


def log_ticks(low: float, high: float) -> list[float]:
    """Powers of ten from low to high, with their doubles and fives where there is room, and more within a decade.

    >>> log_ticks(0.002, 0.3), log_ticks(1e-5, 1.0)
    ([0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2], [1e-05, 0.0001, 0.001, 0.01, 0.1, 1.0])
    >>> log_ticks(8.5, 42.0)
    [10.0, 15.0, 20.0, 30.0, 40.0]
    """
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    width = math.log10(high / low)
    digits = (1, 1.5, 2, 3, 4, 6, 8) if width <= 1 else (1, 2, 5) if width <= 2.5 else (1,)
    values = [float(f"{d}e{k}") for k in decades for d in digits]
    return [v for v in values if low * (1 - 1e-9) <= v <= high * (1 + 1e-9)]


def number(value: float) -> str:
    """A tick's label: plain digits, thin spaces in long ones.

    >>> number(0.05), number(25000.0).split(), number(1e-4)
    ('0.05', ['25', '000'], '1e−4')
    """
    if abs(value) >= 10000:
        return f"{value:,.0f}".replace(",", "\u2009")
    if 0 < abs(value) < 1e-3:
        return f"{value:.0e}".replace("e-0", "e\u2212")
    return f"{value:.12g}".replace("-", "\u2212")


def precise(value: float, spread: float = math.nan, places: int | None = None) -> str:
    """A value in the legend, with so many places or about three significant digits, and its spread to the same place.

    >>> precise(0.0031416), precise(91.25, 3.1), precise(0.0)
    ('0.00314', '91.2 ± 3.1', '0.00')
    >>> precise(2.5e-6)
    '2.5e−06'
    >>> precise(10.154, 0.16, places=2)
    '10.15 ± 0.16'
    """
    if places is None and 0 < abs(value) < 1e-4:
        return f"{value:.1e}".replace("-", "\u2212")
    if places is None:
        places = 2 if value == 0 else min(6, max(0, 2 - math.floor(math.log10(abs(value)))))
    text = f"{value:.{places}f}".replace("-", "\u2212")
    return f"{text} ± {spread:.{places}f}" if math.isfinite(spread) else text


def y_axis(chart: Chart) -> Axis:
    """An axis that holds all means, bands and references, with a little air."""
    points = [p for series in chart.series for p in series.points(chart.log_y)]
    ends = [v for _, m, s in points for v in ((m, m - s, m + s) if math.isfinite(s) else (m,))]
    ends = [v for v in ends if v > 0] if chart.log_y else [*ends, *(v for v, _ in chart.references)]
    low, high = (min(ends), max(ends)) if ends else (0.1, 1.0)
    if chart.log_y:  # a band may reach below zero, which has no place here: two fifths of the lowest mean must do
        low, high = max(low, 0.4 * min((m for _, m, _ in points), default=low)) / 1.1, high * 1.1
    else:
        air = 0.06 * (high - low) or 0.5
        low, high = (max(0.0, low - air) if low >= 0 else low - air), high + air
    low, high = (v if fixed is None else fixed for v, fixed in ((low, chart.y_from), (high, chart.y_to)))
    return Axis(low, high, BOTTOM, TOP, chart.log_y)


def x_axis(chart: Chart) -> Axis:
    """An axis from 0 to the last x."""
    return Axis(0.0, max((x for series in chart.series for x in series.x), default=1.0) or 1.0, LEFT, RIGHT)


def text(x: float, y: float, words: str, anchor: str, kind: str = "label", turn: str = "") -> str:
    """A piece of text whose start, middle or end lies at (x, y)."""
    turned = f' transform="rotate({turn} {x} {y})"' if turn else ""
    return f'<text class="{kind}" x="{x}" y="{y}" text-anchor="{anchor}"{turned}>{escape(words)}</text>'


def scale_marks(chart: Chart, x: Axis, y: Axis) -> list[str]:
    """Grid, tick labels, axis labels and reference lines."""
    marks = [f'<path class="rule" d="M{LEFT} {BOTTOM}H{RIGHT}"/>']
    for value in y.ticks():
        marks.append(f'<path class="grid" d="M{LEFT} {y(value)}H{RIGHT}"/>')
        marks.append(text(LEFT - 8, y(value) + 4, number(value), "end", "tick"))
    for value in x.ticks():
        marks.append(f'<path class="rule" d="M{x(value)} {BOTTOM}v4"/>')
        marks.append(text(x(value), BOTTOM + 19, number(value), "middle", "tick"))
    for value, label in chart.references:
        marks.append(f'<path class="reference" d="M{LEFT} {y(value)}H{RIGHT}"/>')
        marks.append(text(LEFT - 8, y(value) + 17, label, "end", "note"))  # under its tick, where no line runs
    marks.append(text((LEFT + RIGHT) / 2, HEIGHT - 8, chart.x_label, "middle"))
    marks.append(text(15, (TOP + BOTTOM) / 2, chart.y_label, "middle", turn="-90"))
    return marks


def curve(points: list[tuple[float, float, float]], colour: int, x: Axis, y: Axis) -> str:
    """The band and the line of one series."""
    banded = [p for p in points if math.isfinite(p[2])]
    there = [f"{x(a)} {y(m + s)}" for a, m, s in banded]
    back = [f"{x(a)} {y(m - s)}" for a, m, s in reversed(banded)]
    band = f'<path class="band" d="M{"L".join(there + back)}Z"/>' if banded else ""
    line = "L".join(f"{x(a)} {y(m)}" for a, m, _ in points)
    return f'<g class="s{colour}">{band}<path class="line" d="M{line}"/></g>' if points else ""


def svg(chart: Chart) -> str:
    """The picture alone."""
    x, y = x_axis(chart), y_axis(chart)
    name = escape(f"{chart.title}: {chart.y_label} over {chart.x_label}", quote=True)
    clip = "clip-" + "".join(c if c.isalnum() else "-" for c in (chart.name or chart.title).lower())
    curves = [curve(s.points(chart.log_y), k, x, y) for k, s in zip(chart.colours(), chart.series, strict=True)]
    dots = [f'<circle class="dot s{k}" r="3.5"/>' for k in chart.colours()]
    return "\n".join(
        [
            f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{name}">',
            f'<clipPath id="{clip}"><path d="M{LEFT} {TOP - 2}H{RIGHT + 2}V{BOTTOM + 2}H{LEFT}Z"/></clipPath>',
            *scale_marks(chart, x, y),
            f'<g clip-path="url(#{clip})">{"".join(curves)}</g>',
            f'<g class="hover" visibility="hidden"><path class="cross" d="M0 {TOP}V{BOTTOM}"/>{"".join(dots)}</g>',
            "</svg>",
        ]
    )


def figure(chart: Chart) -> str:
    """The picture with its title and legend; the legend shows the last values, and on hover those under the pointer.

    The hover script finds, in data-series, for each series: x, the pixel of each point and the text to show.
    """
    x, y = x_axis(chart), y_axis(chart)
    hover, legend = [], []
    for k, series in zip(chart.colours(), chart.series, strict=True):
        points = series.points(chart.log_y)
        texts = [precise(m, s, chart.places) for _, m, s in points]
        at = [[x(a), min(BOTTOM, max(TOP, y(m)))] for a, m, _ in points]
        hover.append({"x": [a for a, _, _ in points], "at": at, "text": texts})
        last = texts[-1] if texts else "\u2013"
        legend.append(f'<li class="s{k}"><i></i>{escape(series.name)} <output>{last}</output></li>')
    where = f"{escape(chart.x_label)} <b>{number(x.high)}</b>"
    return "\n".join(
        [
            f'<figure class="chart" data-series="{escape(json.dumps(hover, separators=(",", ":")), quote=True)}">',
            f"<figcaption><h3>{escape(chart.title)}</h3>",
            f'<ul class="legend">{"".join(legend)}<li class="where">{where}</li></ul></figcaption>',
            svg(chart),
            "</figure>",
        ]
    )

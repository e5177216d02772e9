"""A row of a table as a picture: a dot for our mean of each method, a ring for the paper's on its own data.

Both with their spread.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from markupsafe import Markup

from ...analysis.paper import COMPARABLE, OURS, Value, find
from ...analysis.settings import Setting, starred
from ...numbers import with_sd
from .drawing import Box, Drawing, Frame, LegendKey, dot, element, text
from .scales import Axis, padded

METHOD_ROW = 25  # pixels
DOTS_NOTE = (
    "Bars are one standard deviation. The methods of each picture are in the order of our means, the best on top."
)

Row = tuple[Setting, Value | None]  # our runs of a method, and the paper's value


def spread_of(sd: float) -> float:
    """A standard deviation, or nothing where there is none."""
    return sd if math.isfinite(sd) else 0.0


def value_axis(rows: Sequence[Row], box: Box) -> Axis:
    """Holds all of ours, and the paper's as far as they do not flatten the picture."""
    ours = [s.mean + sign * spread_of(s.sd) for s, _ in rows for sign in (-1, 1)]
    room = 0.6 * (max(ours) - min(ours)) or 0.5
    theirs = [v.mean + sign * v.sd for _, v in rows if v for sign in (-1, 1)]
    near = [v for v in theirs if min(ours) - room <= v <= max(ours) + room]
    return Axis(*padded([*ours, *near]), box.left, box.right)


def method_dot(kind: str, name: str, mean: float, sd: float, x: Axis, y: float) -> Markup:
    """A dot or ring with its spread; beyond the axis, an arrow with the number. kind: ours, own or paper."""
    whose = "paper" if kind == "paper" else "ours"
    words = f"{name}, {whose}: {with_sd(mean, sd)}"
    if x.low <= mean <= x.high:
        ends = x.clipped(mean - spread_of(sd)), x.clipped(mean + spread_of(sd))
        return dot(kind, words, x(mean), y, 4.5, ends)
    end, sign, anchor = (x.end, "→", "end") if mean > x.high else (x.start, "←", "start")
    arrow = text(end, y + 9, f"{whose} {mean:.2f} {sign}", anchor, "note")
    return element("g", element("title", words), arrow, class_=kind)


def method_marks(row: Row, x: Axis, y: float) -> list[Markup]:
    """A method's name, and what we and the paper have of it."""
    setting, value = row
    name, kind = starred(setting.config), "own" if setting.config.method in OURS else "ours"
    marks = [text(x.start - 10, y + 4, name, "end", "name")]
    if value is not None:
        marks.append(method_dot("paper", name, value.mean, value.sd, x, y + 4))
    return [*marks, method_dot(kind, name, setting.mean, setting.sd, x, y - 3)]


def dot_plot(title: str, settings: Sequence[Setting]) -> Drawing | None:
    """The methods of one row, the best of ours on top; None if there are no runs."""
    rows = [(s, find(s.config) if s.config.data in COMPARABLE else None) for s in settings if math.isfinite(s.mean)]
    if not rows:
        return None
    more = rows[0][0].metric == "map"
    rows.sort(key=lambda row: row[0].mean, reverse=more)
    box = Box(118, 452, 8, 8 + METHOD_ROW * len(rows))
    y = Axis(0, len(rows), box.top, box.bottom)
    unit = "mAP (%)" if more else "test error (%)"
    frame = Frame(box, value_axis(rows, box), y, unit, grid="x")
    marks = [mark for k, row in enumerate(rows) for mark in method_marks(row, frame.x, y(k + 0.5))]
    both = any(value is not None for _, value in rows)
    label = f"{title}: {unit} of each method, ours{' and the paper' if both else ''}"
    legend = [LegendKey("ours", "key ours"), *([LegendKey("paper", "key paper")] if both else [])]
    return Drawing(title, frame.picture(label, marks), legend)

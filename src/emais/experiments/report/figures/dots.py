"""A row of a table as a picture: a dot for our mean of each method, a ring for the paper's on its own data.

Both with their spread.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

from ...analysis.paper import COMPARABLE, OURS, Value, find
from ...analysis.settings import Setting, starred
from ...numbers import with_sd
from .chart import Axis, number, text

WIDTH, LEFT, RIGHT, TOP, LINE = 480, 118, 452, 8, 25


def spread_of(sd: float) -> float:
    """A standard deviation, or nothing where there is none."""
    return sd if math.isfinite(sd) else 0.0


def axis(rows: Sequence[tuple[Setting, Value | None]]) -> Axis:
    """Holds all of ours, and the paper's as far as they do not flatten the picture."""
    ours = [s.mean + sign * spread_of(s.sd) for s, _ in rows for sign in (-1, 1)]
    low, high = min(ours), max(ours)
    room = 0.6 * (high - low) or 0.5
    theirs = [v.mean + sign * v.sd for _, v in rows if v for sign in (-1, 1)]
    near = [v for v in theirs if low - room <= v <= high + room]
    low, high = min([low, *near]), max([high, *near])
    air = 0.05 * (high - low) or 0.5
    return Axis(low - air, high + air, LEFT, RIGHT)


def mark(kind: str, name: str, mean: float, sd: float, x: Axis, y: float) -> str:
    """A dot or ring with its spread; beyond the axis, an arrow with the number. kind: ours, own or paper."""
    whose = "paper" if kind == "paper" else "ours"
    words = f"<title>{escape(f'{name}, {whose}: {with_sd(mean, sd)}')}</title>"
    if not x.low <= mean <= x.high:
        end, sign, anchor = (RIGHT, "→", "end") if mean > x.high else (LEFT, "←", "start")
        body = text(end, y + 9, f"{whose} {mean:.2f} {sign}", anchor, "note")
        return f'<g class="{kind}">{words}{body}</g>'
    ends = [min(max(x(mean + sign * spread_of(sd)), LEFT), RIGHT) for sign in (-1, 1)]
    return f'<g class="{kind}">{words}<path d="M{ends[0]} {y}H{ends[1]}"/><circle cx="{x(mean)}" cy="{y}" r="4.5"/></g>'


def dot_plot(title: str, settings: Sequence[Setting]) -> str:
    """The methods of one row, the best of ours on top; an empty text if there are no runs."""
    rows = [(s, find(s.config) if s.config.data in COMPARABLE else None) for s in settings if math.isfinite(s.mean)]
    if not rows:
        return ""
    unit = "mAP (%)" if rows[0][0].metric == "map" else "test error (%)"
    rows.sort(key=lambda row: row[0].mean, reverse=unit.startswith("mAP"))
    x, bottom = axis(rows), TOP + LINE * len(rows)
    parts = [f'<path class="grid" d="M{x(v)} {TOP}V{bottom}"/>' for v in x.ticks()]
    parts += [text(x(v), bottom + 17, number(v), "middle", "tick") for v in x.ticks()]
    parts.append(text((LEFT + RIGHT) / 2, bottom + 36, unit, "middle"))
    for k, (setting, value) in enumerate(rows):
        y, name = TOP + LINE * (k + 0.5), starred(setting.config)
        parts.append(text(LEFT - 10, y + 4, name, "end", "name"))
        if value is not None:
            parts.append(mark("paper", name, value.mean, value.sd, x, y + 4))
        kind = "own" if setting.config.method in OURS else "ours"
        parts.append(mark(kind, name, setting.mean, setting.sd, x, y - 3))
    both = any(value is not None for _, value in rows)
    label = escape(f"{title}: {unit} of each method, ours{' and the paper' if both else ''}", quote=True)
    theirs = '<li class="key paper"><i></i>paper</li>' if both else ""
    legend = f'<ul class="legend"><li class="key ours"><i></i>ours</li>{theirs}</ul>'
    return (
        f'<figure class="dots"><figcaption><h3>{escape(title)}</h3>{legend}</figcaption>'
        f'<svg viewBox="0 0 {WIDTH} {bottom + 42}" role="img" aria-label="{label}">{"".join(parts)}</svg></figure>'
    )

"""How far methods are from SGD-Scan in each row of the first table, as one picture."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

from ...analysis.paper import NAMES
from ...analysis.settings import HEADS, Setting
from ...analysis.verdicts import standard_error
from ...numbers import decimal, with_sd
from .chart import Axis, number, text
from .curves import COLOUR
from .dots import spread_of

SHOWN = ("rais", "emais", "emais-auto")
WIDTH, LEFT, RIGHT, TOP, ROW = 480, 166, 468, 20, 36
NOTE = (
    "Difference from SGD-Scan, row by row (length and weight decay below the name): to the right of the zero line a "
    "method is better. Bars are one standard error of the difference."
)


def lead(setting: Setting, base: Setting) -> tuple[float, float]:
    """How many points better than SGD-Scan, and the standard error of that."""
    gap = setting.mean - base.mean if setting.metric == "map" else base.mean - setting.mean
    return gap, standard_error(setting, base)


def leads(row: Sequence[Setting]) -> dict[str, tuple[float, float]]:
    """The leads of a row's methods; none without SGD-Scan."""
    of = {s.config.method: s for s in row if math.isfinite(s.mean)}
    return {m: lead(of[m], of["sgd-scan"]) for m in SHOWN if m in of} if "sgd-scan" in of else {}


def mark(method: str, gap: float, error: float, x: Axis, y: float) -> str:
    """A dot with its bar; none for a single seed."""
    words = escape(f"{NAMES[method]}: {with_sd(gap, error)} points")
    bar = f'<path d="M{x(gap - error)} {y}H{x(gap + error)}"/>' if math.isfinite(error) else ""
    return f'<g class="s{COLOUR[method]}"><title>{words}</title>{bar}<circle cx="{x(gap)}" cy="{y}" r="4"/></g>'


def names(setting: Setting, y: float) -> list[str]:
    """Data and optimizer, below them length and weight decay."""
    config = setting.config
    first = f"{setting.title}{', Adam' if config.optimizer == 'adam' else ''}"
    second = f"{config.num_steps} steps, {decimal(config.weight_decay)}"
    return [text(LEFT - 10, y - 2, first, "end", "name"), text(LEFT - 10, y + 11, second, "end", "note")]


def difference_plot(rows: Sequence[Sequence[Setting]]) -> str:
    """A line for each row that has SGD-Scan; an empty text if none has."""
    found = [(row[0], own) for row in rows if (own := leads(row))]
    if not found:
        return ""
    pairs = [pair for _, own in found for pair in own.values()]
    ends = [0.0, *(gap + sign * spread_of(error) for gap, error in pairs for sign in (-1, 1))]
    air, bottom = 0.05 * (max(ends) - min(ends)) or 0.5, TOP + ROW * len(found)
    x = Axis(min(ends) - air, max(ends) + air, LEFT, RIGHT)
    parts = [f'<path class="grid" d="M{x(v)} {TOP}V{bottom}"/>' for v in x.ticks()]
    parts += [text(x(v), bottom + 17, number(v), "middle", "tick") for v in x.ticks()]
    parts += [f'<path class="zero" d="M{x(0)} {TOP}V{bottom}"/>', text(x(0), TOP - 7, "SGD-Scan", "middle", "name")]
    parts.append(text((LEFT + RIGHT) / 2, bottom + 36, "points better than SGD-Scan", "middle"))
    for k, (setting, own) in enumerate(found):
        y = TOP + ROW * (k + 0.5)
        parts += names(setting, y)
        parts += [mark(m, *own[m], x, y + 9 * (SHOWN.index(m) - 1)) for m in own]
    drawn = [m for m in SHOWN if any(m in own for _, own in found)]
    legend = "".join(f'<li class="s{COLOUR[m]}"><i></i>{HEADS[m]}</li>' for m in drawn)
    return (
        f'<div class="charts one"><figure class="dots"><figcaption><h3>Better or worse than SGD-Scan</h3>'
        f'<ul class="legend">{legend}</ul></figcaption><svg viewBox="0 0 {WIDTH} {bottom + 42}" role="img" '
        f'aria-label="Difference from SGD-Scan in each row">{"".join(parts)}</svg></figure></div>'
        f'<p class="soft">{NOTE}{" Rows without SGD-Scan are left out." if len(found) < len(rows) else ""}</p>'
    )

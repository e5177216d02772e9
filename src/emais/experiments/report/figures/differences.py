"""How far methods are from SGD-Scan in each row of the first table, as one picture."""

from __future__ import annotations

import math
from collections.abc import Sequence

from markupsafe import Markup

from ...analysis.paper import NAMES
from ...analysis.settings import HEADS, Setting
from ...analysis.verdicts import standard_error
from ...numbers import decimal, with_sd
from .curves import COLOUR
from .dots import spread_of
from .drawing import Box, Drawing, Frame, LegendKey, dot, text
from .scales import Axis, padded

COMPARED = ("rais", "emais", "emais-auto")
LEADS_ROW = 36  # pixels
LEADS_NOTE = (
    "Difference from SGD-Scan, row by row (length and weight decay below the name): to the right of the zero line a "
    "method is better. Bars are one standard error of the difference."
)

Lead = tuple[float, float]  # points better than SGD-Scan, and the standard error of that


def lead_of(setting: Setting, base: Setting) -> Lead:
    """How many points better than SGD-Scan, and the standard error of that."""
    gap = setting.mean - base.mean if setting.metric == "map" else base.mean - setting.mean
    return gap, standard_error(setting, base)


def leads(row: Sequence[Setting]) -> dict[str, Lead]:
    """The leads of a row's methods; none without SGD-Scan."""
    of = {s.config.method: s for s in row if math.isfinite(s.mean)}
    return {m: lead_of(of[m], of["sgd-scan"]) for m in COMPARED if m in of} if "sgd-scan" in of else {}


def lead_dot(method: str, gap: float, error: float, x: Axis, y: float) -> Markup:
    """A dot with its bar; none for a single seed."""
    words = f"{NAMES[method]}: {with_sd(gap, error)} points"
    bar = (x(gap - error), x(gap + error)) if math.isfinite(error) else None
    return dot(f"s{COLOUR[method]}", words, x(gap), y, 4, bar)


def row_marks(setting: Setting, own: dict[str, Lead], x: Axis, y: float) -> list[Markup]:
    """Data and optimizer, below them length and weight decay, and beside them the dots."""
    config = setting.config
    first = f"{setting.title}{', Adam' if config.optimizer == 'adam' else ''}"
    second = f"{config.num_steps} steps, {decimal(config.weight_decay)}"
    names = [text(x.start - 10, y - 2, first, "end", "name"), text(x.start - 10, y + 11, second, "end", "note")]
    return [*names, *(lead_dot(m, *own[m], x, y + 9 * (COMPARED.index(m) - 1)) for m in own)]


def lead_frame(found: Sequence[tuple[Setting, dict[str, Lead]]]) -> Frame:
    """A row for each, and an x axis that holds all bars and 0."""
    pairs = [pair for _, own in found for pair in own.values()]
    ends = [0.0, *(gap + sign * spread_of(error) for gap, error in pairs for sign in (-1, 1))]
    box = Box(166, 468, 20, 20 + LEADS_ROW * len(found))
    x, y = Axis(*padded(ends), box.left, box.right), Axis(0, len(found), box.top, box.bottom)
    return Frame(box, x, y, "points better than SGD-Scan", grid="x")


def difference_plot(rows: Sequence[Sequence[Setting]]) -> Drawing | None:
    """A line for each row that has SGD-Scan; None if none has."""
    found = [(row[0], own) for row in rows if (own := leads(row))]
    if not found:
        return None
    frame = lead_frame(found)
    zero = text(frame.x(0), frame.box.top - 7, "SGD-Scan", "middle", "name")
    marks = [mark for k, (s, own) in enumerate(found) for mark in row_marks(s, own, frame.x, frame.y(k + 0.5))]
    legend = [LegendKey(HEADS[m], f"s{COLOUR[m]}") for m in COMPARED if any(m in own for _, own in found)]
    svg = frame.picture("Difference from SGD-Scan in each row", [frame.upright(0, "zero"), zero, *marks])
    return Drawing("Better or worse than SGD-Scan", svg, legend)


def difference_note(rows: Sequence[Sequence[Setting]]) -> str:
    """What is said below the picture."""
    return f"{LEADS_NOTE}{'' if all(map(leads, rows)) else ' Rows without SGD-Scan are left out.'}"

"""What all kinds of figure are drawn with: a frame of axes, grid, ticks and labels, dots with bars, and legends."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from markupsafe import Markup, escape

from .scales import Axis, tick_label

PICTURE_WIDTH = 480
TICK_LABELS, AXIS_LABEL, FOOT = 18, 39, 46  # pixels below the plot: two baselines, and the end of the picture


@dataclass(frozen=True)
class Box:
    """The edges of a plot inside its picture, in pixels. Labels around it are larger on a phone."""

    left: float
    right: float
    top: float
    bottom: float

    @property
    def height(self) -> float:
        """Of the whole picture."""
        return self.bottom + FOOT


@dataclass(frozen=True)
class LegendKey:
    """An entry of a legend: a name, the CSS class that colours it, and a value that changes on hover."""

    name: str
    kind: str
    value: str | None = None


@dataclass(frozen=True)
class Drawing:
    """A picture as a page shows it.

    note: a line below the title; hover: what the script needs to show values under the pointer, as JSON; where: the
    name of the x axis and its last value, which the script replaces.
    """

    title: str
    svg: Markup
    legend: Sequence[LegendKey] = ()
    note: str = ""
    hover: str = ""
    where: tuple[str, str] | None = None


@dataclass(frozen=True)
class Frame:
    """A box with its axes. grid: the axes ("x", "y" or "xy") that have lines across the plot at their ticks.

    An x axis without such lines has a rule with short ticks; a y axis without them has no ticks: it only tells rows
    apart.
    """

    box: Box
    x: Axis
    y: Axis
    x_label: str
    y_label: str = ""
    grid: str = "y"

    def marks(self) -> list[Markup]:
        """Grid, ticks and labels."""
        box = self.box
        found = [*self._x_marks(), *self._y_marks()]
        found.append(text((box.left + box.right) / 2, box.bottom + AXIS_LABEL, self.x_label, "middle"))
        if self.y_label:
            found.append(text(15, (box.top + box.bottom) / 2, self.y_label, "middle", turn=-90))
        return found

    def _x_marks(self) -> list[Markup]:
        box, ticks = self.box, self.x.ticks()
        labels = [text(self.x(v), box.bottom + TICK_LABELS, tick_label(v), "middle", "tick") for v in ticks]
        if "x" in self.grid:
            return [*(self.upright(v, "grid") for v in ticks), *labels]
        rule = path("rule", f"M{px(box.left)} {px(box.bottom)}H{px(box.right)}")
        return [rule, *(path("rule", f"M{px(self.x(v))} {px(box.bottom)}v4") for v in ticks), *labels]

    def _y_marks(self) -> list[Markup]:
        ticks = self.y.ticks() if "y" in self.grid else []
        labels = [text(self.box.left - 8, self.y(v) + 4, tick_label(v), "end", "tick") for v in ticks]
        return [*(self.level(v, "grid") for v in ticks), *labels]

    def upright(self, value: float, kind: str) -> Markup:
        """A line across the plot at an x value."""
        return path(kind, f"M{px(self.x(value))} {px(self.box.top)}V{px(self.box.bottom)}")

    def level(self, value: float, kind: str) -> Markup:
        """A line across the plot at a y value."""
        return path(kind, f"M{px(self.box.left)} {px(self.y(value))}H{px(self.box.right)}")

    def picture(self, label: str, marks: Iterable[Markup]) -> Markup:
        """The whole picture: the frame, and on top of it these marks; label: what it shows, for who cannot see it."""
        size = f"0 0 {PICTURE_WIDTH} {px(self.box.height)}"
        return element("svg", *self.marks(), *marks, viewBox=size, role="img", aria_label=label)


# ---- elements


def px(value: float) -> str:
    """A number of pixels.

    >>> px(76.0), px(12.34)
    ('76', '12.3')
    """
    return f"{round(value, 1):g}"


def element(tag: str, *content: Markup | str, **attributes: object) -> Markup:
    """An element; text in it is escaped, `class_` is class, and other underscores are hyphens.

    >>> str(element("text", "a < b", class_="note", text_anchor="end"))
    '<text class="note" text-anchor="end">a &lt; b</text>'
    """
    names = {name.rstrip("_").replace("_", "-"): value for name, value in attributes.items()}
    start = "".join(f' {name}="{escape(value)}"' for name, value in names.items())
    inside = Markup("").join(content)
    return Markup(f"<{tag}{start}>{inside}</{tag}>" if inside else f"<{tag}{start}/>")


def path(kind: str, d: str) -> Markup:
    """A line, or the outline of an area."""
    return element("path", class_=kind, d=d)


def text(x: float, y: float, words: str, anchor: str, kind: str = "label", turn: int = 0) -> Markup:
    """A piece of text whose start, middle or end lies at (x, y)."""
    turned = {"transform": f"rotate({turn} {px(x)} {px(y)})"} if turn else {}
    return element("text", words, class_=kind, x=px(x), y=px(y), text_anchor=anchor, **turned)


def dot(kind: str, words: str, x: float, y: float, size: float, bar: tuple[float, float] | None = None) -> Markup:
    """A dot at a pixel, what it says on hover, and a bar from one x to another."""
    line = [element("path", d=f"M{px(bar[0])} {px(y)}H{px(bar[1])}")] if bar else []
    return element("g", element("title", words), *line, element("circle", cx=px(x), cy=px(y), r=size), class_=kind)

"""Charts: points where the axes say, exact values on hover, round ticks, one frame for all kinds, escaped text."""

from __future__ import annotations

import json
import math

import pytest

from emais.experiments.report.figures.chart import PLOT, Chart, Series, draw, svg
from emais.experiments.report.figures.drawing import Box, Frame, element
from emais.experiments.report.figures.scales import Axis, round_ticks


def test_chart_puts_points_where_the_axes_say() -> None:
    drawn = Chart("T", "x", "y", [Series("a", [0.0, 10.0], [0.0, 4.0], [math.nan] * 2)], y_from=0.0, y_to=4.0)
    assert f'class="line" d="M{PLOT.left} {PLOT.bottom}L{PLOT.right} {PLOT.top}"' in svg(drawn)
    assert 'class="band"' not in svg(drawn)


def test_hover_data_has_the_exact_values() -> None:
    drawn = Chart("T", "x", "y", [Series("a", [1.0, 2.0, 3.0], [0.5, 0.0, 0.25], [0.1, 0.1, 0.05])], log_y=True)
    (series,) = json.loads(draw(drawn).hover)
    assert series["x"] == [1.0, 3.0]  # a zero has no place on a logarithmic axis
    assert series["text"] == ["0.500 ± 0.100", "0.250 ± 0.050"]


@pytest.mark.parametrize(("low", "high"), [(0.0, 1.0), (-3.0, 7.7), (0.001, 0.0019), (0.0, 25000.0), (99.0, 101.0)])
def test_ticks_are_round_and_few(low: float, high: float) -> None:
    ticks = round_ticks(low, high)
    assert 3 <= len(ticks) <= 6
    assert low <= ticks[0] < ticks[-1] <= high
    gap = (ticks[-1] - ticks[0]) / (len(ticks) - 1)
    assert float(f"{gap:.6e}"[:8]) in (1, 2, 5)


@pytest.mark.parametrize(("grid", "lines", "ticks", "labels"), [("y", 5, 5, 10), ("x", 5, 0, 5), ("xy", 10, 0, 10)])
def test_every_kind_of_figure_has_the_same_frame(grid: str, lines: int, ticks: int, labels: int) -> None:
    x, y = Axis(0, 2, 100, 400), Axis(0, 2, 200, 10)
    marks = Frame(Box(100, 400, 10, 200), x, y, "x", grid=grid).marks()
    assert sum('class="grid"' in mark for mark in marks) == lines
    assert sum("v4" in mark for mark in marks) == ticks  # where no line crosses the plot
    assert sum('class="tick"' in mark for mark in marks) == labels


def test_text_in_pictures_is_escaped() -> None:
    drawn = draw(Chart('"><script>', "x", "y", [Series("<b>", [1.0], [1.0], [math.nan])]))
    assert "<script>" not in drawn.svg
    assert element("text", "<b>") == "<text>&lt;b&gt;</text>"

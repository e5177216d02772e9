"""From result records to charts: one quantity of each setting over the steps, as a mean and a band."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ...analysis.paper import NAMES
from ...analysis.quantities import mean_steps
from ...analysis.settings import Setting, method_name
from ...numbers import mean_sd, number
from ...runs.store import Record
from .chart import Chart, Series, draw
from .drawing import Drawing

COLOUR = {method: k for k, method in enumerate(NAMES)}  # EMAIS and EMAIS-auto are the last and the strongest
LIMITS = ((0.0, "optimal"), (1.0, "uniform"))
SCORES_SHOWN = (
    -0.1,
    1.5,
)  # of S(W): a rare sample with a large weight, or a denominator near 0, makes it anything
SCORE_AXIS = {"references": LIMITS, "y_from": SCORES_SHOWN[0], "y_to": SCORES_SHOWN[1], "places": 2}
HIGHEST = 2.5  # times the lowest final test error: where the axis of the test error ends
HIGH = "The axis of the test error ends at two and a half times the lowest final one; what lies above is cut off."
CLIPPED = "The axis of S(W) ends at −0.1 and 1.5: single values and bands beyond it are cut off."
MEANS = "A line is the mean over seeds, its band one standard deviation."


@dataclass(frozen=True)
class PictureGroup:
    """PictureGroup side by side, and what is said below them."""

    drawings: Sequence[Drawing]
    note: str = ""


@dataclass(frozen=True)
class Figure:
    """Charts that belong together, and what there is to say about them; lines: what a line and its band are."""

    label: str
    title: str
    charts: Sequence[Chart]
    note: str = ""
    lines: str = MEANS

    def pictures(self) -> PictureGroup:
        """The charts as a page shows them."""
        return PictureGroup([draw(chart) for chart in self.charts], f"{self.lines} {self.note}".strip())


# ---- curves


def rows_of(record: Record, quantity: str) -> list[float]:
    """One quantity of a run, point by point; `applied`: the learning rate as applied, `scaled`: that times N/N_ems."""
    curves = record["curves"]
    if quantity not in ("applied", "scaled"):
        return [number(v) for v in curves[quantity]]
    applied = [number(a) * number(b) for a, b in zip(curves["lr"], curves["lr_scale"], strict=True)]
    if quantity == "applied":
        return applied
    sizes = [number(v) for v in curves["n_ems"]]
    return [record["batch_size"] / n * rate if n else math.nan for n, rate in zip(sizes, applied, strict=True)]


Centre = Callable[[Sequence[float]], tuple[float, float]]


def median_range(values: Sequence[float]) -> tuple[float, float]:
    """Median and half the interquartile range of the finite values: single wild ones do not count.

    >>> median_range([1.0, 2.0, 3.0, 4.0, 1000.0])
    (3.0, 1.0)
    """
    finite = [v for v in values if math.isfinite(v)]
    if len(finite) < 2:
        return (finite[0] if finite else math.nan), math.nan
    low, middle, high = statistics.quantiles(finite, n=4, method="inclusive")
    return middle, (high - low) / 2


def series(
    setting: Setting,
    quantity: str,
    name: str = "",
    colour: int | None = None,
    *,
    cost: float = 1.0,
    centre: Centre = mean_sd,
) -> Series:
    """Mean and standard deviation (or another centre) over the seeds; cost: what a step counts on the x axis."""
    x = mean_steps(setting, "test_step" if quantity in ("test_error", "map") else "step")
    pairs = [centre(values) for values in zip(*(rows_of(r, quantity)[: len(x)] for r in setting.records), strict=True)]
    mean, spread = ([pair[k] for pair in pairs] for k in (0, 1))
    shade = COLOUR.get(setting.config.method) if colour is None else colour
    return Series(name or method_name(setting.config), [round(step * cost, 2) for step in x], mean, spread, shade)


Line = tuple[Setting, str, int | None]  # a setting, its name in the legend, its colour


def line_chart(title: str, y_label: str, quantity: str, lines: Sequence[Line], **options: object) -> Chart:
    """One quantity over the steps, a line for each setting."""
    drawn = [series(setting, quantity, name, colour) for setting, name, colour in lines]
    return Chart(title, "step", y_label, drawn, **options)  # type: ignore[arg-type]


def score_chart(title: str, lines: Sequence[Line], name: str) -> Chart:
    """S(W) between its limits."""
    return line_chart(title, "S(W)", "score", lines, name=name, **SCORE_AXIS)


def size_chart(title: str, lines: Sequence[Line], name: str) -> Chart:
    """N_ems from 0."""
    return line_chart(title, "Nₑₘₛ (samples)", "n_ems", lines, y_from=0.0, name=name, places=0)


def metric_chart(title: str, lines: Sequence[Line], name: str) -> Chart:
    """Test error on a log axis that ends where the interesting part does, or mAP on an even one."""
    if lines[0][0].metric == "map":
        return line_chart(title, "mAP (%)", "map", lines, name=name, places=2)
    lowest = min((v for s, _, _ in lines for v in s.values if math.isfinite(v)), default=0.0)
    top = HIGHEST * lowest if lowest > 0 else None
    return line_chart(
        title, "test error (%, log scale)", "test_error", lines, name=name, log_y=True, y_to=top, places=2
    )


def data_and_steps(setting: Setting) -> str:
    """Data set and length, for a title."""
    return f"{setting.title}, {setting.config.num_steps} steps"


def chart_name(setting: Setting, figure: str) -> str:
    """A name for a chart that no other chart has."""
    config = setting.config
    return f"{figure}-{config.data}-{config.model}-{config.optimizer}-{config.weight_decay:g}-{config.num_steps}"


def kind_of(setting: Setting) -> tuple[str, str, float]:
    """Data, optimizer, weight decay."""
    return setting.config.data, setting.config.optimizer, setting.config.weight_decay

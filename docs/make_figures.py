"""The pictures under docs/img, from the result files (written by `emais reproduce`); docs/render.py writes them.

progress.svg, the README's, and progress_narrow.svg, the same for a narrow screen; fmnist.svg, of docs/results.md;
auto.svg, of docs/auto.md, from the files that docs/make_auto.py names.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from pathlib import Path

from make_auto import FORMER, LETTERS, Place, Variant, base_of, variants

from emais.experiments.analysis.equal_progress import ProgressRow, progress_rows
from emais.experiments.analysis.paper import NETWORKS
from emais.experiments.analysis.settings import of_item
from emais.experiments.commands import read_all
from emais.experiments.numbers import mean_sd
from emais.experiments.report.figures.chart import PLOT, Chart, Series, svg
from emais.experiments.report.figures.curves import COLOUR, line_chart, metric_chart, score_chart
from emais.experiments.report.figures.drawing import PICTURE_WIDTH
from emais.experiments.report.pages import static
from emais.experiments.runs.catalogue import ITEMS
from emais.experiments.runs.store import Results

ROOT = Path(__file__).parent.parent
SCALE, STEPS = 0.62, 12500
METHODS = ("sgd-scan", "emais", "emais-auto")
TOP, LINE, LEFT_OF_TITLE = 34, 18, 40  # pixels: above a panel, of a line of the legend, left of all text

# ---- README: progress.svg

SHOWN = (("cifar10", "resnet18", 0.1), ("fmnist", "lenet5", 0.1), ("fmnist", "lenet5-relu", 0.03))  # at SGD's best rate
CUT = COLOUR["sgd-uni"]  # dashed, beside SGD-Scan's


def progress_chart(row: ProgressRow) -> Chart:
    """Test error of SGD-Scan, of EMAIS-auto at equal progress, and of SGD-Scan cut to as few steps."""
    ends = "EMAIS-auto, ends at equal progress"
    lines = [(row.base, "SGD", None), (row.shortened, "SGD, cut to as few steps", CUT), (row.progress, ends, None)]
    return metric_chart(f"{row.base.title}, {NETWORKS[row.config.model]}", lines, row.config.model)


def progress_charts() -> list[Chart]:
    """One for each data set and network, the shortest run that there is."""
    found: dict[tuple[str, str, float], ProgressRow] = {}
    for row in sorted(progress_rows(read_all(ROOT / "results")), key=lambda row: row.config.num_steps):
        found.setdefault((row.config.data, row.config.model, row.config.lr), row)
    return [progress_chart(found[place]) for place in SHOWN]


# ---- docs/results.md: fmnist.svg


def three_charts() -> list[Chart]:
    """Test error, N_ems and S(W) of SGD-Scan, EMAIS and EMAIS-auto, five seeds each."""
    settings = of_item(ITEMS["tab:res_fmnist"], Results(ROOT / "results" / "fmnist.jsonl").read())
    own = {s.config.method: s for s in settings if s.config.num_steps == STEPS}
    lines = [(own[method], "", None) for method in METHODS]
    return [
        metric_chart("Test error (%)", lines, "error"),
        line_chart("Effective minibatch size Nₑₘₛ", "Nₑₘₛ (samples)", "n_ems", lines, y_from=0.0, name="size"),
        score_chart("Efficiency score S(W)", lines, "score"),
    ]


# ---- docs/auto.md: auto.svg

PANELS = {  # and where the axis of S(W) ends
    Place("Fashion-MNIST", 12500, 1e-3, 0.01, "sgd", "lenet5", 128): 0.5,
    Place("CIFAR-10", 17500, 5e-4, 0.1, "sgd", "resnet18", 128): 1.2,
}
POWER = 1.0  # of the fixed factors that are drawn, or the nearest there is
REACH = 2  # points on either side of one
FACTORS = {1.0: 1, 0.3: 2, 0.1: 4, 0.03: 3}  # colours of fixed factors; 6 for any other


def steadied(values: Sequence[float | None]) -> list[float]:
    """The median of each point and its neighbours: a single minibatch with a rare large r |g| does not show.

    >>> steadied([1.0, 1.1, 20.0, 0.9, 1.0, 1.2])
    [1.1, 1.05, 1.0, 1.1, 1.1, 1.0]
    """
    near = [values[max(0, k - REACH) : k + REACH + 1] for k in range(len(values))]
    return [statistics.median([v for v in some if v is not None] or [math.nan]) for some in near]


def score_series(own: Variant) -> Series:
    """S(W) over the steps: mean and standard deviation over the seeds."""
    runs = list(own.runs.values())
    pairs = [mean_sd(values) for values in zip(*(steadied(r["curves"]["score"]) for r in runs), strict=True)]
    mean, spread = ([pair[k] for pair in pairs] for k in (0, 1))
    name = own.name.removesuffix(" (emais)")
    if own.method == "emais-auto" and own.options in ({}, FORMER):
        name = "EMAIS-auto"
    if own.fixed:  # without its bound, which the page names
        name = ", ".join(f"{letter} = {own.options[option][0]:g}" for option, letter in LETTERS.items())
    seeds = f"{len(runs)} seed{'s' if len(runs) > 1 else ''}"
    colour = FACTORS.get(own.options["factors"][0], 6) if own.fixed else COLOUR[own.method]
    return Series(f"{name} ({seeds})", runs[0]["curves"]["step"], mean, spread, colour)


def one_a_factor(fixed: Sequence[Variant]) -> list[Variant]:
    """Of several powers with the same factor the one nearest to 1."""
    far_first = sorted(fixed, key=lambda v: -abs(v.options["powers"][0] - POWER))
    chosen = {v.options["factors"]: v for v in far_first}
    return [v for v in fixed if v in chosen.values()]


def auto_charts() -> list[Chart]:
    """S(W) of Linear-tau, of all fixed factors there are, and of EMAIS-auto, on two data sets."""
    charts, found = [], variants()
    for place, top in PANELS.items():
        own = [v for v in found if v.place == place]
        drawn = one_a_factor([v for v in own if v.fixed and v.options.keys() <= {*LETTERS, "bound"}])
        drawn += [v for v in [*(v for v in own if v.method == "emais"), base_of(own)] if v is not None]
        lines, title = [score_series(v) for v in drawn], f"{place.data_title}, {place.num_steps} steps: S(W)"
        charts.append(Chart(title, "step", "S(W)", lines, y_from=0.0, y_to=top, name=place.data_title))
    return charts


# ---- SVG


def legend(one: Chart, left: float, top: float, columns: int, width: float) -> str:
    """The names of a chart's lines, in so many columns of this width."""
    entries = []
    for k, (colour, series) in enumerate(zip(one.colours(), one.series, strict=True)):
        x, y = left + k % columns * width, top + k // columns * LINE
        entries.append(
            f'<g class="s{colour}" transform="translate({x:g} {y:g})"><path class="line" d="M0 -4h18"/>'
            f'<text x="24" class="title">{series.name}</text></g>'
        )
    return "".join(entries)


def picture(
    charts: Sequence[Chart], scale: float, columns: int, column: float, *, shared: bool, stacked: bool = False
) -> str:
    """Charts side by side or stacked as one SVG file, over one legend or, if it is not shared, one for each."""
    panels, legends = [], []
    wide, tall = PICTURE_WIDTH * scale, PLOT.height * scale
    high = below = TOP + tall
    for k, one in enumerate(charts):
        inner = str(svg(one)).replace("<svg ", f'<svg y="{TOP}" width="{wide:g}" height="{tall:g}" ', 1)
        title = f'<text x="{LEFT_OF_TITLE}" y="22" class="title">{one.title}</text>'
        x, y = (0, k * high) if stacked else (k * wide, 0)
        panels.append(f'<g transform="translate({x:g} {y:g})">{title}{inner}</g>')
        below = len(charts) * high if stacked else high
        legends.append(legend(one, LEFT_OF_TITLE + x, below + LINE, columns, column))
    lines = max(-(-len(one.series) // columns) for one in charts)
    width = wide if stacked else len(charts) * wide
    height = below + LINE * lines + 14
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" '
        f'font-family="system-ui, sans-serif">\n<style>{static("charts.css")}svg {{ width: auto; }}\n'
        f"svg .title {{ font-size: 12px; fill: var(--ink); }}</style>\n"
        '<rect width="100%" height="100%" fill="var(--paper)"/>\n'
        f"{''.join(panels)}{''.join(legends[:1] if shared else legends)}\n</svg>\n"
    )


def pictures() -> dict[str, str]:
    """All pictures by the names of their files."""
    return {
        "progress.svg": picture(progress_charts(), SCALE, 3, 230, shared=True),
        "progress_narrow.svg": picture(progress_charts(), 0.93, 1, 230, shared=True, stacked=True),
        "fmnist.svg": picture(three_charts(), SCALE, 3, 110, shared=True),
        "auto.svg": picture(auto_charts(), 0.93, 2, 212, shared=False),
    }

"""The paper's figures as charts made from result records: `paper_figures(records)`."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from .catalogue import ITEMS
from .chart import Chart, Series
from .paper import NAMES, TITLES
from .results import Record, config_of
from .selection import Setting, by_row, method_name, number, of_item, present, record_key, settings_of
from .training import mean_sd

COLOUR = {method: k for k, method in enumerate(NAMES)}  # EMAIS is the last and the strongest
LIMITS = ((0.0, "optimal"), (1.0, "uniform"))
SHOWN = (-0.1, 1.5)  # of S(W): one rare sample with a large weight, or a denominator near 0, and it may be anything
HIGHEST = 2.5  # times the lowest final test error: where the axis of the test error ends
CLIPPED = "The axis of S(W) ends at −0.1 and 1.5: single values and bands beyond it are cut off."

MEDIANS = (
    "The second panel shows the median of the seeds with half the range between quartiles, which a wild value of one "
    "seed does not move."
)


@dataclass(frozen=True)
class Figure:
    """Charts that belong together, and what there is to say about them."""

    label: str
    title: str
    charts: Sequence[Chart]
    note: str = ""


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
    x = setting.records[0]["curves"]["test_step" if quantity in ("test_error", "map") else "step"]
    pairs = [centre(values) for values in zip(*(rows_of(r, quantity) for r in setting.records), strict=True)]
    mean, spread = ([pair[k] for pair in pairs] for k in (0, 1))
    shade = COLOUR.get(setting.config.method) if colour is None else colour
    return Series(name or method_name(setting.config), [step * cost for step in x], mean, spread, shade)


Line = tuple[Setting, str, int | None]  # a setting, its name in the legend, its colour


def chart(title: str, y_label: str, quantity: str, lines: Sequence[Line], **options: object) -> Chart:
    """One quantity over the steps, a line for each setting."""
    drawn = [series(setting, quantity, name, colour) for setting, name, colour in lines]
    return Chart(title, "step", y_label, drawn, **options)  # type: ignore[arg-type]


def score_chart(title: str, lines: Sequence[Line], name: str) -> Chart:
    """S(W) between its limits."""
    return chart(title, "S(W)", "score", lines, references=LIMITS, y_from=SHOWN[0], y_to=SHOWN[1], name=name)


def metric_chart(title: str, lines: Sequence[Line], name: str) -> Chart:
    """Test error on a log axis that ends where the interesting part does, or mAP on an even one."""
    if lines[0][0].metric == "map":
        return chart(title, "mAP (%)", "map", lines, name=name)
    lowest = min((v for s, _, _ in lines for v in s.values if math.isfinite(v)), default=0.0)
    top = HIGHEST * lowest if lowest > 0 else None
    return chart(title, "test error (%, log scale)", "test_error", lines, name=name, log_y=True, y_to=top)


def place(setting: Setting, *, length: bool = True) -> str:
    """Data set and length, for a title."""
    title = TITLES.get(setting.config.data, setting.config.data)
    return f"{title}, {setting.config.num_steps} steps" if length else title


def key_of(setting: Setting, figure: str) -> str:
    """A name for a chart that no other chart has."""
    config = setting.config
    return f"{figure}-{config.data}-{config.optimizer}-{config.weight_decay:g}-{config.num_steps}"


# ---- the paper's figures; each takes the settings of one row (data, optimizer, weight decay, length)


def is_scores(row: Sequence[Setting]) -> list[Chart]:
    """fig:is_scores: S(W) for fixed tau and Linear-tau."""
    fixed = sorted((s for s in row if set(s.config.options) == {"tau"}), key=lambda s: float(s.config.options["tau"]))
    plain = unchanged(row, "emais")
    if not fixed:
        return []
    lines: list[Line] = [(s, f"τ = {s.config.options['tau']}", k) for s, k in zip(fixed, (1, 2, 4, 3, 5), strict=False)]
    lines += [(s, "Linear-τ", None) for s in plain]
    key = key_of(row[0], "is_scores")
    drawn = [series(s, "score", name, colour, centre=median_range) for s, name, colour in lines]
    limits = {"references": LIMITS, "y_from": SHOWN[0], "y_to": SHOWN[1]}
    return [
        score_chart(f"S(W), {place(row[0])}", lines, f"{key}-1"),
        Chart("The same, medians over seeds", "step", "S(W)", drawn, **limits, name=f"{key}-2"),  # type: ignore[arg-type]
    ]


def lr_ablation(row: Sequence[Setting]) -> list[Chart]:
    """fig:fmnist_lr_adjust_ablation: five panels."""
    without = [s for s in row if s.config.rule == "none" and s.config.method == "emais"]
    if not without:
        return []
    ours: list[Line] = [(s, "EMAIS", None) for s in unchanged(row, "emais")]
    ours += [(s, "EMAIS without adjustment", 4) for s in without]
    lines = ours + [(s, "SGD-Uni", None) for s in unchanged(row, "sgd-uni")]
    key = key_of(row[0], "ablation")
    return [
        chart(f"Training loss, {place(row[0])}", "loss (log scale)", "loss", lines, log_y=True, name=f"{key}-1"),
        metric_chart("Test error", lines, f"{key}-2"),
        chart("Effective minibatch size Nₑₘₛ", "Nₑₘₛ (samples)", "n_ems", ours, y_from=0.0, name=f"{key}-3"),
        chart("Learning rate applied", "learning rate", "applied", ours, y_from=0.0, name=f"{key}-4"),
        chart("Scaled learning rate", "N/Nₑₘₛ · learning rate", "scaled", ours, y_from=0.0, name=f"{key}-5"),
    ]


def following(row: Sequence[Setting]) -> list[Chart]:
    """fig:fmnist_sgd_unif_n_ems: loss, test error, and the sizes."""
    dynamic = [s for s in row if s.config.follow]
    if not dynamic:
        return []
    ours: list[Line] = [(s, "EMAIS, N = 128", None) for s in unchanged(row, "emais")]
    sizes = ours + [(s, "SGD-Uni, N = Nₑₘₛ of EMAIS", 4) for s in dynamic]
    lines = sizes + [(s, "SGD-Uni, N = 128", None) for s in unchanged(row, "sgd-uni")]
    lines += [(s, "SGD-Scan, N = 128", None) for s in unchanged(row, "sgd-scan")]
    key = key_of(row[0], "following")
    return [
        chart(f"Training loss, {place(row[0])}", "loss (log scale)", "loss", lines, log_y=True, name=f"{key}-1"),
        metric_chart("Test error", lines, f"{key}-2"),
        chart("Effective minibatch size Nₑₘₛ", "Nₑₘₛ (samples)", "n_ems", sizes, y_from=0.0, name=f"{key}-3"),
    ]


def state_updates(row: Sequence[Setting]) -> list[Chart]:
    """fig:additional_state_updates: loss, test error and S(W)."""
    refreshed = [s for s in row if s.config.refresh_every]
    if not refreshed:
        return []
    lines: list[Line] = [(s, "EMAIS", None) for s in unchanged(row, "emais")]
    lines += [(s, f"refreshed every {s.config.refresh_every} steps", 0) for s in refreshed]
    key = key_of(row[0], "updates")
    return [
        chart(f"Training loss, {place(row[0])}", "loss (log scale)", "loss", lines, log_y=True, name=f"{key}-1"),
        metric_chart("Test error", lines, f"{key}-2"),
        score_chart("S(W)", lines, f"{key}-3"),
    ]


def score_and_traces(row: Sequence[Setting]) -> list[Chart]:
    """fig:score_and_trvars: S(W), and the three traces it is made of."""
    charts = []
    for s in unchanged(row, "emais"):
        traces = [
            series(s, name, words, colour)
            for name, words, colour in (("tr_is", "EMAIS", 7), ("tr_unif", "uniform", 0), ("tr_opt", "optimal", 2))
        ]
        key, label = key_of(s, "traces"), "trace of the variance (log scale)"
        charts.append(score_chart(f"S(W), {place(s)}", [(s, "EMAIS", None)], f"{key}-1"))
        charts.append(Chart("Traces of the gradient variance", "step", label, traces, log_y=True, name=f"{key}-2"))
    return charts


def unchanged(row: Sequence[Setting], method: str) -> list[Setting]:
    """The runs of a method with nothing special, at the learning rate that the row's other runs have."""
    special = [s for s in row if s.config.options or s.config.rule or s.config.refresh_every or s.config.follow]
    rates = {s.config.lr for s in special}
    plain = [s for s in row if s not in special and s.config.method == method]
    return [s for s in plain if s.config.lr in rates] if rates else plain[:1]


def paper_figures(records: Sequence[Record]) -> list[Figure]:
    """Those of the paper that there are runs for, on every data set that has them."""
    kinds = {record_key(record): record for record in records}
    rows = by_row(settings_of([config_of(record) for record in kinds.values()], records))
    tables = [s for label, item in ITEMS.items() if label.startswith("tab:res") for s in of_item(item, records)]
    longest = [row for row in by_row(present(tables)) if is_longest(row[0], present(tables))]
    makers: dict[str, tuple[Callable[[Sequence[Setting]], list[Chart]], str, list[list[Setting]]]] = {
        "fig:is_scores": (is_scores, f"{CLIPPED} {MEDIANS}", rows),
        "fig:fmnist_sgd_unif_n_ems": (following, "", rows),
        "fig:fmnist_lr_adjust_ablation": (
            lr_ablation,
            "The learning rate of a point is the mean over its steps times the mean adjustment over them.",
            rows,
        ),
        "fig:additional_state_updates": (state_updates, CLIPPED, rows),
        "fig:score_and_trvars": (score_and_traces, CLIPPED, longest),
    }
    found = []
    for label, (make, note, own) in makers.items():
        charts = [c for row in own for c in make(row)]
        if charts:
            found.append(Figure(label, ITEMS[label].title, charts, note))
    return found


def is_longest(setting: Setting, others: Sequence[Setting]) -> bool:
    """Whether no runs of the same kind are longer."""
    return setting.config.num_steps == max(s.config.num_steps for s in others if kind_of(s) == kind_of(setting))


def kind_of(setting: Setting) -> tuple[str, str, float]:
    """Data, optimizer, weight decay."""
    return setting.config.data, setting.config.optimizer, setting.config.weight_decay

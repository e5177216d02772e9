"""The paper's figures: `paper_figures(records)`."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ...analysis.paper import TITLES
from ...analysis.settings import Setting, by_row, is_default, of_item, present
from ...numbers import decimal
from ...runs.catalogue import ITEMS
from ...runs.store import Record
from .chart import Chart
from .curves import (
    CLIPPED,
    HIGH,
    MEANS,
    SCORE_AXIS,
    Figure,
    Line,
    chart_name,
    data_and_steps,
    kind_of,
    line_chart,
    median_range,
    metric_chart,
    score_chart,
    series,
    size_chart,
)

MEDIANS = (
    "A line is the median over seeds, its band half the range between quartiles: a wild value of one seed does not "
    "move it."
)
QUARTER = "CIFAR-10 stands in for CINIC-10, with a quarter of the paper's steps and of every number of steps in it."


# ---- the paper's figures; each takes the settings of one row (data, optimizer, weight decay, length)


def is_scores(row: Sequence[Setting]) -> list[Chart]:
    """fig:is_scores: S(W) for fixed tau and Linear-tau."""
    fixed = sorted((s for s in row if set(s.config.options) == {"tau"}), key=lambda s: float(s.config.options["tau"]))
    plain = unchanged(row, "emais")
    if not fixed:
        return []
    lines: list[Line] = [(s, f"τ = {s.config.options['tau']}", k) for s, k in zip(fixed, (1, 2, 4, 3, 5), strict=False)]
    lines += [(s, "Linear-τ", None) for s in plain]
    key = chart_name(row[0], "is_scores")
    drawn = [series(s, "score", name, colour, centre=median_range) for s, name, colour in lines]
    return [Chart(f"S(W), {data_and_steps(row[0])}", "step", "S(W)", drawn, name=key, **SCORE_AXIS)]  # type: ignore[arg-type]


def loss_and_error(row: Sequence[Setting], lines: Sequence[Line], key: str) -> list[Chart]:
    """The first two panels of most figures."""
    title = f"Training loss, {data_and_steps(row[0])}"
    return [
        line_chart(title, "loss (log scale)", "loss", lines, log_y=True, name=f"{key}-1"),
        metric_chart("Test error", lines, f"{key}-2"),
    ]


def lr_ablation(row: Sequence[Setting]) -> list[Chart]:
    """fig:fmnist_lr_adjust_ablation: five panels."""
    without = [s for s in row if s.config.rule == "none" and s.config.method == "emais"]
    if not without:
        return []
    ours: list[Line] = [(s, "EMAIS", None) for s in unchanged(row, "emais")]
    ours += [(s, "EMAIS without adjustment", 4) for s in without]
    lines = ours + [(s, "SGD-Uni", None) for s in unchanged(row, "sgd-uni")]
    key = chart_name(row[0], "ablation")
    return [
        *loss_and_error(row, lines, key),
        size_chart("Effective minibatch size Nₑₘₛ", ours, f"{key}-3"),
        line_chart("Learning rate applied", "learning rate", "applied", ours, y_from=0.0, name=f"{key}-4"),
        line_chart("Scaled learning rate", "N/Nₑₘₛ · learning rate", "scaled", ours, y_from=0.0, name=f"{key}-5"),
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
    key = chart_name(row[0], "following")
    return [
        *loss_and_error(row, lines, key),
        size_chart("Effective minibatch size Nₑₘₛ", sizes, f"{key}-3"),
    ]


def state_updates(row: Sequence[Setting]) -> list[Chart]:
    """fig:additional_state_updates: loss, test error and S(W)."""
    refreshed = [s for s in row if s.config.refresh_every]
    if not refreshed:
        return []
    lines: list[Line] = [(s, "EMAIS", None) for s in unchanged(row, "emais")]
    lines += [(s, f"refreshed every {s.config.refresh_every} steps", 0) for s in refreshed]
    key = chart_name(row[0], "updates")
    return [
        *loss_and_error(row, lines, key),
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
        key, label = chart_name(s, "traces"), "trace of the variance (log scale)"
        charts.append(score_chart(f"S(W), {data_and_steps(s)}", [(s, "EMAIS", None)], f"{key}-1"))
        charts.append(Chart("Traces of the gradient variance", "step", label, traces, log_y=True, name=f"{key}-2"))
    return charts


def lengths(settings: Sequence[Setting]) -> list[Chart]:
    """fig:cinic10_35000-140000_IS_score: S(W) of EMAIS for each length of the runs."""
    kinds: dict[tuple[str, str, float], list[Setting]] = {}
    for s in settings:
        kinds.setdefault(kind_of(s), []).append(s)
    charts = []
    for (*_, decay), own in kinds.items():
        lines: list[Line] = [(s, f"{s.config.num_steps} steps", k) for s, k in zip(own, (4, 2, 0, 3), strict=False)]
        title = f"S(W), {own[0].title}, weight decay {decimal(decay)}"
        charts.append(score_chart(title, lines, chart_name(own[0], "lengths")))
    return charts


def unchanged(row: Sequence[Setting], method: str) -> list[Setting]:
    """The runs of a method with nothing special."""
    return [s for s in row if is_default(s.config) and s.config.method == method]


def row_by_row(make: Callable[[Sequence[Setting]], list[Chart]]) -> Callable[[Sequence[Setting]], list[Chart]]:
    """Charts of all settings from what makes those of one row."""
    return lambda settings: [chart for row in by_row(settings) for chart in make(row)]


MAKERS: dict[str, tuple[Callable[[Sequence[Setting]], list[Chart]], str]] = {
    "fig:is_scores": (row_by_row(is_scores), CLIPPED),
    "fig:fmnist_sgd_unif_n_ems": (
        row_by_row(following),
        f"{HIGH} The run that follows has its sizes from some 60 points of EMAIS's run, where the paper's has them "
        "from every step.",
    ),
    "fig:fmnist_lr_adjust_ablation": (
        row_by_row(lr_ablation),
        f"{HIGH} The learning rate of a point is the mean over its steps times the mean adjustment over them.",
    ),
    "fig:additional_state_updates": (row_by_row(state_updates), f"{HIGH} {CLIPPED}"),
    "fig:score_and_trvars": (row_by_row(score_and_traces), CLIPPED),
    "fig:cinic10_35000-140000_IS_score": (lengths, CLIPPED),
}


def paper_figures(records: Sequence[Record]) -> list[Figure]:
    """Those of the paper that there are runs for."""
    found = []
    for label, (make, note) in MAKERS.items():
        charts = make(present(of_item(ITEMS[label], records)))
        stands_in = any(TITLES["cifar10"] in chart.title for chart in charts)
        lines = MEDIANS if label == "fig:is_scores" else MEANS
        if charts:
            found.append(Figure(label, ITEMS[label].title, charts, f"{note} {QUARTER if stands_in else ''}", lines))
    return found

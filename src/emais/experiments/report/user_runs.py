"""The page of runs of one's own, whatever was run: a table with a row for each setting, and the curves."""

from __future__ import annotations

import shlex
import statistics
from collections.abc import Sequence
from dataclasses import fields, replace
from pathlib import Path

from ...errors import EmaisError
from ..analysis.quantities import average, middle
from ..analysis.settings import STAR, Setting, settings_of, variant
from ..config import Config
from ..runs.store import Record
from .figures.curves import CLIPPED, HIGH, Figure, Line, data_and_steps, metric_chart, score_chart, size_chart
from .pages import HOW_TO_READ, Page, Section, render
from .sections import RUNS_NOTE, runs_table
from .tables.cells import Cell, Table
from .tables.rows import count_cell, number_cell, value_cell

SHOWN = ("model", "optimizer", "lr", "weight_decay", "momentum", "num_steps", "batch_size")
OWN_ABOUT = "Importance sampling for training: each method chooses its samples in its own way."
OWN_CAPTION = (
    "N_ems and S(W) are over seeds and the second half of the run: of N_ems the mean, of S(W) the median. The time of "
    "a step is a mean over seeds; runs that were trained side by side share it. ± is the sample standard deviation "
    "over seeds."
)


def known_runs(records: Sequence[Record]) -> list[Record]:
    """Those that this version can describe."""
    return [record for record in records if config_of(record) is not None]


def config_of(record: Record) -> Config | None:
    """The configuration of a record; None where this version does not know its data, model, method or settings."""
    try:
        return Config(**{f.name: record[f.name] for f in fields(Config) if f.name in record})
    except EmaisError:
        return None


def own_page(records: Sequence[Record], source: Path, live: str = "") -> str:
    """A page of runs of one's own, whatever was run; source: the file that they are in; live: as of `render`."""
    page = Page(
        title="EMAIS: runs side by side",
        short="Report",
        about=f"{OWN_ABOUT} {HOW_TO_READ}",
        groups={"The runs": own_sections(records)},
        runs=replace(runs_table(records), caption=RUNS_NOTE),
        command=f"emais report --results {shlex.quote(str(source))}",
        star=STAR,
    )
    return render(page, live)


def own_sections(records: Sequence[Record]) -> list[Section]:
    """The table of all settings, and the curves of those that differ in the method and its settings only."""
    rows = compared_settings(records)
    table = Section("settings", "All settings", [settings_table([s for row in rows for s in row])])
    figures = [own_figure(row, k) for k, row in enumerate(rows, 1)]
    return [table, *(Section(figure.label, figure.title, [figure.pictures()]) for figure in figures)]


def compared_settings(records: Sequence[Record]) -> list[list[Setting]]:
    """The settings, those together that differ in the method and its settings only."""
    configs = [config for config in map(config_of, records) if config is not None]
    together: dict[tuple[object, ...], list[Setting]] = {}
    for setting in settings_of(configs, records):
        config = setting.config
        together.setdefault((config.data, *(getattr(config, name) for name in SHOWN)), []).append(setting)
    return list(together.values())


def settings_table(settings: Sequence[Setting]) -> Table:
    """A row for each setting."""
    metrics = sorted({"mAP" if s.metric == "map" else "test error" for s in settings})
    rows = []
    for s in settings:
        values = [getattr(s.config, name) for name in SHOWN]
        about = [Cell(v) if isinstance(v, str) else Cell(f"{v:g}", sort=v) for v in values]
        numbers = [number_cell(average(s, "n_ems")), number_cell(middle(s, "score"), 2), number_cell(step_time(s), 2)]
        rows.append([Cell(s.title), Cell(variant(s.config)), *about, count_cell(s), value_cell(s), *numbers])
    head = ["data", "method", *(name.replace("_", " ") for name in SHOWN), "seeds", f"{' or '.join(metrics)} (%)"]
    return Table([*head, "N_ems", "S(W)", "step (ms)"], rows, OWN_CAPTION)


def step_time(setting: Setting) -> float:
    """Milliseconds, as a mean over the seeds."""
    return statistics.fmean(record["ms_per_step"] for record in setting.records)


def shared_title(row: Sequence[Setting]) -> str:
    """What the settings of a figure share."""
    c = row[0].config
    decay = f"weight decay {c.weight_decay:g}"
    return f"{data_and_steps(row[0])}: {c.model}, {c.optimizer}, lr {c.lr:g}, {decay}, N = {c.batch_size}"


def own_figure(row: Sequence[Setting], k: int) -> Figure:
    """The metric, N_ems and S(W) over the steps; a method that is there more than once cannot have its own colour."""
    one_each = len({s.config.method for s in row}) == len(row)
    lines: list[Line] = [(s, variant(s.config), None if one_each else n) for n, s in enumerate(row)]
    metric = "mAP" if row[0].metric == "map" else "Test error"
    charts = [
        metric_chart(metric, lines, f"own-{k}-metric"),
        size_chart("Nₑₘₛ", lines, f"own-{k}-size"),
        score_chart("S(W)", lines, f"own-{k}-score"),
    ]
    note = f"{HIGH if metric == 'Test error' else ''} {CLIPPED}".strip()
    return Figure(f"curves {k}", shared_title(row), charts, note)

"""What the report is made of: sections with tables, figures or both, group by group, and a table of what was run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ..analysis.coverage import mostly_run, not_run_yet
from ..analysis.harm_differences import Harm
from ..analysis.paper import ALL, RUN_SECONDS, SEEDS
from ..analysis.settings import by_row, item_title, of_item, present, title_of
from ..numbers import decimal
from ..runs.catalogue import ITEMS
from ..runs.record import RunRecord, typed
from ..runs.store import Record
from .figures import scatter
from .figures.curves import PictureGroup, data_and_steps
from .figures.dots import DOTS_NOTE, dot_plot
from .figures.methods import figures
from .pages import PagePart, Section
from .tables.cells import Cell, Table
from .tables.harm import HARM_TITLE, harm_tables
from .tables.results import tables
from .tables.step_times import time_tables

RUNS_NOTE = (
    "Minutes: training alone, without tests of the model on the way; runs that share a GPU share the time. SGD with "
    "momentum 0.9 unless a table says otherwise; the learning rate falls to 0 along a cosine."
)


def grouped(
    records: Sequence[Record], timings: Sequence[Record], study: Sequence[Record] = (), harm: Harm | None = None
) -> dict[str, list[Section]]:
    """All sections that there are results for: the paper's tables, the paper's figures, and what goes beyond it."""
    drawn = [
        Section(f.label, f.title, [f.pictures(), *own_tables(f.label, records)]) for f in figures(records, timings)
    ]
    papers = [section for section in drawn if section.label in ITEMS]
    beyond = [section for section in drawn if section.label not in ITEMS]
    return {
        "The paper’s tables": [*table_sections("tab:", records), *cost_sections(timings)],
        "The paper’s figures": [*papers, *study_sections(study)],
        "Beyond the paper": [*table_sections("", records), *beyond],
        "A second study: LeNet5-ReLU": table_sections("relu_", records),
        **harm_group(harm),
    }


def harm_group(harm: Harm | None) -> dict[str, list[Section]]:
    """The harm suite, if it was run."""
    made = harm_tables(harm) if harm else []
    return {"The harm suite": [Section("harm", HARM_TITLE, made)]} if made else {}


def own_tables(label: str, records: Sequence[Record]) -> list[Table]:
    """The tables of a label, without the title that the section has already; none if unknown or hardly run."""
    if label not in ITEMS or not mostly_run(of_item(ITEMS[label], records)):
        return []
    made, title = tables(label, records), item_title(ITEMS[label], records)
    return [replace(table, title="") if table.title == title else table for table in made]


def table_sections(start: str, records: Sequence[Record]) -> list[Section]:
    """The tables whose labels start so, or those beyond the paper that are of no second study, where enough was run."""
    found = []
    for label, item in ITEMS.items():
        wanted = label.startswith(start) if start else item.beyond and not label.startswith("relu_")
        own = own_tables(label, records) if wanted else []
        if own:
            parts: list[PagePart] = [*own[:1], *dot_plots(label, records), *own[1:]]
            found.append(Section(label, item_title(item, records), parts))
    return found


def dot_plots(label: str, records: Sequence[Record]) -> list[PictureGroup]:
    """A picture of each row of a table of results; nothing of other tables."""
    if not label.startswith("tab:"):
        return []
    rows = by_row(present(of_item(ITEMS[label], records)))
    many = len({row[0].config.weight_decay for row in rows}) > 1
    ends = [f", weight decay {decimal(row[0].config.weight_decay)}" if many else "" for row in rows]
    drawn = [dot_plot(f"{data_and_steps(row[0])}{end}", row) for row, end in zip(rows, ends, strict=True)]
    there = [drawing for drawing in drawn if drawing is not None]
    return [PictureGroup(there, DOTS_NOTE)] if there else []


def cost_sections(timings: Sequence[Record]) -> list[Section]:
    """The time of a step, and of a run, where that was measured."""
    made = time_tables(timings).items()
    return [Section(label, table.title, [replace(table, title="")]) for label, table in made]


def study_sections(study: Sequence[Record]) -> list[Section]:
    """Logit against full gradients, if that was studied."""
    named = scatter.STUDY_TITLES.items() if study else ()
    return [Section(k, title, [PictureGroup(scatter.panels(k, study), scatter.SCATTER_NOTE)]) for k, title in named]


def runs_table(records: Sequence[Record]) -> Table:
    """What was run, on what."""
    kinds: dict[tuple[str, ...], list[RunRecord]] = {}
    for r in typed(records):
        versions = f"emais {r.get('emais', '?')}, torch {r.get('torch', '?')}, Python {r.get('python', '?')}"
        key = (title_of(r["data"], [r]), r["model"], r["optimizer"], str(r.get("hardware", "unknown")), versions)
        kinds.setdefault(key, []).append(r)
    rows = []
    for named, own in kinds.items():
        steps = sum(r.steps for r in own)
        minutes = sum(r.ms_per_step * r.steps for r in own) / 6e4
        counts = ((f"{len(own)}", len(own)), (f"{steps:,}", steps), (f"{minutes:.1f}", minutes))
        cells = [Cell(text, sort=value) for text, value in counts]
        rows.append([*map(Cell, named), *cells])
    head = ["data", "model", "optimizer", "hardware", "versions", "runs", "steps", "minutes of training"]
    return Table(head, rows, f"{RUNS_NOTE}{hours(records)}{not_run_yet(records)}")


def hours(records: Sequence[Record]) -> str:
    """The time that the paper's runs of tab:res_fmnist took, beside the paper's."""
    runs = [r for s in of_item(ITEMS["tab:res_fmnist"], records) if s.config.method in ALL for r in s.records]
    if not runs:
        return ""
    minutes = sum(r["ms_per_step"] * r["num_steps"] for r in runs) / 6e4
    theirs = next(block for block in RUN_SECONDS if block.data == "fmnist")
    paper = SEEDS * sum(mean for row in theirs.rows.values() for mean, _ in row) / 3600
    return (
        f" The {len(runs)} runs of the paper's methods in tab:res_fmnist took {minutes:.1f} minutes of training, side "
        f"by side; the paper's 120 add up to {paper:.1f} hours on a Tesla V100."
    )

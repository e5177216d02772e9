"""From result records to tables with the paper's numbers beside ours: `markdown(label, records)` and `tables(...)`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from ...analysis import paper
from ...analysis.paper import COMPARABLE, OURS, STANDS_FOR, TITLES
from ...analysis.settings import HEADS, STAR, Setting, by_row, item_title, of_item, present, provenance, shown, starred
from ...analysis.verdicts import AGREES, BOLD, bold, tally, verdict
from ...numbers import DASH
from ...runs.catalogue import Item, find_item
from ...runs.store import Record
from .cells import Cell, Table, to_markdown
from .comparisons import momentum_table, summary_table
from .equal_progress import progress_table
from .recalibration import recalibration_table
from .rows import Columns, count_cell, empty, first_cells, first_columns, gap_cell, paper_cell, printed_note, value_cell
from .steps_to_error import steps_tables
from .tuning import decay_table, held_out_table, tuned_table

RESULTS = ("tab:", "relu_res", "relu_adam")  # labels of tables in the paper's layout
SPREAD = "± is the sample standard deviation over seeds."
NOT_COMPARED = {
    "cifar10": "CIFAR-10 stands in for CINIC-10, so the values themselves are not compared: the differences from "
    "SGD-Scan of the same row say more.",
    "chestxray14": "Our runs ({}) are shorter than the paper's (its three lengths stand beside our three in their "
    "order), so the values are not compared: the differences from SGD-Scan say more.",
}


def tables(label: str, records: Sequence[Record]) -> list[Table]:
    """The tables of a label: for results first in the paper's layout, then value by value beside the paper's."""
    item = find_item(label)
    if label.startswith(RESULTS):
        return [overview(item, records), *beside_paper(item, records)]
    if label == "steps_to_error":
        return steps_tables(item, records)
    if label.endswith("momentum"):
        return [momentum_table(item, records)]
    if label == "equal_progress":
        return [progress_table(item, records)]
    if label == "batchnorm":
        return [recalibration_table(item, records)]
    if item.held_out or label.startswith("tuned_decay"):
        return [(held_out_table if item.held_out else decay_table)(item, records)]
    return [(tuned_table if "tuned_lr" in label else summary_table)(item, records)]


def markdown(label: str, records: Sequence[Record]) -> str:
    """The tables of a label as Markdown text, and what a star in them means."""
    text = "\n\n".join(to_markdown(table) for table in tables(label, records))
    return f"{text}\n\n{STAR}" if any(HEADS[method] in text for method in OURS) else text


def overview(item: Item, records: Sequence[Record]) -> Table:
    """The paper's layout: a row for each weight decay and length, a column for each method."""
    settings = of_item(item, records)
    columns = first_columns(settings, as_printed=True)
    methods = {s.config.method: starred(s.config) for s in settings}
    rows, lines = rows_with_runs(settings), []
    for own in rows:
        by_method = {s.config.method: (s, strong) for s, strong in zip(own, bold(own), strict=True)}
        cells = [value_cell(*by_method[m]) if m in by_method else empty() for m in methods]
        lines.append([*first_cells(columns, own[0]), *cells])
    more = settings[0].metric == "map"
    unit = "mAP in percent, higher is better" if more else "Test error in percent, lower is better"
    printed = printed_note([s for own in rows for s in own])
    caption = f"{unit}, {DASH} is not run yet. {provenance(settings)} {SPREAD} {BOLD}{printed}"
    return Table([*columns, *methods.values()], lines, caption, item_title(item, records))


def rows_with_runs(settings: Sequence[Setting]) -> list[list[Setting]]:
    """The rows of which anything was run; all where nothing was."""
    rows = by_row(settings)
    return [row for row in rows if present(row)] or rows


# ---- beside the paper's values


def beside_paper(item: Item, records: Sequence[Record]) -> list[Table]:
    """A table for each data set, with a row for each setting."""
    by_data: dict[str, list[Setting]] = {}
    for setting in shown(of_item(item, records)):
        by_data.setdefault(setting.config.data, []).append(setting)
    return [compared(own) if data in COMPARABLE else uncompared(data, own) for data, own in by_data.items()]


def compared(settings: Sequence[Setting]) -> Table:
    """Ours, the paper's, the difference, and whether they agree."""
    columns = first_columns(settings, as_printed=True)
    lines, pairs = [], []
    for setting in (setting for row in by_row(settings) for setting in row):
        value = paper.find(setting.config)
        found = verdict(setting, value)
        pairs.append((setting, value))
        gap = gap_cell(setting.mean, value.mean if value else math.nan)
        lines.append([*ours_and_theirs(columns, setting), gap, Cell(found.text if value else "", mark=found.kind)])
    head = [*columns, "method", "seeds", "ours", "paper", "ours − paper's", "agreement"]
    return Table(head, lines, f"{tally(pairs)} {AGREES}{printed_note(settings)}", "Beside the paper's values")


def uncompared(data: str, settings: Sequence[Setting]) -> Table:
    """Ours, the paper's on its own data, and how far each is from SGD-Scan there."""
    columns = first_columns(settings, as_printed=True)
    lines = []
    for row in by_row(settings):
        plain = next((s for s in row if s.config.method == "sgd-scan"), None)
        base = math.nan if plain is None else plain.mean
        for setting in row:
            theirs, scan = (paper.find(replace(setting.config, method=m)) for m in (setting.config.method, "sgd-scan"))
            theirs_off = gap_cell(theirs.mean, scan.mean) if theirs and scan else Cell("")
            gaps = [gap_cell(setting.mean, base), theirs_off]
            lines.append([*ours_and_theirs(columns, setting), *gaps])
    name = TITLES[STANDS_FOR[data]]
    note = NOT_COMPARED[data].format(settings[0].title)
    head = [*columns, "method", "seeds", "ours", f"paper, {name}", "ours − our SGD-Scan", "paper's − its SGD-Scan"]
    return Table(head, lines, f"{note}{printed_note(settings)}", "Beside the paper's values")


def ours_and_theirs(columns: Columns, setting: Setting) -> list[Cell]:
    """The cells up to the paper's value."""
    name = Cell(starred(setting.config))
    start = first_cells(columns, setting)
    return [*start, name, count_cell(setting), value_cell(setting), paper_cell(paper.find(setting.config))]

"""Steps that each method needs until its test error is at or below a given one for the first time."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

from ...analysis.paper import OURS
from ...analysis.quantities import first_step
from ...analysis.settings import Setting, by_row, of_item, provenance, shown, starred, title_of
from ...numbers import DASH, mean_sd
from ...runs.catalogue import Item
from ...runs.store import Record
from .cells import Cell, Table
from .rows import Columns, empty, first_cells, first_columns

ERRORS = {"fmnist": (12.0, 11.0, 10.0, 9.5, 9.0), "cifar10": (10.0, 8.0, 7.0, 6.0)}  # percent


def steps_tables(item: Item, records: Sequence[Record]) -> list[Table]:
    """A table for each data set that has any runs."""
    by_data: dict[str, list[Setting]] = {}
    for setting in of_item(item, records):
        by_data.setdefault(setting.config.data, []).append(setting)
    there = {data: own for data, own in by_data.items() if any(s.records for s in own)} or by_data
    return [steps_table(data, own) for data, own in there.items()]


def steps_table(data: str, settings: Sequence[Setting]) -> Table:
    """A row for each length and method, a column for each test error; the fewest steps of a length in bold."""
    errors, listed = ERRORS[data], shown(settings)
    columns = first_columns(listed)
    rows = [cells for row in by_row(listed) for cells in length_rows(row, errors, columns)]
    caption = (
        "Steps until the test error is at most so much for the first time, read from a straight line between two of "
        "the 25 tests of a run: mean ± sample standard deviation over seeds; k/n: only k of n seeds get there, "
        f"{DASH}: none. Bold: "
        "the fewest steps of the paper's methods, and a starred method that needs no more. "
        f"{provenance(settings)}"
    )
    title = title_of(data, [record for s in settings for record in s.records])
    head = ["length" if name == "steps" else name for name in columns]
    return Table([*head, "method", *(f"≤ {error:g} %" for error in errors)], rows, caption, title)


def length_rows(row: Sequence[Setting], errors: Sequence[float], columns: Columns) -> list[list[Cell]]:
    """The rows of one length: the steps of each method to each test error."""
    reached = {s.config.method: [[first_step(r, e) for r in s.records] for e in errors] for s in row}
    peers = [steps for method, steps in reached.items() if method not in OURS]
    rows = []
    for s in row:
        own = reached[s.config.method]
        cells = [steps_cell(own[k], [peer[k] for peer in peers]) for k in range(len(errors))]
        rows.append([*first_cells(columns, s), Cell(starred(s.config)), *cells])
    return rows


def steps_cell(steps: Sequence[float], peers: Sequence[Sequence[float]]) -> Cell:
    """The mean number of steps, or how many seeds got there; peers: the paper's methods."""
    if not steps:
        return empty()
    own = [step for step in steps if math.isfinite(step)]
    if len(own) < len(steps):
        hover = f"{len(own)} of {len(steps)} seeds get there"
        return Cell(f"{len(own)}/{len(steps)}" if own else DASH, hover=hover, mark="none")
    fewest = min((statistics.fmean(p) for p in peers if p and all(map(math.isfinite, p))), default=math.inf)
    mean, sd = mean_sd(own)
    text = f"{mean:.0f} ± {sd:.0f}" if math.isfinite(sd) else f"{mean:.0f}"
    return Cell(text, mean <= fewest, mean, f"seeds: {', '.join(f'{step:.0f}' for step in own)}")

"""The table of equal progress: how many steps it took, and how far each run is from SGD-Scan over all steps."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ...analysis.equal_progress import PAIRED, ProgressRow, progress_rows
from ...analysis.harm_differences import LIMIT, Difference
from ...analysis.paper import NETWORKS
from ...analysis.settings import Setting, provenance
from ...numbers import decimal
from ...runs.catalogue import Item
from ...runs.store import Record
from .cells import Cell, Table
from .harm import signed
from .rows import count_cell, empty, number_cell, value_cell

PLACE = ("data", "network", "lr", "T", "run", "seeds")
MEASURED_COLUMNS = ("steps, % of T", "test error (%)", "its difference", "train loss", "its difference ")


def progress_table(item: Item, records: Sequence[Record]) -> Table:
    """Three rows for each setting: SGD-Scan, EMAIS-auto at equal progress, SGD-Scan shortened to as many steps."""
    found = progress_rows(records) or progress_rows(records, complete=False)
    rows = [line for row in found for line in progress_lines(row)]
    settings = [s for row in found for s in (row.base, row.progress, row.shortened)]
    caption = (
        "EMAIS-auto with the steady rule ends when its steps are worth T. SGD-Scan, shortened, has as many steps with "
        "the same seed, and its own schedule over them. Differences are to SGD-Scan over T steps, paired by seed, with "
        f"their standard error; worse and better: by more than {LIMIT:g} of them. Train loss: over the training set, "
        "after the last step. lr 0.1 and 0.03 are SGD-Scan's best, tuned at 25000 and 6250 steps; 0.01 is the paper's. "
        f"{provenance(settings)}"
    )
    return Table([*PLACE, *MEASURED_COLUMNS], rows, caption, item.title)


def progress_lines(row: ProgressRow) -> list[list[Cell]]:
    """The three rows of a setting."""
    config = row.config
    named = (
        (row.base, "SGD-Scan"),
        (row.progress, "EMAIS-auto, equal progress"),
        (row.shortened, "SGD-Scan, shortened"),
    )
    found = []
    for setting, name in named:
        first = [Cell(setting.title), Cell(NETWORKS[config.model]), Cell(decimal(config.lr), sort=config.lr)]
        first += [Cell(str(config.num_steps), sort=config.num_steps), Cell(name), count_cell(setting)]
        share = 1.0 if setting is row.base else row.share
        found.append([*first, number_cell(100 * share), *progress_cells(row, setting)])
    return found


def progress_cells(row: ProgressRow, setting: Setting) -> list[Cell]:
    """Test error and training loss, each with its difference to SGD-Scan's."""
    error, loss = (
        Cell("") if setting is row.base else gap_with_error(row.difference(setting, kind), places)
        for kind, places in zip(PAIRED, (2, 4), strict=True)
    )
    return [value_cell(setting), error, number_cell(row.mean(setting, "train_loss"), 4), loss]


def gap_with_error(found: Difference, places: int) -> Cell:
    """A difference with its standard error, and whether it is more than chance."""
    if math.isnan(found.mean):
        return empty()
    text = f"{signed(found, places)} {found.mark}".strip()
    return Cell(text, bool(found.mark), found.mean, mark=found.mark)

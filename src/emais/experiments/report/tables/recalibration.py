"""The metric as trained, and with BatchNorm's statistics taken again from uniform minibatches: a table."""

from __future__ import annotations

from collections.abc import Sequence

from ...analysis.settings import Setting, by_row, of_item, provenance, shown, title_of, variant
from ...numbers import number
from ...runs.catalogue import Item
from ...runs.store import Record
from ...train.batchnorm import UNIFORM
from .cells import Cell, Table
from .rows import count_cell, first_cells, first_columns, spread_cell, value_cell


def recalibration_table(item: Item, records: Sequence[Record]) -> Table:
    """A row for each setting: both metrics, and their difference seed by seed."""
    settings = of_item(item, records)
    listed = [s for row in by_row(shown(settings)) for s in row]
    columns = first_columns(settings)
    rows = []
    for s in listed:
        start = [*first_cells(columns, s), Cell(variant(s.config)), count_cell(s)]
        rows.append([*start, value_cell(s), spread_cell(recalibrated(s)), spread_cell(changes(s), signed=True)])
    chest = title_of("chestxray14", [r for s in settings if s.metric == "map" for r in s.records])
    caption = (
        f"Test error in percent, lower is better; of {chest} mAP in percent, higher is better. Recalibrated: the "
        f"same network with BatchNorm's running statistics from {UNIFORM} uniform minibatches of the training set, in "
        f"place of those drawn in training. ± is the sample standard deviation over seeds, in the last column of the "
        f"difference of each seed. {provenance(settings)} Runs from before this was measured do not count; to make one "
        f"again, delete its line from the result file."
    )
    head = [*columns, "method", "seeds", "as trained", "recalibrated", "recalibrated − as trained"]
    return Table(head, rows, caption, item.title)


def recalibrated(setting: Setting) -> list[float]:
    """The metric of each seed with uniform statistics; NaN where a run has none."""
    return [number(record.get("recalibrated")) for record in setting.records]


def changes(setting: Setting) -> list[float]:
    """How much higher it is than as trained, seed by seed."""
    return [new - old for new, old in zip(recalibrated(setting), setting.values, strict=True)]

"""Tables of runs that differ in one setting: the momentum, or whatever a figure compares."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ...analysis import paper
from ...analysis.quantities import FIFTH, HALF, average, by_method, last_moving, middle
from ...analysis.settings import Setting, by_row, method_name, of_item, present, provenance, shown, variant
from ...analysis.verdicts import AGREES, verdict
from ...numbers import decimal
from ...runs.catalogue import Item
from ...runs.store import Record
from .cells import Cell, Table
from .rows import Columns, count_cell, first_cells, first_columns, gap_cell, number_cell, paper_cell, value_cell

PARTS_NOTE = (
    "Over seeds and the points of that part of the run: of N_ems the mean, of S(W) the median, which a spike of a "
    "single seed does not move."
)
STOPPING_NOTE = (
    "Where the learning rate comes down to 0 before the end, the last column says when, as a mean over seeds: "
    "from then on the parameters no longer change, and S(W) says nothing about training."
)
ONE_DRAW = "{} are about one draw from its candidates, not about the minibatch."


# ---- the momentum


def momentum_table(item: Item, records: Sequence[Record]) -> Table:
    """For each length a row for each method and one for the lead of EMAIS; a column for each momentum, and the paper's.

    Bold: agrees with the paper.
    """
    settings = of_item(item, records)
    values = sorted({s.config.momentum for s in settings})
    rows = []
    for row in by_row(settings):
        steps = Cell(str(row[0].config.num_steps), sort=row[0].config.num_steps)
        means: dict[str, list[float]] = {}
        for own in by_method(row):
            theirs = paper.find(own[0].config)
            at = {s.config.momentum: s for s in own}
            cells = [value_cell(at[m], verdict(at[m], theirs).kind == "agrees") for m in values]
            rows.append([steps, Cell(method_name(own[0].config)), *cells, paper_cell(theirs)])
            means[own[0].config.method] = [*(at[m].mean for m in values), theirs.mean if theirs else math.nan]
        leads = [gap_cell(a, b) for a, b in zip(means["sgd-scan"], means["emais"], strict=True)]
        rows.append([steps, Cell("SGD-Scan − EMAIS"), *leads])
    found = f" {fits(settings)}" if present(settings) else ""
    caption = f"Test error in percent. {provenance(settings)} Bold: agrees with the paper.{found} {AGREES}"
    head = ["steps", "method", *(f"momentum {decimal(m)}" for m in values), "paper"]
    return Table(head, rows, caption, item.title)


def fits(settings: Sequence[Setting]) -> str:
    """Whether there is a momentum with which all of these agree with the paper."""
    values = sorted({s.config.momentum for s in settings})
    kinds = {m: {verdict(s, paper.find(s.config)).kind for s in settings if s.config.momentum == m} for m in values}
    found = [f"{m:g}" for m in values if kinds[m] == {"agrees"}]
    return f"{' and '.join(found) or 'None of these momenta'} fits both methods at all lengths."


# ---- the runs behind a figure


def summary_table(item: Item, records: Sequence[Record]) -> Table:
    """A row for each setting: the final metric, and N_ems and S(W) over the second half and the last fifth."""
    settings = of_item(item, records)
    listed = [s for row in by_row(shown(settings)) for s in row]
    columns = first_columns(listed)
    stops = [last_moving(s) for s in listed]
    stopping = any(map(math.isfinite, stops))
    rows = [summary_cells(columns, s) for s in listed]
    if stopping:
        rows = [[*row, stop_cell(stop)] for row, stop in zip(rows, stops, strict=True)]
    metrics = sorted({"mAP" if s.metric == "map" else "test error" for s in listed}, reverse=True)
    drawn = ["N_ems, 2nd half", "N_ems, last fifth", "S(W), 2nd half", "S(W), last fifth"]
    head = [*columns, "run", "seeds", f"{' or '.join(metrics)} (%)", *drawn]
    caption = f"{PARTS_NOTE} {provenance(settings)}"
    if any(s.config.method == "presampling" for s in listed):
        caption += f" {ONE_DRAW.format('N_ems and S(W) of Presampling-IS')}"
    if stopping:
        head, caption = [*head, "rate 0 from step"], f"{caption} {STOPPING_NOTE}"
    return Table(head, rows, caption, item.title)


def summary_cells(columns: Columns, setting: Setting) -> list[Cell]:
    """The row of one setting."""
    start = [*first_cells(columns, setting), Cell(variant(setting.config)), count_cell(setting), value_cell(setting)]
    sizes = [number_cell(average(setting, "n_ems", part)) for part in (HALF, FIFTH)]
    scores = [number_cell(middle(setting, "score", part), 2) for part in (HALF, FIFTH)]
    return [*start, *sizes, *scores]


def stop_cell(step: float) -> Cell:
    """The step from which the learning rate is 0, if it is before the end."""
    return number_cell(step) if math.isfinite(step) else Cell("")

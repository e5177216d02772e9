"""Tables of tuning: the learning rate, then the weight decay, then both with seeds not used to choose them."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ...analysis.quantities import best_of, by_method
from ...analysis.settings import Setting, of_item, present, provenance, shown, variant
from ...analysis.verdicts import LEVEL_NOTE, p_values
from ...numbers import decimal
from ...runs.catalogue import Item
from ...runs.store import Record
from .cells import Cell, Table
from .rows import count_cell, empty, gap_cell, value_cell

DIVERGED = (
    "A mean near 90 with no spread is training that diverged; a spread of tens of points means that some seeds did."
)


def tuned_table(item: Item, records: Sequence[Record]) -> Table:
    """A row for each method, a column for each learning rate; the best of a row in bold once all were run."""
    settings = of_item(item, records)
    rates = sorted({s.config.lr for s in settings})
    rows, ends = [], False
    methods = by_method(settings)
    for own in [own for own in methods if present(own)] or methods:
        best = best_of(own)
        at = {s.config.lr: s for s in own}
        cells = [value_cell(at[rate], at[rate] is best) for rate in rates]
        last = empty() if best is None else Cell(f"{best.config.lr:g}", sort=best.config.lr)
        ends |= best is not None and best.config.lr in (rates[0], rates[-1])
        rows.append([Cell(variant(own[0].config)), *cells, last])
    edge = " A best value at an end of the grid may have a better one beyond it." if ends else ""
    caption = (
        f"Test error in percent. {provenance(settings)} Bold: the best learning rate of each method, chosen by this "
        f"same test error. {DIVERGED}{edge}"
    )
    return Table(["method", *(f"lr {rate:g}" for rate in rates), "best lr"], rows, caption, item.title)


def decay_table(item: Item, records: Sequence[Record]) -> Table:
    """A row for each length and method at its best rate, a column for each weight decay."""
    settings = of_item(item, records)
    decays = sorted({s.config.weight_decay for s in settings})
    rows = []
    for own in by_length_and_method(settings):
        best, first = best_of(own), own[0].config
        at = {s.config.weight_decay: s for s in own}
        cells = [value_cell(at[decay], at[decay] is best) for decay in decays]
        rows.append([Cell(str(first.num_steps), sort=first.num_steps), Cell(variant(first)), rate_cell(own[0]), *cells])
    caption = (
        f"Test error in percent. {provenance(settings)} Bold: the best weight decay of each method, chosen by this "
        f"same test error. {DIVERGED}"
    )
    head = ["steps", "method", "lr", *(f"weight decay {decimal(decay)}" for decay in decays)]
    return Table(head, rows, caption, item.title)


def held_out_table(item: Item, records: Sequence[Record]) -> Table:
    """A row for each length and method: rate, weight decay, the error, and how far it is ahead of SGD-Scan."""
    settings = shown(of_item(item, records))
    plain = {s.config.num_steps: s for s in settings if s.config.method == "sgd-scan"}
    others = [s for s in settings if s.config.method != "sgd-scan" and s.config.num_steps in plain]
    chances = p_values([(s, plain[s.config.num_steps]) for s in others])
    p_of = {id(s): p for s, p in zip(others, chances, strict=True)}
    rows = []
    for s in settings:
        base = plain[s.config.num_steps].mean if s.config.num_steps in plain else math.nan
        p = p_of.get(id(s), math.nan)
        steps, decay = s.config.num_steps, s.config.weight_decay
        rows.append(
            [
                *(Cell(str(steps), sort=steps), Cell(variant(s.config)), rate_cell(s)),
                *(Cell(decimal(decay), sort=decay), count_cell(s), value_cell(s)),
                gap_cell(base, s.mean) if id(s) in p_of else Cell(""),
                Cell(f"{p:.3f}" if p >= 0.001 else "< 0.001", sort=p) if math.isfinite(p) else Cell(""),
            ]
        )
    caption = (
        f"Test error in percent. {provenance(settings)} Rate and weight decay were chosen with seeds 0 to 4; these are "
        f"other seeds. {LEVEL_NOTE}"
    )
    head = ["steps", "method", "lr", "weight decay", "seeds", "test error", "ahead of SGD-Scan", "p"]
    return Table(head, rows, caption, item.title)


def by_length_and_method(settings: Sequence[Setting]) -> list[list[Setting]]:
    """The settings of one length and method together."""
    lengths = sorted({s.config.num_steps for s in settings})
    return [own for n in lengths for own in by_method([s for s in settings if s.config.num_steps == n])]


def rate_cell(setting: Setting) -> Cell:
    """The learning rate."""
    return Cell(f"{setting.config.lr:g}", sort=setting.config.lr)

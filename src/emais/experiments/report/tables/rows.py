"""What rows of tables are made of: numbers with their spread, differences, and what tells a row from the others."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from ...analysis.paper import NETWORKS, Value, block_of
from ...analysis.settings import Setting, method_name
from ...config import Config
from ...numbers import DASH, decimal, mean_sd, with_sd
from .cells import Cell

Columns = dict[str, Callable[[Setting], Cell]]  # how to make the cell under each heading


def empty(why: str = "not run yet") -> Cell:
    """A cell with nothing in it."""
    return Cell(DASH, hover=why, mark="none")


def value_cell(setting: Setting, strong: bool = False) -> Cell:
    """Mean ± standard deviation of a setting; the single seeds on hover."""
    if not setting.records:
        return empty()
    each = ", ".join(f"{v:.2f}" for v in setting.values)
    hover = f"{method_name(setting.config)}: {with_sd(setting.mean, setting.sd, 4)}; seeds: {each}"
    return Cell(with_sd(setting.mean, setting.sd), strong, setting.mean if math.isfinite(setting.mean) else None, hover)


def paper_cell(value: Value | None) -> Cell:
    """What the paper has, if it has it."""
    if value is None:
        return Cell("", hover="not in the paper")
    where = f"{value.num_steps} steps, weight decay printed as {value.printed}"
    return Cell(with_sd(value.mean, value.sd), sort=value.mean, hover=where)


def number_cell(value: float, places: int = 0) -> Cell:
    """A number, if it is one."""
    return Cell(f"{value:.{places}f}", sort=value) if math.isfinite(value) else empty("no value")


def spread_cell(values: Sequence[float], places: int = 2, signed: bool = False) -> Cell:
    """Mean ± standard deviation, the single values on hover.

    >>> spread_cell([0.5, 0.25], signed=True).text, spread_cell([-0.5], signed=True).text, spread_cell([1.5]).text
    ('+0.38 ± 0.18', '−0.50', '1.50')
    """
    mean, sd = mean_sd(values)
    if math.isnan(mean):
        return empty()
    text = ("+" if signed and mean >= 0 else "") + with_sd(mean, sd, places)
    each = ", ".join(f"{v:{'+' if signed else ''}.{places}f}" for v in values)
    return Cell(text.replace("-", "−"), sort=mean, hover=f"seeds: {each}".replace("-", "−"))


def gap_cell(ours: float, theirs: float) -> Cell:
    """A difference with its sign, where both numbers are there."""
    off = ours - theirs
    if not math.isfinite(off):
        return Cell("")
    return Cell(f"{off:+.2f}".replace("-", "−"), sort=off)


def count_cell(setting: Setting) -> Cell:
    """The number of seeds."""
    return Cell(str(len(setting.records)), sort=len(setting.records))


def weight_decay_text(config: Config) -> str:
    """The weight decay used, and what the paper's table prints where that differs."""
    used, printed = decimal(config.weight_decay), printed_instead(config)
    return f"{used} (printed {printed})" if printed else used


def printed_instead(config: Config) -> str:
    """The weight decay that the paper's table prints, where it is not the one used."""
    block = block_of(config.data, config.optimizer, config.weight_decay)
    return "" if block is None or block.printed == decimal(config.weight_decay) else block.printed


def printed_note(settings: Sequence[Setting]) -> str:
    """Why the paper's table prints another weight decay than the one used, where it does."""
    told = {decimal(s.config.weight_decay): printed_instead(s.config) for s in settings}
    return "".join(f" Weight decay: the paper's setup says {a}, its table prints {b}." for a, b in told.items() if b)


def first_columns(settings: Sequence[Setting], as_printed: bool = False) -> Columns:
    """What tells rows apart: data, network and weight decay where there are several, and steps.

    as_printed: the weight decay in any case, and as the paper's table has it.
    """
    columns: Columns = {}
    if len({s.config.data for s in settings}) > 1:
        columns["data"] = lambda s: Cell(s.title)
    if len({(s.config.data, s.config.model) for s in settings}) > len({s.config.data for s in settings}):
        columns["network"] = lambda s: Cell(NETWORKS[s.config.model])
    if as_printed:
        columns["weight decay"] = lambda s: Cell(weight_decay_text(s.config), sort=s.config.weight_decay)
    elif len({s.config.weight_decay for s in settings}) > 1:
        columns["weight decay"] = lambda s: Cell(decimal(s.config.weight_decay), sort=s.config.weight_decay)
    columns["steps"] = lambda s: Cell(str(s.config.num_steps), sort=s.config.num_steps)
    return columns


def first_cells(columns: Columns, setting: Setting) -> list[Cell]:
    """The first cells of a setting's row."""
    return [make(setting) for make in columns.values()]

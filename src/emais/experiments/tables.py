"""From result records to tables with the paper's numbers beside ours: `markdown(label, records)` and `tables(...)`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from . import paper
from .catalogue import Item, find
from .cells import Cell, Table, to_markdown
from .config import Config
from .moretables import summary_table, tuned_table
from .paper import COMPARABLE, TITLES, Value
from .results import Record
from .selection import DASH, Setting, better, by_row, hardware, method_name, of_item

RULE = (
    "± is the sample standard deviation over seeds. Bold: the best mean of a row and every mean within the best's "
    "standard deviation of it, as in the paper."
)
AGREES = (
    "Agrees: ours and the paper's mean differ by at most two standard errors of their difference, "
    "2·√(sd²/n + sd²/5). By chance alone about one in twelve would not."
)


@dataclass(frozen=True)
class Verdict:
    """Whether ours agrees with the paper's value: kind is agrees, better, worse or none."""

    kind: str
    text: str


def tables(label: str, records: Sequence[Record]) -> list[Table]:
    """The tables of a label: for results first in the paper's layout, then value by value beside the paper's."""
    item = find(label)
    if label == "tuned_lr":
        return [tuned_table(item, records)]
    if label.startswith("tab:"):
        return [overview(item, records), beside_paper(item, records)]
    return [summary_table(item, records)]


def markdown(label: str, records: Sequence[Record]) -> str:
    """The tables of a label as Markdown text."""
    return "\n\n".join(to_markdown(table) for table in tables(label, records))


# ---- numbers


def with_sd(mean: float, sd: float, places: int = 2) -> str:
    """Mean and standard deviation.

    >>> with_sd(10.523, 0.1), with_sd(10.5, float("nan")), with_sd(float("nan"), float("nan"))
    ('10.52 ± 0.10', '10.50', '–')
    """
    if not math.isfinite(mean):
        return DASH
    return f"{mean:.{places}f} ± {sd:.{places}f}" if math.isfinite(sd) else f"{mean:.{places}f}"


def bold(settings: Sequence[Setting]) -> list[bool]:
    """Which of these are the best, or have a mean within the best's standard deviation of its mean."""
    there = [s for s in settings if math.isfinite(s.mean)]
    if not there:
        return [False] * len(settings)
    best = (max if there[0].metric == "map" else min)(there, key=lambda s: s.mean)
    reach = best.sd if math.isfinite(best.sd) else 0.0
    return [abs(s.mean - best.mean) <= reach + 1e-9 for s in settings]  # NaN compares as False


def verdict(setting: Setting, value: Value | None) -> Verdict:
    """Whether ours and the paper's mean lie within two standard errors of their difference."""
    if value is None or not math.isfinite(setting.mean):
        return Verdict("none", DASH)
    if setting.config.data not in COMPARABLE:
        return Verdict("none", "not comparable")
    if not math.isfinite(setting.sd):
        return Verdict("none", "one seed: no spread")
    gap = abs(setting.mean - value.mean)
    error = math.sqrt(setting.sd**2 / len(setting.values) + value.sd**2 / paper.SEEDS)
    if gap <= 2 * error:
        return Verdict("agrees", "agrees")
    side = "better" if better(setting, setting.mean, value.mean) else "worse"
    return Verdict(side, f"{side} by {gap:.2f}")


def seeds_text(setting: Setting) -> str:
    """The exact values, for hovering."""
    if not setting.records:
        return "no run yet"
    each = ", ".join(f"{v:.2f}" for v in setting.values)
    return f"{method_name(setting.config)}: {with_sd(setting.mean, setting.sd, 4)}; seeds: {each}"


# ---- tables


def weight_decay_text(config: Config) -> str:
    """The weight decay used, and what the paper's table prints where that differs."""
    block = paper.block_of(config.data, config.optimizer, config.weight_decay)
    used = decimal(config.weight_decay)
    return used if block is None or block.printed == used else f"{used} (printed {block.printed})"


def decimal(value: float) -> str:
    """A small number the short way.

    >>> decimal(5e-4), decimal(0.01)
    ('5e-4', '0.01')
    """
    return f"{value:.0e}".replace("e-0", "e-") if value < 0.01 else f"{value:g}"


def row_start(setting: Setting, several: bool) -> list[Cell]:
    """Data set where there are several, weight decay, steps."""
    config = setting.config
    data = [Cell(TITLES.get(config.data, config.data))] if several else []
    decay = Cell(weight_decay_text(config), sort=config.weight_decay)
    return [*data, decay, Cell(str(config.num_steps), sort=config.num_steps)]


def start_head(several: bool) -> list[str]:
    """Headings of `row_start`."""
    return [*(["data"] if several else []), "weight decay", "steps"]


def overview(item: Item, records: Sequence[Record]) -> Table:
    """The paper's layout: a row for each weight decay and length, a column for each method."""
    settings = of_item(item, records)
    several = len({s.config.data for s in settings}) > 1
    methods = list(dict.fromkeys(s.config.method for s in settings))
    lines = []
    for own in by_row(settings):
        by_method = {s.config.method: (s, strong) for s, strong in zip(own, bold(own), strict=True)}
        cells = [value_cell(*by_method[m]) if m in by_method else Cell(DASH) for m in methods]
        lines.append([*row_start(own[0], several), *cells])
    names = [method_name(next(s.config for s in settings if s.config.method == m)) for m in methods]
    unit = (
        "mAP in percent, higher is better" if settings[0].metric == "map" else "Test error in percent, lower is better"
    )
    caption = f"{unit}. {hardware(settings)} {RULE}"
    return Table([*start_head(several), *names], lines, caption, item.title)


def value_cell(setting: Setting, strong: bool = False) -> Cell:
    """Mean ± standard deviation of a setting."""
    sort = setting.mean if math.isfinite(setting.mean) else None
    return Cell(with_sd(setting.mean, setting.sd), strong, sort, seeds_text(setting))


def beside_paper(item: Item, records: Sequence[Record]) -> Table:
    """A row for each setting: ours, the paper's, the difference, and whether they agree."""
    settings = of_item(item, records)
    several = len({s.config.data for s in settings}) > 1
    data = {s.config.data for s in settings}
    rows, kinds = [], []
    for setting in (setting for row in by_row(settings) for setting in row):
        value = paper.find(setting.config)
        found = verdict(setting, value)
        kinds.append(found.kind)
        rows.append([*row_start(setting, several), *comparison(setting, value, found)])
    head = [*start_head(several), "method", "seeds", "ours", paper_title(data), "ours − paper's", "agreement"]
    return Table(head, rows, " ".join([tally(kinds), AGREES, *caveats(data)]), "Beside the paper's values")


def comparison(setting: Setting, value: Value | None, found: Verdict) -> list[Cell]:
    """The cells of a row after its start."""
    theirs, gap = Cell(DASH), Cell(DASH)
    if value is not None:
        where = f"{value.num_steps} steps, weight decay printed as {value.printed}"
        theirs = Cell(with_sd(value.mean, value.sd), sort=value.mean, hover=where)
        if math.isfinite(setting.mean):
            off = setting.mean - value.mean
            gap = Cell(f"{off:+.2f}".replace("-", "−"), sort=off)
    count = Cell(str(len(setting.records)), sort=len(setting.records))
    return [
        Cell(method_name(setting.config)),
        count,
        value_cell(setting),
        theirs,
        gap,
        Cell(found.text, mark=found.kind),
    ]


def paper_title(data: set[str]) -> str:
    """The heading of the paper's column: it says so where the paper's data are others."""
    others = {"cifar10": "CINIC-10", "chestxray14": "full data"}
    names = [others[name] for name in sorted(data) if name in others]
    return f"paper ({', '.join(names)})" if names and not data & set(COMPARABLE) else "paper"


def tally(kinds: Sequence[str]) -> str:
    """How many agree."""
    judged = [kind for kind in kinds if kind != "none"]
    if not judged:
        return "None of these values is compared with the paper's."
    counts = {kind: judged.count(kind) for kind in ("agrees", "better", "worse")}
    return (
        f"{counts['agrees']} of {len(judged)} agree with the paper, ours are better in {counts['better']} "
        f"and worse in {counts['worse']}."
    )


def caveats(data: set[str]) -> list[str]:
    """What makes a comparison unfair."""
    notes = {
        "cifar10": "CIFAR-10 stands in for CINIC-10, whose values are shown for orientation only.",
        "chestxray14": "Ours are runs on a subset of ChestX-ray14, shorter than the paper's (its three lengths stand "
        "beside our three in their order): shown for orientation only.",
    }
    return [text for name, text in notes.items() if name in data]

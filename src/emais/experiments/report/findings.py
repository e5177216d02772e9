"""What the results say: one table of the main numbers, and sentences made from the numbers, whoever wins."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from ..analysis.coverage import left_out
from ..analysis.paper import NAMES, NETWORKS, OURS
from ..analysis.quantities import best_of, by_method
from ..analysis.settings import HEADS, Setting, better, by_row, is_default, method_name, of_item, present, provenance
from ..analysis.verdicts import BOLD, ENOUGH_SEEDS, best_of_paper, bold, differ
from ..numbers import decimal, with_sd
from ..runs.catalogue import ITEMS, MAIN_METHODS
from ..runs.store import Record
from .tables.cells import Cell, Table
from .tables.rows import empty, value_cell
from .tables.step_times import best_case

OPTIMIZER_NAMES = {"sgd": "SGD", "adam": "Adam"}
TESTED = "(Welch's test at 0.05, with Holm's correction over these rows.)"
PAIRS = (("emais", "sgd-scan"), ("emais-auto", "emais"), ("emais-auto", "sgd-scan"))


def result_rows(records: Sequence[Record]) -> list[list[Setting]]:
    """The rows of all tables of results."""
    return [row for label in result_labels() for row in by_row(present(of_item(ITEMS[label], records)))]


def result_labels() -> list[str]:
    """The labels of tables of results."""
    return [label for label in ITEMS if label.startswith("tab:")]


def glance(records: Sequence[Record]) -> Table | None:
    """The methods that matter most, and the best of the paper's, for every row of the tables of results."""
    rows = result_rows(records)
    if not rows:
        return None
    settings = [s for row in rows for s in row]
    head = ["data", "optimizer", "weight decay", "steps", *(HEADS[m] for m in MAIN_METHODS), "best of the paper's"]
    caption = (
        "Test error in percent, lower is better, or mAP in percent, higher is better. With Adam SGD-Scan is Adam-Scan. "
        f"{provenance(settings)} {BOLD}{emais_among_papers(rows)}"
    )
    return Table(head, [glance_cells(row) for row in rows], caption)


def glance_cells(row: Sequence[Setting]) -> list[Cell]:
    """What tells a row from the others, its values, and the best of the paper's methods."""
    config, best = row[0].config, best_of_paper(row)
    by_name = {s.config.method: value_cell(s, strong) for s, strong in zip(row, bold(row), strict=True)}
    return [
        Cell(row[0].title + (" (mAP)" if row[0].metric == "map" else "")),
        Cell(OPTIMIZER_NAMES.get(config.optimizer, config.optimizer)),
        Cell(decimal(config.weight_decay), sort=config.weight_decay),
        Cell(str(config.num_steps), sort=config.num_steps),
        *(by_name.get(method, empty()) for method in MAIN_METHODS),
        empty() if best is None else Cell(f"{method_name(best.config)} {with_sd(best.mean, best.sd)}"),
    ]


def emais_among_papers(rows: Sequence[Sequence[Setting]]) -> str:
    """In how many rows EMAIS is among the best of the paper's methods, where there are others and seeds enough."""
    own = []
    for row in rows:
        enough = {s.config.method for s in row if math.isfinite(s.mean) and len(s.values) >= ENOUGH_SEEDS}
        if "emais" in enough and len(enough - set(OURS)) > 1:
            own.append(row)
    strong = sum(b for row in own for s, b in zip(row, bold(row), strict=True) if s.config.method == "emais")
    which = "with another of the paper's methods and three seeds or more"
    return f" EMAIS is bold in {strong} of the {len(own)} rows {which}." if own else ""


# ---- sentences


def findings(records: Sequence[Record], timings: Sequence[Record] = ()) -> list[str]:
    """Whether EMAIS and EMAIS-auto help, what a step of them costs, and what is not known yet."""
    found = [*standing(records), *tuned_sentences(records), *time_sentence(timings)]
    return [*found, *lacking_sentence(records)]


def standing(records: Sequence[Record]) -> list[str]:
    """How EMAIS stands to SGD-Scan, and EMAIS-auto to both."""
    rows = [{s.config.method: s for s in row if math.isfinite(s.mean)} for row in result_rows(records)]
    pairs = [[(row[one], row[other]) for row in rows if one in row and other in row] for one, other in PAIRS]
    return [comparison(both) for both in pairs if both]


def comparison(both: Sequence[tuple[Setting, Setting]]) -> str:
    """In how many rows one method is ahead of another, and in which it is clearly behind."""
    names = [method_name(s.config).replace("Adam-", "SGD-") for s in both[0]]
    few = sum(min(len(a.records), len(b.records)) < ENOUGH_SEEDS for a, b in both)
    known = f" ({few} with fewer than three seeds, not tested)" if few else ""
    ahead = [better(a, a.mean, b.mean) for a, b in both]
    clear = differ(both)
    won = sum(c and first for c, first in zip(clear, ahead, strict=True))
    lost = [against(a, b) for (a, b), c, first in zip(both, clear, ahead, strict=True) if c and not first]
    where = f"{len(lost)} ({'; '.join(lost)})" if lost else "none"
    return (
        f"{names[0]} has a better mean than {names[1]} in {sum(ahead)} of {len(both)} rows{known}, by more than chance "
        f"in {won or 'none'}; it is behind by more than chance in {where}. {TESTED}"
    )


def against(a: Setting, b: Setting) -> str:
    """A row in words, and two means of it."""
    return f"{row_name(a)}: {with_sd(a.mean, a.sd)} against {with_sd(b.mean, b.sd)}"


def row_name(setting: Setting) -> str:
    """A row of the first table in words."""
    config = setting.config
    decay = f"weight decay {decimal(config.weight_decay)}"
    return f"{setting.title}, {OPTIMIZER_NAMES[config.optimizer]}, {decay}, {config.num_steps} steps"


def held_out_sentences(records: Sequence[Record]) -> dict[tuple[str, int], str]:
    """The comparison with rate and weight decay tuned, by seeds not used for that: data and length -> words."""
    found = {}
    for n in sorted({s.config.num_steps for s in present(of_item(ITEMS["tuned"], records))}):
        own = {s.config.method: s for s in present(of_item(ITEMS["tuned"], records)) if s.config.num_steps == n}
        if not {"emais", "sgd-scan"} <= own.keys():
            continue
        plain = own.pop("sgd-scan")
        clear = differ([(s, plain) for s in own.values()])
        better_ones = [s for s, sure in zip(own.values(), clear, strict=True) if sure and better(s, s.mean, plain.mean)]
        each = ", ".join(f"{method_name(s.config)} {with_sd(s.mean, s.sd)} %" for s in (plain, *own.values()))
        names = ", ".join(method_name(s.config) for s in better_ones) or "none"
        found[plain.config.data, n] = (
            f"With learning rate and weight decay tuned for each method, and other seeds ({plain.title}, {n} steps): "
            f"{each}. Better than SGD-Scan by more than chance: {names}."
        )
    return found


def tuned_sentences(records: Sequence[Record]) -> list[str]:
    """The comparison with each method tuned: by other seeds where there are any, else at its best learning rate."""
    held_out = held_out_sentences(records)
    found = list(held_out.values())
    for label in (label for label in ITEMS if label.startswith("tuned_lr")):
        settings = [s for s in of_item(ITEMS[label], records) if is_default(s.config)]
        best = {s.config.method: s for own in by_method(settings) if (s := best_of(own))}
        if not {"emais", "sgd-scan"} <= best.keys():
            continue
        if (best["emais"].config.data, best["emais"].config.num_steps) in held_out:
            continue
        each = ", ".join(map(at_its_rate, best.values()))
        config = best["emais"].config
        same = {s.config.method: s for s in settings if s.config.lr == paper_rate(config.data)}
        gaps = [f"{lead(s)} with {which}" for s, which in ((best, "these"), (same, "the paper's")) if lead(s)]
        if all(best[m] is same.get(m) for m in ("emais", "sgd-scan")):
            gaps = [f"{lead(best)}, both at the paper's rate"]
        found.append(
            f"With the learning rate tuned for each method ({best['emais'].title}, {config.num_steps} steps): {each}. "
            f"EMAIS is {', '.join(gaps)}."
        )
    return found


def at_its_rate(setting: Setting) -> str:
    """A method, what it reaches and with which learning rate."""
    seeds = " (one seed)" if len(setting.records) == 1 else ""
    reached = with_sd(setting.mean, setting.sd)
    return f"{method_name(setting.config)} {reached} % at {setting.config.lr:g}{seeds}"


def paper_rate(data: str) -> float:
    """The learning rate of the paper's runs with SGD."""
    return next(
        c.lr for label in result_labels() for c in ITEMS[label].configs(1) if (c.data, c.optimizer) == (data, "sgd")
    )


def lead(settings: Mapping[str, Setting]) -> str:
    """How far EMAIS is ahead of SGD-Scan, or behind."""
    if not {"emais", "sgd-scan"} <= settings.keys():
        return ""
    gap = settings["sgd-scan"].mean - settings["emais"].mean
    return f"{abs(gap):.2f} points {'ahead of' if gap > 0 else 'behind'} SGD-Scan"


def time_sentence(timings: Sequence[Record]) -> list[str]:
    """What a step of EMAIS and EMAIS-auto costs, network by network."""
    told: dict[str, str] = {}
    for case in filter(None, (best_case(timings, model) for model in NETWORKS)):
        each = [f"{NAMES[m]} {case.ratio(m):.2f}" for m in ("emais", "emais-auto") if m in case.methods]
        if each:
            told[f"{' and '.join(each)} ({case.name})"] = case.place
    places = ", ".join(dict.fromkeys(told.values()))
    return [f"Time of a step over that of SGD-Scan: {'; '.join(told)}; on {places}."] if told else []


def lacking_sentence(records: Sequence[Record]) -> list[str]:
    """Where there is no SGD-Scan to compare with, and which tables are left out."""
    rows, labels, found = result_rows(records), left_out(records), []
    alone = [row[0] for row in rows if all(s.config.method != "sgd-scan" for s in row)]
    if alone:
        names = ", ".join(dict.fromkeys(s.title for s in alone))
        found.append(f"SGD-Scan in {len(alone)} of {len(rows)} rows ({names}), where there is nothing to compare with")
    if labels:
        found.append(f"most of {', '.join(labels)}, whose tables are left out")
    return [f"Not run yet: {'; '.join(found)}. “What was run” has the whole list."] if found else []

"""What the results say: one table of the main numbers, and sentences made from the numbers, whoever wins."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from .catalogue import ITEMS, RIVALS
from .cells import Cell, Table
from .moretables import best_rate, by_method, last_moving, middle
from .paper import OURS, RUN_SECONDS_FMNIST, SEEDS, TITLES, find
from .recalibration import recalibrated
from .results import Record
from .rows import decimal, empty, value_cell, with_sd
from .selection import HEADS, Setting, better, by_row, hardware, method_name, of_item, present, star_note
from .training import mean_sd
from .verdicts import BOLD, best_of_paper, bold, tally, verdict

OPTIMIZERS = {"sgd": "SGD", "adam": "Adam"}


def result_rows(records: Sequence[Record]) -> list[list[Setting]]:
    """The rows of all tables of results."""
    return [row for label in tables() for row in by_row(present(of_item(ITEMS[label], records)))]


def tables() -> list[str]:
    """The labels of tables of results."""
    return [label for label in ITEMS if label.startswith("tab:")]


def glance(records: Sequence[Record]) -> Table | None:
    """The methods that matter most, and the best of the paper's, for every row of the tables of results."""
    rows, seen = result_rows(records), []
    for row in rows:
        config, best = row[0].config, best_of_paper(row)
        by_name = {s.config.method: value_cell(s, strong) for s, strong in zip(row, bold(row), strict=True)}
        unit = " (mAP)" if row[0].metric == "map" else ""
        seen.append(
            [
                Cell(TITLES.get(config.data, config.data) + unit),
                Cell(OPTIMIZERS.get(config.optimizer, config.optimizer)),
                Cell(decimal(config.weight_decay), sort=config.weight_decay),
                Cell(str(config.num_steps), sort=config.num_steps),
                *(by_name.get(method, empty()) for method in RIVALS.split(",")),
                empty() if best is None else Cell(f"{method_name(best.config)} {with_sd(best.mean, best.sd)}"),
            ]
        )
    if not rows:
        return None
    settings = [s for row in rows for s in row]
    head = ["data", "optimizer", "weight decay", "steps", *(HEADS[m] for m in RIVALS.split(",")), "best of the paper's"]
    caption = (
        "Test error in percent, lower is better, or mAP in percent, higher is better. With Adam SGD-Scan is Adam-Scan. "
        f"{hardware(settings)} {BOLD}{star_note(settings)}"
    )
    return Table(head, seen, caption)


# ---- sentences


def findings(records: Sequence[Record]) -> list[str]:
    """A few sentences: who is best, agreement with the paper, what was tried to explain it, time."""
    found = [*standing(records)]
    for label in tables():
        settings = present(of_item(ITEMS[label], records))
        kinds = [verdict(s, find(s.config)).kind for s in settings]
        if any(kind != "none" for kind in kinds):
            found.append(f"{label}: {tally(kinds)}")
    more = (momentum_sentence, rules_sentence, auto_sentence, batchnorm_sentence, tuned_sentences, time_sentence)
    return [*found, *(text for make in more for text in make(records))]


def standing(records: Sequence[Record]) -> list[str]:
    """In how many rows EMAIS is among the best of the paper's methods, and how it stands to SGD-Scan and EMAIS-auto."""
    rows = [{s.config.method: s for s in row if math.isfinite(s.mean)} for row in result_rows(records)]
    found = []
    own = [row for row in rows if "emais" in row and len(row.keys() - set(OURS)) > 1]
    if own:
        strong = sum(bold([row["emais"], *(s for m, s in row.items() if m != "emais")])[0] for row in own)
        found.append(
            f"EMAIS is the best of the paper's methods, or within the best's standard deviation, in {strong} of "
            f"{len(own)} rows of the table above that have another of them."
        )
    for one, other in (("emais", "sgd-scan"), ("emais-auto", "emais"), ("rais", "sgd-scan")):
        both = [(row[one], row[other]) for row in rows if one in row and other in row]
        ahead = sum(better(a, a.mean, b.mean) for a, b in both)
        clear = sum(better(a, a.mean, b.mean) and clearly(a, b) for a, b in both)
        behind = sum(better(a, b.mean, a.mean) and clearly(a, b) for a, b in both)
        if both:
            names = [method_name(s.config).replace("Adam-", "SGD-") for s in both[0]]
            found.append(
                f"{names[0]} has a better mean than {names[1]} in {ahead} of {len(both)} rows, by more than two "
                f"standard errors in {clear or 'none'}; it is behind by more than that in {behind or 'none'}."
            )
    return found


def clearly(a: Setting, b: Setting) -> bool:
    """Whether two means differ by more than two standard errors of their difference."""
    if not (math.isfinite(a.sd) and math.isfinite(b.sd)):
        return False
    return abs(a.mean - b.mean) > 2 * math.sqrt(a.sd**2 / len(a.values) + b.sd**2 / len(b.values))


def momentum_sentence(records: Sequence[Record]) -> list[str]:
    """With which momentum each method agrees with the paper, and whether one fits all."""
    settings = present(of_item(ITEMS["momentum"], records))
    if not settings:
        return []
    agree = {id(s): verdict(s, find(s.config)).kind == "agrees" for s in settings}
    values = sorted({s.config.momentum for s in settings})
    parts = []
    for own in by_method(settings):
        counts = {m: [agree[id(s)] for s in own if s.config.momentum == m] for m in values}
        listed = " and ".join(f"{m:g} ({sum(v)} of {len(v)} lengths)" for m, v in counts.items() if any(v))
        parts.append(f"{method_name(own[0].config)} with {listed or 'none'}")
    fits = [f"{m:g}" for m in values if all(agree[id(s)] for s in settings if s.config.momentum == m)]
    return [
        f"Of the momenta {', '.join(f'{m:g}' for m in values)}, the test error agrees with the paper's for "
        f"{', '.join(parts)}; {' and '.join(fits) or 'none of them'} fits all."
    ]


def rules_sentence(records: Sequence[Record]) -> list[str]:
    """RAIS with its own schedule and with the linear rule, beside EMAIS-auto."""
    found = []
    for row in by_row(present(of_item(ITEMS["rais_rules"], records))):
        of = {(s.config.method, s.config.rule): s for s in row}
        own, linear, auto = (of.get(key) for key in (("rais", None), ("rais", "linear"), ("emais-auto", None)))
        if own is None or linear is None or auto is None:
            continue
        stop = last_moving(own)
        early = f" (its learning rate is 0 from step {stop:.0f} on)" if math.isfinite(stop) else ""
        sizes = [f"{middle(s, 'n_ems'):.0f}" for s in (linear, auto)]
        found.append(
            f"{TITLES[own.config.data]}, {own.config.num_steps} steps: RAIS with its own schedule "
            f"{with_sd(own.mean, own.sd)} %{early}, with the linear rule {with_sd(linear.mean, linear.sd)} %, "
            f"EMAIS-auto {with_sd(auto.mean, auto.sd)} %; N_ems of these two, second half: {' and '.join(sizes)}."
        )
    return found


def auto_sentence(records: Sequence[Record]) -> list[str]:
    """N_ems and S(W) of EMAIS-auto beside those of EMAIS."""
    found = []
    for row in by_row(present(of_item(ITEMS["emais_auto"], records))):
        plain = {s.config.method: s for s in row if not s.config.options}
        if plain.keys() >= {"emais", "emais-auto"}:
            both, config = [plain["emais"], plain["emais-auto"]], row[0].config
            sizes = " → ".join(f"{middle(s, 'n_ems'):.0f}" for s in both)
            scores = " → ".join(f"{middle(s, 'score'):.2f}" for s in both)
            where = f"{TITLES[config.data]}, {config.num_steps} steps, weight decay {decimal(config.weight_decay)}"
            found.append(f"{where}: N_ems {sizes}, S(W) {scores}")
    return [f"From EMAIS to EMAIS-auto, over the second half of the run. {'; '.join(found)}."] if found else []


def batchnorm_sentence(records: Sequence[Record]) -> list[str]:
    """The metric as trained, and with BatchNorm's statistics from uniform minibatches."""
    found = []
    for row in by_row(present(of_item(ITEMS["batchnorm"], records))):
        config, unit = row[0].config, "mAP" if row[0].metric == "map" else "test error"
        pairs = [[with_sd(mean, math.nan) for mean in (s.mean, mean_sd(recalibrated(s))[0])] for s in row]
        each = [f"{method_name(s.config)} {' → '.join(pair)}" for s, pair in zip(row, pairs, strict=True)]
        where = f"{TITLES[config.data]}, {config.num_steps} steps, weight decay {decimal(config.weight_decay)}"
        found.append(f"{where}, {unit}: {', '.join(each)}")
    start = "With BatchNorm's statistics from uniform minibatches in place of those drawn in training."
    return [f"{start} {'; '.join(found)}."] if found else []


def tuned_sentences(records: Sequence[Record]) -> list[str]:
    """The comparison with each method at its own best learning rate."""
    found = []
    for label in (label for label in ITEMS if label.startswith("tuned_lr")):
        settings = of_item(ITEMS[label], records)
        best = {s.config.method: s for own in by_method(settings) for s in own if s.config.lr == best_rate(own)}
        if not {"emais", "sgd-scan"} <= best.keys():
            continue
        each = ", ".join(f"{method_name(s.config)} {with_sd(s.mean, s.sd)} % at {s.config.lr:g}" for s in best.values())
        config = best["emais"].config
        same = {s.config.method: s for s in settings if s.config.lr == paper_rate(config.data)}
        gaps = [f"{lead(s)} with {which}" for s, which in ((best, "these"), (same, "the paper's")) if lead(s)]
        found.append(
            f"With the learning rate tuned for each method ({TITLES[config.data]}, {config.num_steps} steps): {each}. "
            f"EMAIS is {', '.join(gaps)}."
        )
    return found


def paper_rate(data: str) -> float:
    """The learning rate of the paper's runs with SGD."""
    return next(c.lr for label in tables() for c in ITEMS[label].configs(1) if (c.data, c.optimizer) == (data, "sgd"))


def lead(settings: Mapping[str, Setting]) -> str:
    """How far EMAIS is ahead of SGD-Scan, or behind."""
    if not {"emais", "sgd-scan"} <= settings.keys():
        return ""
    gap = settings["sgd-scan"].mean - settings["emais"].mean
    return f"{abs(gap):.2f} points {'ahead of' if gap > 0 else 'behind'} SGD-Scan"


def time_sentence(records: Sequence[Record]) -> list[str]:
    """The time that the paper's runs of tab:res_fmnist took, beside the paper's."""
    settings = [s for s in of_item(ITEMS["tab:res_fmnist"], records) if find(s.config)]
    runs = [r for s in settings for r in s.records]
    if not runs:
        return []
    seconds = sum(r["ms_per_step"] * r["num_steps"] for r in runs) / 1e3
    paper = SEEDS * sum(mean for row in RUN_SECONDS_FMNIST.values() for mean, _ in row)
    places = ", ".join(sorted({str(r["hardware"]) for r in runs}))
    return [
        f"The {len(runs)} runs of the paper's methods in tab:res_fmnist took {seconds / 60:.1f} minutes of training on "
        f"{places}, side by side; the paper's 120 add up to {paper / 3600:.1f} hours on a Tesla V100."
    ]

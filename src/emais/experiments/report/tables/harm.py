"""The harm suite as tables: the promise at a glance, how often each method is worse, and everything."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ...analysis.harm_differences import Comparison, Difference, Harm
from ...analysis.harm_runs import BASE, ENTRIES, PROBLEMS, PROGRESS, Entry
from ...numbers import decimal
from .cells import Cell, Table
from .rows import number_cell

HARM_TITLE = "Does it do harm? EMAIS-auto against SGD-Scan at SGD-Scan’s own best setting"
HARM_CAPTION = (
    "“worse” and “better”: more than two standard errors of the difference, which is paired by seed. Lower is better. "
    "Errors are percent of wrong classes, and absolute deviations for diabetes. Runs and table: "
    "python -m benchmarks.harm."
)
COUNT_CAPTION = "Without any effect, each mark would come up on about 4 of 100 problems by chance (ten seeds)."


ALL_CAPTION = (
    "SGD-Scan: means over seeds. The others: differences to SGD-Scan ± standard error. Training loss and steps are the "
    "method’s own."
)


def harm_tables(harm: Harm) -> list[Table]:
    """All of them; none without runs."""
    return [harm_glance(harm), harm_counts(harm), harm_complete(harm)] if harm.problems else []


def harm_glance(harm: Harm, entry: Entry = PROGRESS) -> Table:
    """One line a problem: what SGD-Scan reaches, and by how much a method differs."""
    head = ["problem", "test loss, SGD-Scan", "difference", "test error, SGD-Scan", "difference", "steps, %"]
    rows = []
    for own in harm.of(entry):
        base = harm.compare(own.problem, BASE)
        assert base is not None  # it is what `own` was compared with
        values = [number_cell(base.average("test_loss"), 3), difference_cell(own, "test_loss", error=False)]
        values += [number_cell(base.average("test_error"), 2), difference_cell(own, "test_error", error=False)]
        rows.append([Cell(PROBLEMS[own.problem]), *values, number_cell(own.steps)])
    return Table(head, rows, HARM_CAPTION, f"{ENTRIES[entry]}, against SGD-Scan")


def harm_counts(harm: Harm) -> Table:
    """One line a method: on how many problems it is worse or better."""
    head = ["method", "problems", "test loss worse", "better", "test error worse", "better", "diverged", "steps, %"]
    rows = []
    for entry, title in list(ENTRIES.items())[1:]:
        if not (count := len(harm.of(entry))):
            continue
        marks = [harm.marked(entry, mark, k) for k in ("test_loss", "test_error") for mark in ("worse", "better")]
        numbers = [count, *map(len, marks), harm.diverged(entry), harm.steps(entry)]
        rows.append([Cell(title), *map(number_cell, numbers)])
    return Table(head, rows, COUNT_CAPTION, "On how many problems each method is worse or better than SGD-Scan")


def harm_complete(harm: Harm) -> Table:
    """One line for each problem and method: of SGD-Scan the means, of the others what differs, with standard errors."""
    head = ["problem", "method", "test loss", "test error", "training loss", "steps, %", "seeds"]
    rows = [complete_row(harm, comparison) for comparison in harm.comparisons()]
    return Table(head, rows, ALL_CAPTION, "All methods")


def complete_row(harm: Harm, own: Comparison) -> Sequence[Cell]:
    """SGD-Scan's line also says the setting, which all share."""
    title, tuned = ENTRIES[own.entry], harm.tuned(own.problem)
    if own.entry == BASE:
        title += f" (rate {tuned.rate:g}, weight decay {decimal(tuned.decay)})"
        values = [number_cell(own.average("test_loss"), 4), number_cell(own.average("test_error"), 3)]
    else:
        values = [difference_cell(own, kind) for kind in ("test_loss", "test_error")]
    counts = (number_cell(own.steps, 1), number_cell(len(own.own)))
    return [Cell(PROBLEMS[own.problem]), Cell(title), *values, training_cell(own), *counts]


def training_cell(own: Comparison) -> Cell:
    """The training loss with four digits; losses are of very different sizes."""
    value = own.average("train_loss")
    return Cell(f"{value:.4g}", sort=value) if math.isfinite(value) else number_cell(value)


def difference_cell(own: Comparison, kind: str, error: bool = True) -> Cell:
    """A difference with its mark; that runs diverged, where some did."""
    found = own.difference(kind)
    if own.diverged:
        return Cell(f"{own.diverged} diverged", True, math.inf, mark="worse")
    text = signed(found, 4 if kind == "test_loss" else 3, error)
    strong = bool(found.mark)
    return Cell(f"{text} {found.mark}" if strong else text, strong, found.mean, seeds_of(own, kind), found.mark)


def signed(found: Difference, places: int, error: bool = True) -> str:
    """A difference with its sign, which is a minus sign where it is one.

    >>> signed(Difference(-0.0123, 0.004), 3), signed(Difference(0.5, 0.1), 1, error=False)
    ('−0.012 ± 0.004', '+0.5')
    """
    spread = f" ± {found.error:.{places}f}" if error and math.isfinite(found.error) else ""
    mean = round(found.mean, places) + 0.0  # no minus sign for what is 0
    return f"{mean:+.{places}f}{spread}".replace("-", "−")


def seeds_of(own: Comparison, kind: str) -> str:
    """The difference of each seed, to be seen on hover."""
    gaps = (getattr(a, kind) - getattr(b, kind) for a, b in zip(own.own, own.base, strict=True) if not b.diverged)
    return f"seeds: {', '.join(f'{gap:+.4g}' for gap in gaps)}".replace("-", "−")

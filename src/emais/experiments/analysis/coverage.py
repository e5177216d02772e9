"""What is not run yet, and whether enough of a table was run to show it."""

from __future__ import annotations

from collections.abc import Sequence

from ..runs.catalogue import ITEMS
from ..runs.record import Record
from .settings import Setting, by_row, of_item, present


def mostly_run(settings: Sequence[Setting]) -> bool:
    """Whether more than a third of the settings was run; rows of which nothing was run do not count."""
    rows = [row for row in by_row(settings) if present(row)]
    return 3 * len(present(settings)) > sum(map(len, rows))


def not_run_yet(records: Sequence[Record]) -> str:
    """Which labels lack runs, how many of their settings, and whether their tables are therefore not shown."""
    found = []
    for label, item in ITEMS.items():
        settings = of_item(item, records)
        missing = len(settings) - len(present(settings))
        left_out = "" if mostly_run(settings) else "; table left out"
        if missing:
            found.append(f"{label} ({missing} of {len(settings)}{left_out})")
    return f" Settings not run yet: {', '.join(found)}." if found else ""


def left_out(records: Sequence[Record]) -> list[str]:
    """The labels whose tables have too many gaps to be shown."""
    return [label for label, item in ITEMS.items() if not mostly_run(of_item(item, records))]

"""Tables as rows of cells, and how they are written as Markdown or plain text; pages have a template for them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from ...numbers import DASH


@dataclass(frozen=True)
class Cell:
    """What a cell says; sort: its place when the table is sorted (its text if None); hover: the exact value.

    mark: a word that the page shows in its own colour (agrees, better, worse, none).
    """

    text: str
    bold: bool = False
    sort: float | None = None
    hover: str = ""
    mark: str = ""

    @property
    def sort_key(self) -> str:
        """The place as text; empty where there is none."""
        return "" if self.sort is None or not math.isfinite(self.sort) else f"{self.sort:.10g}"

    @property
    def is_empty(self) -> bool:
        """Whether it has neither a number nor a word."""
        return self.text in ("", DASH)


@dataclass(frozen=True)
class Table:
    """A heading for each column, rows of cells, and what must be said below."""

    head: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    caption: str = ""
    title: str = ""

    def numeric(self) -> list[bool]:
        """Whether each column is aligned to the right: it has numbers, or nothing at all."""
        columns = [[row[k] for row in self.rows] for k in range(len(self.head))]
        return [any(c.sort is not None for c in own) or all(c.is_empty for c in own) for own in columns]


def to_markdown(table: Table) -> str:
    """A table with its caption below.

    >>> print(to_markdown(Table(["a", "b"], [[Cell("x"), Cell("1.0", bold=True, sort=1.0)]])))
    | a | b |
    |---|---:|
    | x | **1.0** |
    """
    rules = ["---:" if numeric else "---" for numeric in table.numeric()]
    lines = [f"| {' | '.join(table.head)} |", f"|{'|'.join(rules)}|"]
    for row in table.rows:
        lines.append(f"| {' | '.join(f'**{c.text}**' if c.bold else c.text for c in row)} |")
    title = [f"**{table.title}**", ""] if table.title else []
    return "\n".join([*title, *lines, *(["", table.caption] if table.caption else [])])


def to_text(table: Table) -> str:
    """The table for a terminal, without its caption.

    >>> print(to_text(Table(["a", "number"], [[Cell("x"), Cell("1.0", sort=1.0)]])))
    a  number
    ---------
    x     1.0
    """
    lines = [list(table.head), *([cell.text for cell in row] for row in table.rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    sides = [str.rjust if numeric else str.ljust for numeric in table.numeric()]
    shown = ["  ".join(f(v, w) for f, v, w in zip(sides, line, widths, strict=True)).rstrip() for line in lines]
    return "\n".join([shown[0], "-" * max(map(len, shown)), *shown[1:]])

"""Tables as rows of cells, and the two ways to write them down: Markdown, and HTML that can be sorted."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape


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


@dataclass(frozen=True)
class Table:
    """A heading for each column, rows of cells, and what must be said below."""

    head: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    caption: str = ""
    title: str = ""

    def numeric(self, column: int) -> bool:
        """Whether the column is aligned to the right: it has numbers, or nothing at all."""
        own = [row[column] for row in self.rows]
        return any(cell.sort is not None for cell in own) or all(cell.text in ("", "–") for cell in own)


def to_markdown(table: Table) -> str:
    """A table with its caption below.

    >>> print(to_markdown(Table(["a", "b"], [[Cell("x"), Cell("1.0", bold=True, sort=1.0)]])))
    | a | b |
    |---|---:|
    | x | **1.0** |
    """
    rules = ["---:" if table.numeric(k) else "---" for k in range(len(table.head))]
    lines = [f"| {' | '.join(table.head)} |", f"|{'|'.join(rules)}|"]
    for row in table.rows:
        lines.append(f"| {' | '.join(f'**{c.text}**' if c.bold else c.text for c in row)} |")
    title = [f"**{table.title}**", ""] if table.title else []
    return "\n".join([*title, *lines, *(["", table.caption] if table.caption else [])])


def cell_html(cell: Cell, numeric: bool) -> str:
    """One cell of a row."""
    key = "" if cell.sort is None or not math.isfinite(cell.sort) else f' data-sort="{cell.sort:.10g}"'
    hover = f' title="{escape(cell.hover, quote=True)}"' if cell.hover else ""
    kind = " ".join(k for k in ("number" if numeric else "", cell.mark) if k)
    text = escape(cell.text)
    return f'<td class="{kind}"{key}{hover}>{f"<b>{text}</b>" if cell.bold else text}</td>'


def to_html(table: Table) -> str:
    """A table whose headings are buttons that sort it."""
    right = [table.numeric(k) for k in range(len(table.head))]
    heads = "".join(
        f'<th scope="col"{" class=number" if r else ""}><button type="button">{escape(name)}</button></th>'
        for name, r in zip(table.head, right, strict=True)
    )
    rows = "\n".join(
        f"<tr>{''.join(cell_html(c, r) for c, r in zip(row, right, strict=True))}</tr>" for row in table.rows
    )
    title = f"<h4>{escape(table.title)}</h4>" if table.title else ""
    caption = f'<p class="soft">{escape(table.caption)}</p>' if table.caption else ""
    return (
        f'{title}<div class="scroll"><table class="sortable"><thead><tr>{heads}</tr></thead>'
        f"<tbody>{rows}</tbody></table></div>{caption}"
    )

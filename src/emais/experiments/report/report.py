"""The report: all tables and figures as one HTML file that needs nothing else, and the tables as Markdown."""

from __future__ import annotations

from collections.abc import Sequence

from ..analysis.harm_differences import Harm
from ..analysis.settings import STAR
from ..runs.store import Record
from .figures.curves import PictureGroup
from .figures.differences import difference_note, difference_plot
from .findings import findings, glance, result_rows
from .pages import HOW_TO_READ, Answer, Page, PagePart, render, terms
from .sections import grouped, runs_table
from .tables.cells import to_markdown

REPORT_ABOUT = (
    "Importance sampling for training: each method chooses its samples in its own way; data, network and settings are "
    "the same. Our numbers stand beside those of the paper, whoever wins."
)
QUESTION = "Do EMAIS and EMAIS-auto help?"


def html(
    records: Sequence[Record], timings: Sequence[Record], study: Sequence[Record] = (), harm: Harm | None = None
) -> str:
    """The whole page."""
    page = Page(
        title="EMAIS: the paper’s experiments, run again",
        short="Report",
        about=f"{REPORT_ABOUT} {HOW_TO_READ}",
        groups=grouped(records, timings, study, harm),
        runs=runs_table(records),
        command="emais report",
        star=STAR,
        answer=answer(records, timings),
        completes="emais reproduce LABEL",
    )
    return render(page)


def answer(records: Sequence[Record], timings: Sequence[Record]) -> Answer:
    """The findings, the first table, and a picture of it."""
    main, rows = glance(records), result_rows(records)
    parts: list[PagePart] = [main] if main else []
    if drawing := difference_plot(rows):
        parts.append(PictureGroup([drawing], difference_note(rows)))
    return Answer(QUESTION, findings(records, timings), parts)


def markdown_page(records: Sequence[Record], timings: Sequence[Record]) -> str:
    """All tables, one after the other."""
    parts = ["# Tables", "Made by `make docs` from the result files; not to be edited by hand."]
    parts += [f"## {QUESTION}", "\n".join(f"- {text}" for text in findings(records, timings))]
    main = glance(records)
    parts += [to_markdown(main)] if main else []
    parts.append(f"{terms()} {STAR}")
    for name, sections in grouped(records, timings).items():
        parts.append(f"# {name}")
        for section in (section for section in sections if section.tables()):
            parts += [f"## {section.label}: {section.title}", *map(to_markdown, section.tables())]
    return "\n\n".join([*parts, "# What was run", to_markdown(runs_table(records))]) + "\n"

"""The report: all tables and figures as one HTML file that needs nothing else, and the tables as Markdown."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import replace
from html import escape
from pathlib import Path

from ..analysis.settings import STAR
from ..files import write_whole
from ..runs.store import Record
from . import page, style
from .figures.chart import figure
from .figures.differences import difference_plot
from .findings import findings, glance, result_rows
from .sections import RUNS, Section, grouped, runs_table
from .tables.cells import Table, to_html, to_markdown
from .tables.step_times import read_timings
from .user_runs import own_sections

TITLE = "EMAIS: the paper’s experiments, run again"
HOW = (
    "Click a table’s heading to sort by it, point at a value to see the single seeds, move over a chart to read it at "
    "a step, click a legend’s name to hide a line."
)
ABOUT = (
    "Importance sampling for training: each method chooses its samples in its own way; data, network and settings are "
    "the same. Our numbers stand beside those of the paper, whoever wins. " + HOW
)
OWN_TITLE = "EMAIS: runs side by side"
OWN = "Importance sampling for training: each method chooses its samples in its own way."
QUESTION = "Do EMAIS and EMAIS-auto help?"


# ---- the page


def section_html(section: Section) -> str:
    """One table or figure with its heading."""
    parts = [f"<h3>{escape(section.title)}<code>{escape(section.label)}</code></h3>"]
    if section.figure is not None:
        charts = "\n".join(figure(chart) for chart in section.figure.charts)
        one = " one" if len(section.figure.charts) == 1 else ""
        parts.append(f'<div class="charts{one}">\n{charts}\n</div>')
        parts.append(f'<p class="soft">{escape(f"{section.figure.lines} {section.figure.note}")}</p>')
    parts += [to_html(table) for table in section.tables[:1]]
    if section.dots:
        parts.append(
            f'<div class="charts">{"".join(section.dots)}</div><p class="soft">{section.dots_note or DOTS}</p>'
        )
    parts += [to_html(table) for table in section.tables[1:]]
    return f'<section id="{section.anchor}">\n{chr(10).join(parts)}\n</section>'


DOTS = "Bars are one standard deviation. The methods of each picture are in the order of our means, the best on top."


def navigation(groups: dict[str, list[Section]], found: bool) -> str:
    """Links to everything; on a narrow screen the script folds them."""
    first = '<a href="#findings">What was found</a>' if found else ""
    parts = [f'<b>Report</b>{first}<a href="#runs">What was run</a>']
    for name, sections in groups.items():
        parts.append(f"<b>{escape(name)}</b>")
        parts += [f'<a href="#{s.anchor}">{escape(s.title)}</a>' for s in sections]
    return f'<nav aria-label="contents"><details open><summary>Contents</summary>{"".join(parts)}</details></nav>'


def answer(records: Sequence[Record], timings: Sequence[Record]) -> str:
    """The findings, the first table, and a picture of it."""
    listed = "".join(f"<li>{escape(text)}</li>" for text in findings(records, timings))
    main = glance(records)
    shown = f"{to_html(main)}{difference_plot(result_rows(records))}" if main else ""
    return f'<section id="findings"><h2>{QUESTION}</h2><ul class="findings">{listed}</ul>{shown}</section>'


def html(records: Sequence[Record], timings: Sequence[Record], study: Sequence[Record] = ()) -> str:
    """The whole page."""
    groups = grouped(records, timings, study)
    again = "Run what a table or figure lacks:\n<code>emais reproduce LABEL</code>."
    return document(TITLE, ABOUT, answer(records, timings), groups, runs_table(records), "emais report", again)


def own_html(records: Sequence[Record], source: Path) -> str:
    """A page of runs of one's own."""
    runs = replace(runs_table(records), caption=RUNS)
    command = f"emais report --results {shlex.quote(str(source))}"
    return document(OWN_TITLE, f"{OWN} {HOW}", "", {"The runs": own_sections(records)}, runs, command, "")


def document(
    title: str, about: str, first: str, groups: dict[str, list[Section]], runs: Table, command: str, again: str
) -> str:
    """A page: what comes first, the sections group by group, what was run, and how to make it again."""
    body = "\n".join(
        f"<h2>{name}</h2>\n" + "\n".join(section_html(section) for section in sections)
        for name, sections in groups.items()
        if sections
    )
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>{page.STYLE}{style.STYLE}</style>
</head>
<body>
<div class="layout">
{navigation(groups, bool(first))}
<main>
<h1>{title}</h1>
<p class="text">{escape(about)}</p>
<p class="text soft">{page.NOTES["terms"]} {escape(STAR)}</p>
{first}
{body}
<section id="runs"><h2>What was run</h2>{to_html(runs)}</section>
<footer class="text"><p>Make this page again: <code>{escape(command)}</code>. {again}</p></footer>
</main>
</div>
<script>{page.SCRIPT}{style.SCRIPT}</script>
</body>
</html>
"""


def write_report(
    records: Sequence[Record],
    out: Path,
    timings: Sequence[Record] | None = None,
    study: Sequence[Record] = (),
) -> None:
    """Write the page.

    timings: measured step times, by default those under benchmarks/results, if there; study: what `logit_study` wrote.
    """
    write_whole(out, html(records, read_timings() if timings is None else timings, study))


def write_own(records: Sequence[Record], out: Path, source: Path) -> None:
    """Write a page of the runs of one file, whatever was run."""
    write_whole(out, own_html(records, source))


def markdown_page(records: Sequence[Record], timings: Sequence[Record]) -> str:
    """All tables, one after the other."""
    parts = ["# Tables", "Made by `make docs` from the result files; not to be edited by hand."]
    parts += [f"## {QUESTION}", "\n".join(f"- {text}" for text in findings(records, timings))]
    main = glance(records)
    parts += [to_markdown(main)] if main else []
    parts.append(f"{page.NOTES['terms']} {STAR}")
    for name, sections in grouped(records, timings).items():
        parts.append(f"# {name}")
        for section in (section for section in sections if section.tables):
            parts += [f"## {section.label}: {section.title}", *map(to_markdown, section.tables)]
    return "\n\n".join([*parts, "# What was run", to_markdown(runs_table(records))]) + "\n"

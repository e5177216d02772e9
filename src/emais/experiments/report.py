"""The report: all tables and figures as one HTML file that needs nothing else, and the tables as Markdown."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

from . import page, reportstyle, scatter
from .catalogue import ITEMS
from .cells import Cell, Table, to_html, to_markdown
from .chart import figure
from .dots import dot_plot
from .figures import place
from .findings import findings
from .morefigures import Figure, figures
from .moretables import cost_table, read_timings, steps_table
from .paper import TITLES
from .results import Record
from .selection import by_row, of_item, present
from .tables import decimal, tables

TITLE = "EMAIS: the paper’s experiments, run again"
ABOUT = (
    "Importance sampling for training: each method chooses its samples in its own way; data, network and settings are "
    "the same. Our numbers stand beside those of the paper, whoever wins. Click a table’s heading to sort by it, point "
    "at a value to see the single seeds, move over a chart to read it at a step, click a legend’s name to hide a line."
)


@dataclass(frozen=True)
class Section:
    """A table or figure of the report: its label, its title, and what it shows."""

    label: str
    title: str
    tables: Sequence[Table] = ()
    figure: Figure | None = None
    dots: Sequence[str] = ()
    dots_note: str = ""

    @property
    def anchor(self) -> str:
        """Its address on the page."""
        return "".join(c if c.isalnum() else "-" for c in self.label)


def table_sections(records: Sequence[Record], timings: Sequence[Record]) -> list[Section]:
    """All tables that there are results for."""
    found = []
    for label, item in ITEMS.items():
        if not label.startswith("fig:") and present(of_item(item, records)):
            first, *rest = tables(label, records)
            listed = [Table(first.head, first.rows, first.caption), *rest]
            found.append(Section(label, item.title, listed, dots=dot_plots(label, records)))
    for label in ("tab:res_fmnist", "tab:res_cinic10"):
        if present(of_item(ITEMS[label], records)):
            table = steps_table(ITEMS[label], records)
            name = TITLES[ITEMS[label].configs(1)[0].data]
            title = f"Beyond the paper: {table.title.lower()}, {name}"
            found.append(Section(f"steps_to_error {name}", title, [Table(table.head, table.rows, table.caption)]))
    if timings:
        table = cost_table(timings)
        found.append(Section("tab:per_iter_time", table.title, [Table(table.head, table.rows, table.caption)]))
    return found


def dot_plots(label: str, records: Sequence[Record]) -> list[str]:
    """A picture of each row of a table of results."""
    if not label.startswith("tab:"):
        return []
    rows = by_row(present(of_item(ITEMS[label], records)))
    many = len({row[0].config.weight_decay for row in rows}) > 1
    ends = [f", weight decay {decimal(row[0].config.weight_decay)}" if many else "" for row in rows]
    return [dot_plot(f"{place(row[0])}{end}", row) for row, end in zip(rows, ends, strict=True)]


def figure_sections(records: Sequence[Record], timings: Sequence[Record]) -> list[Section]:
    """All figures that there are results for, with the runs behind those of the paper."""
    found = []
    for fig in figures(records, timings):
        behind = tables(fig.label, records) if fig.label in ITEMS else []
        found.append(Section(fig.label, fig.title, [Table(t.head, t.rows, t.caption) for t in behind], fig))
    return found


def study_sections(study: Sequence[Record]) -> list[Section]:
    """Logit against full gradients, if that was studied."""
    if not study:
        return []
    named = scatter.TITLES.items()
    return [Section(k, title, dots=scatter.panels(k, study), dots_note=scatter.NOTE) for k, title in named]


def runs_table(records: Sequence[Record]) -> Table:
    """What was run, on what."""
    kinds: dict[tuple[str, ...], list[Record]] = {}
    for r in records:
        versions = f"emais {r.get('emais', '?')}, torch {r.get('torch', '?')}, Python {r.get('python', '?')}"
        key = (r["data"], r["model"], r["optimizer"], str(r.get("hardware", "unknown")), versions)
        kinds.setdefault(key, []).append(r)
    rows = []
    for (data, *rest), own in kinds.items():
        steps = sum(r["num_steps"] for r in own)
        minutes = sum(r["ms_per_step"] * r["num_steps"] for r in own) / 6e4
        counts = ((f"{len(own)}", len(own)), (f"{steps:,}", steps), (f"{minutes:.1f}", minutes))
        cells = [Cell(text, sort=value) for text, value in counts]
        rows.append([Cell(TITLES.get(data, data)), *map(Cell, rest), *cells])
    head = ["data", "model", "optimizer", "hardware", "versions", "runs", "steps", "minutes of training"]
    missing = [label for label, item in ITEMS.items() if not present(of_item(item, records))]
    lacking = f" Nothing was run yet for {', '.join(missing)}." if missing else ""
    caption = (
        "Minutes: training alone, without tests of the model on the way; runs that share a GPU share the time. SGD "
        f"with momentum 0.9; the learning rate falls to 0 along a cosine.{lacking}"
    )
    return Table(head, rows, caption)


# ---- the page


def section_html(section: Section) -> str:
    """One table or figure with its heading."""
    parts = [f"<h3>{escape(section.title)}<code>{escape(section.label)}</code></h3>"]
    if section.figure is not None:
        charts = "\n".join(figure(chart) for chart in section.figure.charts)
        one = " one" if len(section.figure.charts) == 1 else ""
        parts.append(f'<div class="charts{one}">\n{charts}\n</div>')
        parts.append(f'<p class="soft">{escape(LINES + section.figure.note)}</p>')
    parts += [to_html(table) for table in section.tables[:1]]
    if section.dots:
        parts.append(
            f'<div class="charts">{"".join(section.dots)}</div><p class="soft">{section.dots_note or DOTS}</p>'
        )
    parts += [to_html(table) for table in section.tables[1:]]
    return f'<section id="{section.anchor}">\n{chr(10).join(parts)}\n</section>'


LINES = "A line is the mean over seeds, its band one standard deviation. "
DOTS = "Bars are one standard deviation. The methods of each picture are in the order of our means, the best on top."


def navigation(groups: dict[str, list[Section]]) -> str:
    """Links to everything."""
    parts = ['<b>Report</b><a href="#findings">What was found</a><a href="#runs">What was run</a>']
    for name, sections in groups.items():
        parts.append(f"<b>{escape(name)}</b>")
        parts += [f'<a href="#{s.anchor}">{escape(s.title)}</a>' for s in sections]
    return f'<nav aria-label="contents">{"".join(parts)}</nav>'


def html(records: Sequence[Record], timings: Sequence[Record], study: Sequence[Record] = ()) -> str:
    """The whole page."""
    figures_made = figure_sections(records, timings) + study_sections(study)
    groups = {"Tables": table_sections(records, timings), "Figures": figures_made}
    body = "\n".join(
        f"<h2>{name}</h2>\n" + "\n".join(section_html(section) for section in sections)
        for name, sections in groups.items()
        if sections
    )
    listed = "".join(f"<li>{escape(text)}</li>" for text in findings(records))
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{TITLE}</title>
<style>{page.STYLE}{reportstyle.STYLE}</style>
</head>
<body>
<div class="layout">
{navigation(groups)}
<main>
<h1>{TITLE}</h1>
<p class="text">{escape(ABOUT)}</p>
<section id="findings"><ul class="findings">{listed}</ul></section>
{body}
<section id="runs"><h2>What was run</h2>{to_html(runs_table(records))}</section>
<footer class="text"><p>{page.NOTES["terms"]}</p>
<p>Make this page again: <code>emais report</code>. Run what a table or figure lacks:
<code>emais reproduce LABEL</code>.</p></footer>
</main>
</div>
<script>{page.SCRIPT}{reportstyle.SCRIPT}</script>
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
    out.write_text(html(records, read_timings() if timings is None else timings, study), encoding="utf-8")


def markdown_page(records: Sequence[Record], timings: Sequence[Record]) -> str:
    """All tables, one after the other."""
    parts = ["# Tables", "Made by `docs/make_tables.py` from the result files; not to be edited by hand."]
    parts.append("\n".join(f"- {text}" for text in findings(records)))
    for section in table_sections(records, timings):
        parts += [f"## {section.label}: {section.title}", *map(to_markdown, section.tables)]
    for label, item in ITEMS.items():
        if label.startswith("fig:") and present(of_item(item, records)):
            own = [Table(t.head, t.rows, t.caption) for t in tables(label, records)]
            parts += [f"## {label}: {item.title}", *map(to_markdown, own)]
    return "\n\n".join([*parts, "## What was run", to_markdown(runs_table(records))]) + "\n"


def write_markdown(records: Sequence[Record], out: Path, timings: Sequence[Record] | None = None) -> None:
    """Write the tables as Markdown; timings as for `write_report`."""
    out.write_text(markdown_page(records, read_timings() if timings is None else timings), encoding="utf-8")

"""Makes docs/img/fmnist.svg, the README's picture, from results/demo_fmnist.jsonl (written by `emais demo`).

python docs/make_figures.py
"""

from __future__ import annotations

import json
import math
from dataclasses import fields
from pathlib import Path

from emais.experiments.chart import HEIGHT, WIDTH, svg
from emais.experiments.page import STYLE, charts
from emais.experiments.training import Run

ROOT = Path(__file__).parent.parent
SCALE = 0.62


def read_runs(path: Path) -> list[Run]:
    """The runs of a result file."""
    names = [f.name for f in fields(Run)]
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    for row in rows:
        row["curves"] = {k: [math.nan if v is None else v for v in values] for k, values in row["curves"].items()}
    return [Run(**{name: row[name] for name in names}) for row in rows]


def picture(runs: list[Run]) -> str:
    """Three charts side by side as one SVG file."""
    error, _, size, score = charts(runs)
    panels = []
    for k, chart in enumerate((error, size, score)):
        inner = svg(chart).replace("<svg ", f'<svg y="34" width="{WIDTH * SCALE}" height="{HEIGHT * SCALE}" ', 1)
        title = f'<text x="{LEFT_OF_TITLE}" y="22" class="title">{chart.title}</text>'
        panels.append(f'<g transform="translate({k * WIDTH * SCALE} 0)">{title}{inner}</g>')
    names = [s.name for s in error.series]
    legend = "".join(
        f'<g class="s{k}" transform="translate({LEFT_OF_TITLE + 110 * k} {34 + HEIGHT * SCALE + 18})">'
        f'<path class="line" d="M0 -4h18"/><text x="24" class="title">{name}</text></g>'
        for k, name in enumerate(names)
    )
    width, height = 3 * WIDTH * SCALE, 34 + HEIGHT * SCALE + 32
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" '
        f'font-family="system-ui, sans-serif">\n<style>{STYLE}\nsvg {{ width: auto; }}\nsvg .title {{ font-size: 12px; '
        f'fill: var(--ink); }}</style>\n<rect width="100%" height="100%" fill="var(--paper)"/>\n'
        f"{''.join(panels)}{legend}\n</svg>\n"
    )


LEFT_OF_TITLE = 40

if __name__ == "__main__":
    target = ROOT / "docs" / "img" / "fmnist.svg"
    target.write_text(picture(read_runs(ROOT / "results" / "demo_fmnist.jsonl")), encoding="utf-8")
    print(target)

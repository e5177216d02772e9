"""Makes docs/img/fmnist.svg, the README's picture, from results/fmnist.jsonl (written by `emais reproduce`).

python docs/make_figures.py
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from emais.experiments.catalogue import ITEMS
from emais.experiments.chart import HEIGHT, WIDTH, Chart, svg
from emais.experiments.figures import chart, metric_chart, score_chart
from emais.experiments.page import STYLE
from emais.experiments.results import Results
from emais.experiments.selection import of_item

ROOT = Path(__file__).parent.parent
SCALE, STEPS = 0.62, 12500
COLOURS = {"sgd-scan": 0, "emais": 1}


def three_charts() -> list[Chart]:
    """Test error, N_ems and S(W) of SGD-Scan and EMAIS, five seeds each."""
    settings = of_item(ITEMS["tab:res_fmnist"], Results(ROOT / "results" / "fmnist.jsonl").read())
    own = {s.config.method: s for s in settings if s.config.num_steps == STEPS}
    lines = [(own[method], "", colour) for method, colour in COLOURS.items()]
    return [
        metric_chart("Test error (%)", lines, "error"),
        chart("Effective minibatch size Nₑₘₛ", "Nₑₘₛ (samples)", "n_ems", lines, y_from=0.0, name="size"),
        score_chart("Efficiency score S(W)", lines, "score"),
    ]


def picture(charts: Sequence[Chart]) -> str:
    """Charts side by side as one SVG file."""
    panels = []
    for k, one in enumerate(charts):
        inner = svg(one).replace("<svg ", f'<svg y="34" width="{WIDTH * SCALE}" height="{HEIGHT * SCALE}" ', 1)
        title = f'<text x="{LEFT_OF_TITLE}" y="22" class="title">{one.title}</text>'
        panels.append(f'<g transform="translate({k * WIDTH * SCALE} 0)">{title}{inner}</g>')
    names = [s.name for s in charts[0].series]
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
    target.write_text(picture(three_charts()), encoding="utf-8")
    print(target)

"""One self-contained HTML page about a comparison: what was run, the table, the verdict, four charts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

from ..numbers import mean_sd
from ..train.loop import Run
from .figures.chart import Chart, Series, figure

LABELS = {"sgd-scan": "SGD-Scan", "sgd-uni": "SGD-Uni", "emais": "EMAIS", "emais-auto": "EMAIS-auto"}
HEADINGS = (
    ("Method", ""),
    ("Test error, %", "lower is better"),
    ("<i>N</i><sub>ems</sub>", "effective minibatch size"),
    ("<i>S</i>(<i>W</i>)", "0 optimal, 1 uniform"),
    ("Step time", "SGD-Scan = 1"),
)

STYLE = """
:root { color-scheme: light dark; --paper: #fdfcf9; --ink: #23262b; --soft: #646a73; --rule: #b9bcc1; --grid: #e8e6e0;
  --c0: #3d6fa5; --c1: #c2552d; --c2: #4f8a5b; --c3: #8a63a6; --c4: #a8842c; --c5: #3f8f97; --c6: #b05379;
  --c7: #6f6f6f; }
@media (prefers-color-scheme: dark) { :root { --paper: #16181c; --ink: #e4e2dc; --soft: #9da3ac; --rule: #565b63;
  --grid: #292c32; --c0: #79a9dd; --c1: #ee8a5f; --c2: #83c092; --c3: #bd9bd8; --c4: #d9b65f; --c5: #74c4cc;
  --c6: #e28bad; --c7: #a5a5a5; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--paper); color: var(--ink); font: 17px/1.6 Charter, "Bitstream Charter",
  "Iowan Old Style", "Source Serif 4", Cambria, Georgia, serif; -webkit-text-size-adjust: 100%;
  text-size-adjust: 100%; }
main { max-width: 68rem; margin: 0 auto; padding: 4rem 1.5rem 3rem; }
.text { max-width: 42rem; }
h1 { font-size: 2rem; line-height: 1.2; font-weight: 600; letter-spacing: -.01em; margin: 0 0 1.2rem;
  text-wrap: balance; }
h2 { font-size: 1.25rem; font-weight: 600; margin: 3rem 0 .5rem; }
p { margin: 0 0 1rem; }
.verdict { border-left: 3px solid var(--c1); padding-left: 1rem; margin: 2rem 0 0; font-size: 1.1rem; }
.scroll { overflow-x: auto; margin: 2rem 0 1rem; }
sub { line-height: 0; font-size: .75em; }
table { border-collapse: collapse; border-top: 2px solid var(--ink); border-bottom: 2px solid var(--ink);
  font-variant-numeric: lining-nums tabular-nums; }
th, td { padding: .45rem 0 .45rem 2.2rem; text-align: right; white-space: nowrap; vertical-align: top; }
th:first-child, td:first-child { text-align: left; padding-left: 0; }
thead th { border-bottom: 1px solid var(--rule); font-weight: 600; line-height: 1.3; }
th small { display: block; font-weight: 400; color: var(--soft); font-size: .78em; }
tbody th { font-weight: 400; }
.soft, footer { color: var(--soft); font-size: .92rem; }
.charts { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 27rem), 1fr)); gap: 2.4rem 2.6rem;
  margin-top: 1.8rem; align-items: end; }
figure { margin: 0; min-width: 0; font-family: system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", sans-serif; }
h3 { font-size: .95rem; font-weight: 600; margin: 0; }
.legend { list-style: none; display: flex; flex-wrap: wrap; gap: 0 .8rem; margin: .1rem 0 .3rem; padding: 0;
  font-size: .77rem; font-variant-numeric: tabular-nums; color: var(--soft); }
.legend i { display: inline-block; width: 1.1em; height: 3px; border-radius: 2px; background: var(--c);
  vertical-align: .25em; margin-right: .4em; }
.legend output { color: var(--ink); }
.legend .where { margin-left: auto; }
.legend b { display: inline-block; min-width: 2.6em; text-align: right; font-weight: 400; color: var(--ink); }
svg { display: block; width: 100%; height: auto; overflow: visible; touch-action: pan-y; }
svg text { font-size: 11.5px; fill: var(--soft); }
svg .tick { font-variant-numeric: tabular-nums; }
svg .note { font-size: 10.5px; font-style: italic; }
path { fill: none; }
.grid { stroke: var(--grid); } .rule, .cross { stroke: var(--rule); }
.reference { stroke: var(--soft); stroke-dasharray: 2 4; }
.band { fill: var(--c); opacity: .16; }
.line { stroke: var(--c); stroke-width: 1.9; stroke-linejoin: round; stroke-linecap: round; }
.dot { fill: var(--c); stroke: var(--paper); stroke-width: 1.5; }
.s0 { --c: var(--c0); } .s1 { --c: var(--c1); } .s2 { --c: var(--c2); } .s3 { --c: var(--c3); }
.s4 { --c: var(--c4); } .s5 { --c: var(--c5); } .s6 { --c: var(--c6); } .s7 { --c: var(--c7); }
footer { border-top: 1px solid var(--grid); margin-top: 3.5rem; padding-top: 1rem; }
code { font: .88em ui-monospace, "SF Mono", Menlo, Consolas, monospace; }
@media (max-width: 40rem) { body { font-size: 16px; } main { padding: 2rem 1rem; } h1 { font-size: 1.6rem; }
  table { font-size: .85rem; width: 100%; } th, td { padding-left: .5rem; } th small { display: none; }
  .legend { font-size: .75rem; gap: 0 .8rem; } svg text { font-size: 14px; } svg .note { font-size: 13px; } }
"""

SCRIPT = """
for (const group of document.querySelectorAll('.charts')) {
  const charts = [...group.querySelectorAll('.chart')].map(f => ({
    svg: f.querySelector('svg'), hover: f.querySelector('.hover'), cross: f.querySelector('.cross'),
    dots: f.querySelectorAll('.dot'), texts: f.querySelectorAll('output'), where: f.querySelector('.where b'),
    series: JSON.parse(f.dataset.series) }));
  const nearest = (xs, x) => xs.reduce((best, v, k) => Math.abs(v - x) < Math.abs(xs[best] - x) ? k : best, 0);
  const show = (x, visible) => charts.forEach(c => c.series.forEach((s, i) => {
    if (!s.x.length) return;
    const k = nearest(s.x, x), [px, py] = s.at[k];
    c.dots[i].setAttribute('cx', px); c.dots[i].setAttribute('cy', py); c.texts[i].textContent = s.text[k];
    c.cross.setAttribute('transform', `translate(${px})`); c.where.textContent = s.x[k];
    c.hover.setAttribute('visibility', visible ? 'visible' : 'hidden'); }));
  for (const c of charts) {
    c.svg.addEventListener('pointermove', e => {
      const box = c.svg.getBoundingClientRect(), s = c.series.find(s => s.x.length);
      if (!s) return;
      const px = (e.clientX - box.left) / box.width * c.svg.viewBox.baseVal.width;
      show(s.x[nearest(s.at.map(p => p[0]), px)], true); });
    c.svg.addEventListener('pointerleave', () => show(Infinity, false));
  }
}
"""


def curves_over_seeds(runs: Sequence[Run], quantity: str) -> list[Series]:
    """One series a method: mean and standard deviation over its runs, point by point."""
    series = []
    for method in dict.fromkeys(run.method for run in runs):
        own = [run.curves for run in runs if run.method == method]
        pairs = [mean_sd(values) for values in zip(*(c[quantity] for c in own), strict=True)]
        mean, spread = ([pair[k] for pair in pairs] for k in (0, 1))
        series.append(Series(LABELS.get(method, method), own[0]["step"], mean, spread))
    return series


def settled_top(series: Sequence[Series]) -> float | None:
    """Where to end an axis so that the first tenth of the run, which is far above the rest, does not flatten it."""
    rows = [row for s in series for row in zip(s.x, s.mean, s.spread, strict=True) if row[0] > 0.1 * s.x[-1]]
    tops = [mean + (spread if math.isfinite(spread) else 0.0) for _, mean, spread in rows]
    return 1.05 * max(tops, default=0.0) or None


def charts(runs: Sequence[Run]) -> list[Chart]:
    """Test error, training loss, N_ems and S(W) over the training steps."""
    errors, losses, sizes, scores = (
        curves_over_seeds(runs, quantity) for quantity in ("test_error", "train_loss", "n_ems", "score")
    )
    limits = ((0.0, "optimal"), (1.0, "uniform"))
    return [
        Chart("Test error", "step", "test error (%)", errors, y_from=0.0, y_to=settled_top(errors)),
        Chart("Training loss", "step", "cross entropy (nats, log scale)", losses, log_y=True),
        Chart("Effective minibatch size Nₑₘₛ", "step", "Nₑₘₛ (samples)", sizes, y_from=0.0),
        Chart("Efficiency score S(W)", "step", "S(W) (a ratio)", scores, references=limits),
    ]


def table(rows: Sequence[Sequence[str]]) -> str:
    """Rows of five texts under the headings above."""
    heads = "".join(f"<th>{name}<small>{note}</small></th>" for name, note in HEADINGS)
    body = "".join(
        f"<tr><th>{escape(name)}</th>{''.join(f'<td>{escape(v)}</td>' for v in rest)}</tr>" for name, *rest in rows
    )
    return f'<div class="scroll"><table><thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table></div>'


NOTES = {
    "table": """Means over seeds, with the standard deviation over seeds. <i>N</i><sub>ems</sub> and
<i>S</i>(<i>W</i>) are taken over the second half of each run, the step time as the median over pairs of runs with the
same seed. SGD-Scan is observed too, so its steps carry the cost of observing but not of choosing samples.""",
    "charts": """A line is the mean over seeds, its band one standard deviation. Move over a chart to read the values of
all four at a step; until then the legends show the last. The test error of the first steps may lie above its axis.""",
    "terms": """<i>N</i><sub>ems</sub> is the size of a uniform minibatch whose gradient would vary as little as this
one’s. <i>S</i>(<i>W</i>) places the sampler between the best possible one (0) and uniform sampling (1); above 1 it is
worse than uniform.""",
}


def page(title: str, about: str, rows: Sequence[Sequence[str]], verdict: str, runs: Sequence[Run], command: str) -> str:
    """The whole page; about: what was run, rows: the table's texts, command: what makes this page again."""
    figures = "\n".join(figure(chart) for chart in charts(runs))
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{escape(title)}</title>
<style>{STYLE}</style>
</head>
<body>
<main>
<h1>{escape(title)}</h1>
<p class="text">{escape(about)}</p>
<p class="text verdict">{escape(verdict)}</p>
{table(rows)}
<p class="text soft">{NOTES["table"]}</p>
<h2>Over the run</h2>
<p class="text soft">{NOTES["charts"]}</p>
<div class="charts">
{figures}
</div>
<footer class="text">
<p>{NOTES["terms"]}</p>
<p>Make this page again: <code>{escape(command)}</code></p>
</footer>
</main>
<script>{SCRIPT}</script>
</body>
</html>
"""

"""Gradients by the logits against full gradients as scatter plots, from what `logit_study` has written."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

import numpy as np

from ...runs.store import Record
from .chart import Axis, number, text

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 480, 330, 76, 462, 12, 276
TITLES = {
    "fig:full_logit_grad": "Norms of full gradients and of gradients by the logits, 500 samples",
    "fig:full_logit_trvar": "Variance traces from both gradients, minibatches drawn with noisy weights",
    "fig:full_logit_nems_score": "N_ems and S(W) from both gradients, the same minibatches",
}
PANELS = {
    "fig:full_logit_trvar": {
        "tr_is": "trace, importance sampling",
        "tr_unif": "trace, uniform",
        "tr_opt": "trace, optimal",
    },
    "fig:full_logit_nems_score": {"n_ems": "N_ems", "score": "S(W)"},
}
NOTE = (
    "Each dot is a sample or a minibatch; the line is fitted by least squares. The weights are the optimal ones for "
    "full gradients times exp(noise), with a standard deviation from 0 to 1."
)

MOST = 1.0  # noise of minibatches that are shown; beyond it single samples with a huge r leave nothing else to see

Pairs = list[tuple[float, float]]


def pairs(xs: Sequence[float | None], ys: Sequence[float | None]) -> Pairs:
    """Where both numbers are there."""
    both = zip(xs, ys, strict=True)
    return [(x, y) for x, y in both if x is not None and y is not None and math.isfinite(x) and math.isfinite(y)]


def fitted(points: Pairs) -> tuple[float, float, float]:
    """Slope, intercept and correlation.

    >>> [round(v, 6) for v in fitted([(0.0, 1.0), (1.0, 3.0), (2.0, 5.0)])]
    [2.0, 1.0, 1.0]
    """
    x, y = np.array(points).T
    slope, intercept = np.polyfit(x, y, 1)
    return float(slope), float(intercept), float(np.corrcoef(x, y)[0, 1])


def span(values: Sequence[float]) -> tuple[float, float]:
    """From the lowest to the highest, with some air."""
    low, high = min(values), max(values)
    air = 0.05 * (high - low) or 0.5
    return low - air, high + air


def scatter(title: str, what: str, points: Pairs) -> str:
    """One panel: by the logits to the right, full gradients upwards."""
    x = Axis(*span([p[0] for p in points]), LEFT, RIGHT)
    y = Axis(*span([p[1] for p in points]), BOTTOM, TOP)
    slope, intercept, correlation = fitted(points)
    parts = [f'<path class="grid" d="M{x(v)} {TOP}V{BOTTOM}"/>' for v in x.ticks()]
    parts += [f'<path class="grid" d="M{LEFT} {y(v)}H{RIGHT}"/>' for v in y.ticks()]
    parts += [text(x(v), BOTTOM + 17, number(v), "middle", "tick") for v in x.ticks()]
    parts += [text(LEFT - 8, y(v) + 4, number(v), "end", "tick") for v in y.ticks()]
    parts.append(text((LEFT + RIGHT) / 2, BOTTOM + 38, f"{what}, by the logits", "middle"))
    parts.append(text(15, (TOP + BOTTOM) / 2, "full gradients", "middle", turn="-90"))
    ends = [(v, slope * v + intercept) for v in (min(p[0] for p in points), max(p[0] for p in points))]
    parts.append(
        '<g class="paper"><path d="M{} {}L{} {}"/></g>'.format(
            *(f(v) for e in ends for f, v in zip((x, y), e, strict=True))
        )
    )
    for a, b in points:
        words = escape(f"by the logits {a:.4g}, full {b:.4g}")
        parts.append(f'<g class="ours"><title>{words}</title><circle cx="{x(a):.1f}" cy="{y(b):.1f}" r="2.4"/></g>')
    caption = f"slope {slope:.3g}, intercept {intercept:.3g}, correlation {correlation:.3f}"
    label = escape(f"{title}: {what}; {caption}", quote=True)
    return (
        f'<figure class="dots"><figcaption><h3>{escape(title)}</h3><p class="soft">{caption}</p></figcaption>'
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{label}">{"".join(parts)}</svg></figure>'
    )


def panels(label: str, study: Sequence[Record]) -> list[str]:
    """The panels of one of the paper's figures, snapshot by snapshot."""
    drawn = []
    for record in study:
        place = f"after {record['step']} steps"
        if label == "fig:full_logit_grad":
            drawn.append(
                scatter(f"Gradient norm {place}", "norm", pairs(record["norms"]["logit"], record["norms"]["full"]))
            )
            continue
        for key, name in PANELS[label].items():
            shown = [m for m in record["minibatches"] if m["noise"] <= MOST]
            logit, full = ([m[kind][key] for m in shown] for kind in ("logit", "full"))
            drawn.append(scatter(f"{name} {place}", name, pairs(logit, full)))
    return drawn

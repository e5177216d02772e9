"""Gradients with respect to the logits against full gradients as scatter plots, from what `logit_study` has written."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np

from ...runs.store import Record
from .drawing import Box, Drawing, Frame, dot, element, px
from .scales import Axis, padded

SCATTER_BOX = Box(76, 462, 12, 276)
STUDY_TITLES = {
    "fig:full_logit_grad": "Norms of full gradients and of gradients with respect to the logits, 500 samples",
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
SCATTER_NOTE = (
    "Each dot is a sample or a minibatch; the line is fitted by least squares. The weights are the optimal ones for "
    "full gradients times exp(noise), with a standard deviation from 0 to 1."
)
MOST_NOISE = 1.0  # of minibatches that are shown; beyond it single samples with a huge r leave nothing else to see

Pairs = list[tuple[float, float]]  # logits, full


def finite_pairs(xs: Sequence[float | None], ys: Sequence[float | None]) -> Pairs:
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


def scatter_plot(title: str, what: str, points: Pairs) -> Drawing:
    """One panel: logit gradients to the right, full gradients upwards."""
    xs, ys = zip(*points, strict=True)
    x = Axis(*padded(xs), SCATTER_BOX.left, SCATTER_BOX.right)
    y = Axis(*padded(ys), SCATTER_BOX.bottom, SCATTER_BOX.top)
    frame = Frame(SCATTER_BOX, x, y, f"{what}, logit gradients", "full gradients", grid="xy")
    slope, intercept, correlation = fitted(points)
    ends = [f"{px(x(v))} {px(y(slope * v + intercept))}" for v in (min(xs), max(xs))]
    line = element("g", element("path", d=f"M{'L'.join(ends)}"), class_="paper")
    dots = [dot("ours", f"logit gradients {a:.4g}, full {b:.4g}", x(a), y(b), 2.4) for a, b in points]
    note = f"slope {slope:.3g}, intercept {intercept:.3g}, correlation {correlation:.3f}"
    return Drawing(title, frame.picture(f"{title}: {what}; {note}", [line, *dots]), note=note)


def panels(label: str, study: Sequence[Record]) -> list[Drawing]:
    """The panels of one of the paper's figures, snapshot by snapshot."""
    return [drawn for record in study for drawn in snapshot_panels(label, record)]


def snapshot_panels(label: str, record: Record) -> Iterator[Drawing]:
    """Those of one snapshot."""
    after = f"after {record['step']} steps"
    if label == "fig:full_logit_grad":
        norms = finite_pairs(record["norms"]["logit"], record["norms"]["full"])
        yield scatter_plot(f"Gradient norm {after}", "norm", norms)
        return
    shown = [m for m in record["minibatches"] if m["noise"] <= MOST_NOISE]
    for key, name in PANELS[label].items():
        logit, full = ([m[kind][key] for m in shown] for kind in ("logit", "full"))
        yield scatter_plot(f"{name} {after}", name, finite_pairs(logit, full))

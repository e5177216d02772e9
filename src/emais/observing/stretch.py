"""Ratios of averages over a stretch of an audit's steps, and how far chance and the projection may be off.

The model error of a projection is fitted to benchmarks/results/audit.jsonl; docs/methods/audit.md has the formula.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

NORMAL = 1.96  # half the width of a 95 % interval, in standard deviations
ALIKE = 1e-5  # part of the squared gradients that varies; below it, rounding is all that could be seen
WIDEST_FACTOR = 10.0  # times what was found: an interval that reaches further says nothing
UP, DOWN = 0.7, 0.2  # parts of the way to the bound, and as far in the other direction, that a real run may differ by
ALIGNED = 0.8  # alignment from which on gradients of the logits say little of those of the parameters
ALWAYS = 0.05  # and this part of N_ems in any case


@dataclass(frozen=True)
class Stretch:
    """Ratios of averages over some steps.

    ratio: tr_unif/tr_is, what an effective minibatch size is over the real one; error: the standard error of its
    logarithm; best: tr_unif/tr_opt; alignment: |E g|^2/(E|g|)^2, 1 where all gradients point the same way. All NaN
    where there are too few steps, or the noise is larger than the trace.
    """

    ratio: float = math.nan
    error: float = math.nan
    best: float = math.nan
    alignment: float = math.nan

    @classmethod
    def of(cls, rows: Tensor) -> Stretch:
        """From rows of `Projection`."""
        if len(rows) < 2:
            return cls()
        own, uniform, norm, mean, share = rows.mean(0).tolist()
        spread, trace, best = uniform - mean, own * share - mean, norm - mean
        if abs(spread) <= ALIKE * uniform:
            return cls(1.0, 0.0, 1.0, 1.0)  # all samples have one gradient
        if not min(spread, trace) > 0:
            return cls()
        # slopes of log(ratio) in own, uniform, norm, mean, share
        slope = [-share / trace, 1 / spread, 0.0, 1 / trace - 1 / spread, -own / trace]
        s = torch.tensor(slope, dtype=torch.float64, device="cpu")
        error = wider(len(rows) - 1) * math.sqrt(max(0.0, float(s @ rows.T.cov() @ s)) / len(rows))
        if error * NORMAL > math.log(WIDEST_FACTOR):
            return cls()
        return cls(spread / trace, error, spread / best if best > 0 else math.inf, mean / norm)

    def interval(self) -> tuple[float, float]:
        """The ratio, from and to, with 95 %, as far as it varies from minibatch to minibatch."""
        factor = math.exp(NORMAL * self.error)
        return self.ratio / factor, self.ratio * factor

    def likely(self, earlier: float = math.nan) -> tuple[float, float]:
        """The likely ratio of a real run, from and to, where this one was projected; earlier: that of steps before.

        Besides the noise it has the change since then, as a real run may be ahead or behind, and a part of the way to
        the bound: the further away the bound, the more is lost to statistics that are out of date, and a real run may
        lose less. Squares of logarithms are added.

        >>> low, high = Stretch(2.0, 0.01, 2.4).likely()
        >>> round(low, 2), round(high, 2)
        (1.87, 2.3)
        """
        if not self.error and self.ratio == self.best:
            return self.ratio, self.ratio  # all samples have one gradient
        way = min(max(0.0, math.log(self.best / self.ratio)), math.log(WIDEST_FACTOR))
        rise = math.log(self.ratio / earlier) if earlier > 0 else 0.0
        noise = math.hypot(NORMAL * self.error, rise, ALWAYS)
        return self.ratio / math.exp(math.hypot(noise, DOWN * way)), self.ratio * math.exp(math.hypot(noise, UP * way))


def wider(freedom: int) -> float:
    """How much wider Student's 95 % interval is than the normal one; the first terms of its expansion.

    >>> round(1.96 * wider(5), 2), round(1.96 * wider(1000), 2)
    (2.55, 1.96)
    """
    z, f = NORMAL, freedom
    return 1 + (z**2 + 1) / (4 * f) + (5 * z**4 + 16 * z**2 + 3) / (96 * f**2)

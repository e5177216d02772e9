"""What an audit has found: the effective minibatch size with importance sampling, its interval, and it in words."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

NORMAL = 1.96  # half the width of a 95 % interval, in standard deviations
ALIKE = 1e-5  # part of the squared gradients that varies; below it, rounding is all that could be seen
WIDEST = 10.0  # times what was found: an interval that reaches further says nothing
LITTLE = 1.1  # times the minibatch size: what is below can hardly matter


@dataclass(frozen=True)
class Stretch:
    """Ratios of averages over some steps.

    gain: tr_unif/tr_is, what an effective minibatch size is over the real one; error: the standard error of its
    logarithm; best: tr_unif/tr_opt. All NaN where there are too few steps, or the noise is larger than the trace.
    """

    gain: float
    error: float
    best: float

    @classmethod
    def of(cls, rows: Tensor) -> Stretch:
        """From rows of `Projection`."""
        if len(rows) < 2:
            return cls(math.nan, math.nan, math.nan)
        own, uniform, norm, mean, share = rows.mean(0).tolist()
        spread, trace, best = uniform - mean, own * share - mean, norm - mean
        if abs(spread) <= ALIKE * uniform:
            return cls(1.0, 0.0, 1.0)  # all samples have one gradient
        if not min(spread, trace) > 0:
            return cls(math.nan, math.nan, math.nan)
        # slopes of log(gain) in own, uniform, norm, mean, share
        slope = [-share / trace, 1 / spread, 0.0, 1 / trace - 1 / spread, -own / trace]
        s = torch.tensor(slope, dtype=torch.float64, device="cpu")
        error = wider(len(rows) - 1) * math.sqrt(max(0.0, float(s @ rows.T.cov() @ s)) / len(rows))
        if error * NORMAL > math.log(WIDEST):
            return cls(math.nan, math.nan, math.nan)
        return cls(spread / trace, error, spread / best if best > 0 else math.inf)


def wider(freedom: int) -> float:
    """How much wider Student's 95 % interval is than the normal one; the first terms of its expansion.

    >>> round(1.96 * wider(5), 2), round(1.96 * wider(1000), 2)
    (2.55, 1.96)
    """
    z, f = NORMAL, freedom
    return 1 + (z**2 + 1) / (4 * f) + (5 * z**4 + 16 * z**2 + 3) / (96 * f**2)


@dataclass(frozen=True)
class Finding:
    """What an audit says of training with importance sampling, from its latest epoch (of 50 to 1,000 steps).

    n_ems: effective minibatch size, from n_ems_low to n_ems_high with 95 % (as far as it varies from minibatch to
    minibatch); batch_size: samples of an optimizer step; trend: the change of n_ems since as many steps before, from
    trend_low to trend_high, NaN where there are none; bound: what a sampler would reach that knows every gradient
    beforehand. No method does, so it is no forecast. steps, epochs: of the audit. measured: whether its minibatches
    were drawn by importance, as in the pilot `emais.audit`, or n_ems is projected from plain training. finite: False
    where half of the latest minibatches or more had losses or gradients that are not finite.

    n_ems is NaN before two epochs, and where the noise is larger than what is measured.
    """

    batch_size: float
    n_ems: float
    n_ems_low: float
    n_ems_high: float
    bound: float
    trend: float
    trend_low: float
    trend_high: float
    steps: int
    epochs: float
    measured: bool
    finite: bool = True

    @classmethod
    def of(
        cls,
        latest: Stretch,
        before: Stretch,
        size: float,
        steps: int,
        epochs: float,
        early: bool,
        measured: bool,
        finite: bool = True,
    ) -> Finding:
        """From the latest stretch of steps and the one before it; finite: whether its numbers are."""
        if early:
            latest = before = Stretch(math.nan, math.nan, math.nan)
        found, factor = size * latest.gain, math.exp(NORMAL * latest.error)
        change, earlier = found - size * before.gain, size * before.gain * before.error
        half = NORMAL * math.hypot(found * latest.error, earlier)
        limits = found / factor, found * factor, size * latest.best
        return cls(size, found, *limits, change, change - half, change + half, steps, epochs, measured, finite)

    def __str__(self) -> str:
        past = f"{self.steps} step{'' if self.steps == 1 else 's'} ({self.epochs:.1f} epochs)"
        if math.isnan(self.n_ems):
            if self.epochs < 2:
                return f"It is too early to say after {past}: every sample has to be seen twice, in two epochs."
            if not self.finite:
                return f"After {past} losses or gradients are not finite: lower the rate, and look at the data."
            return f"After {past} the minibatches differ too much to say what importance sampling would do: go on."
        n, size = f"{self.n_ems:.0f}", f"{self.batch_size:.0f}"
        interval = f"(95 % interval {self.n_ems_low:.0f} to {self.n_ems_high:.0f})"
        verb = "acts" if self.measured else "would act"
        acts = f"After {past}: with importance sampling a minibatch of {size} {verb} like one of {n} {interval}."
        if self.n_ems_low <= self.batch_size:
            return f"{acts} That is nothing to gain: train as you do.{self._change()}"
        little = " That is little." if self.n_ems < LITTLE * self.batch_size else ""
        return (
            f"{acts}{little}{self._change()} If a minibatch of {n} at the matching learning rate would not help you, "
            "this will not. It promises no accuracy and no saved steps."
        )

    def _change(self) -> str:
        """The trend, in words."""
        if math.isnan(self.trend):
            return ""
        earlier = f"{self.n_ems - self.trend:.0f}"
        if self.trend_low <= 0 <= self.trend_high:
            return f" It was about the same before ({earlier})."
        return f" It is {'rising' if self.trend > 0 else 'falling'}: before it was {earlier}."

"""What an audit has found: the effective minibatch size with importance sampling, its range, and it in words."""

from __future__ import annotations

import math
from dataclasses import dataclass

from .stretch import ALIGNED, NORMAL, Stretch

LITTLE = 1.1  # times the minibatch size: what is below can hardly matter
FLAT_TREND = 0.1  # of n_ems: a trend that is known to be smaller is none
ENOUGH_EPOCHS = 20  # n_ems often rises for that long
LARGE_SHARE = 0.1  # of the data set: a minibatch for which it matters that epochs are drawn without replacement
SO_FAR = " so far. It often takes many epochs: audit as many as you would train."


@dataclass(frozen=True)
class Finding:
    """What an audit says of training with importance sampling, from its latest epoch (of 20 to 1,000 steps).

    n_ems: effective minibatch size, from n_ems_low to n_ems_high. Where it was measured that is a 95 % interval, as far
    as minibatches differ; where it was projected, a range with a model error, too (docs/methods/audit.md). error: the
    standard error of log n_ems from minibatch to minibatch alone. batch_size: samples of an optimizer step; trend: the
    change of n_ems since as many steps before, from trend_low to trend_high, NaN where there are none; bound: what a
    sampler would reach that knows every gradient beforehand. No method does, so it is no forecast. steps, epochs: of
    the audit; needed: steps before which it is too early; share: part of the data set that a minibatch is. measured:
    whether its minibatches were drawn by importance, as in the pilot `emais.audit`, or n_ems is projected from plain
    training. alignment: |E g|^2/(E|g|)^2, 1 where all gradients point the same way. finite: False where half of
    the latest minibatches or more had losses or gradients that are not finite. lr_scale: the mean learning-rate factor
    of the latest epoch, and effective_steps, what all steps were worth with it; NaN of a projection.

    n_ems is NaN where it is too early, where gradients are not finite, and where the noise is larger than what is
    measured.
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
    error: float = math.nan
    alignment: float = math.nan
    needed: int = 0
    share: float = 0.0
    lr_scale: float = math.nan
    effective_steps: float = math.nan

    @classmethod
    def of(
        cls,
        latest: Stretch,
        before: Stretch,
        size: float,
        *,
        steps: int,
        epochs: float,
        needed: int,
        share: float,
        measured: bool,
        finite: bool,
    ) -> Finding:
        """From the latest stretch of steps and the one before it; finite: whether its numbers are."""
        if steps < needed or not finite:
            latest = before = Stretch()
        found, earlier = size * latest.ratio, size * before.ratio
        low, high = latest.interval() if measured else latest.likely(before.ratio)
        change, half = found - earlier, NORMAL * math.hypot(found * latest.error, earlier * before.error)
        return cls(
            batch_size=size,
            n_ems=found,
            n_ems_low=size * low,
            n_ems_high=size * high,
            bound=size * latest.best,
            trend=change,
            trend_low=change - half,
            trend_high=change + half,
            steps=steps,
            epochs=epochs,
            measured=measured,
            finite=finite,
            error=latest.error,
            alignment=latest.alignment,
            needed=needed,
            share=share,
        )

    @property
    def early(self) -> bool:
        """Whether there were too few steps to say anything."""
        return self.steps < self.needed

    def __str__(self) -> str:
        past = f"{self.steps} step{'' if self.steps == 1 else 's'} ({self.epochs:.1f} epochs)"
        if not self.finite:
            return f"After {past} losses or gradients are not finite: lower the rate, and look at the data."
        if self.early:
            drawn = " and then to draw an epoch by importance" if self.measured else ""
            return f"It is too early to say after {past}: it takes {self.needed}, to see every sample twice{drawn}."
        if math.isnan(self.n_ems):
            return f"After {past} the minibatches differ too much to say what importance sampling would do: go on."
        return f"After {past}: {self._acts()}{self._worth()}{self._caution()}{self._reference()}{self._verdict()}"

    def _acts(self) -> str:
        """What a minibatch is worth."""
        n, size = f"{self.n_ems:.0f}", f"{self.batch_size:.0f}"
        verb = "acts" if self.measured else "at this learning rate would act"
        kind = "95 % interval" if self.measured else "likely"
        limits = f"({kind} {self.n_ems_low:.0f} to {self.n_ems_high:.0f})"
        return f"with importance sampling a minibatch of {size} {verb} like one of {n} {limits}."

    def _worth(self) -> str:
        """What the learning rate made of it."""
        if math.isnan(self.lr_scale) or self.effective_steps == self.steps:
            return ""
        return (
            f" The learning rate was multiplied by {self.lr_scale:.2f} in the latest epoch, and all {self.steps} steps "
            f"were worth {self.effective_steps:.0f}."
        )

    def _caution(self) -> str:
        """What is to be known where logits cannot stand for parameters."""
        if not self.alignment >= ALIGNED or self.n_ems < LITTLE * self.batch_size:  # it may be NaN
            return ""
        return (
            " That is of the gradients of the logits, which nearly all point the same way. Those of the parameters may "
            "not, and then gain far less."
        )

    def _reference(self) -> str:
        """What it is compared with, where that matters."""
        if self.share < LARGE_SHARE:
            return ""
        part = f"a minibatch of a shuffled epoch, with {100 * self.share:.0f} % of the data, is better than these"
        return f" That is beside uniform draws with replacement; {part}."

    def _verdict(self) -> str:
        """What to make of it, and where it goes."""
        change, settled = self._change(), self._settled()
        if self.n_ems_high < LITTLE * self.batch_size:
            return f" That is nothing to gain{': train as you do.' if settled else SO_FAR}{change}"
        if not self.measured and self.n_ems * math.exp(NORMAL * self.error) < LITTLE * self.batch_size:
            far = "" if settled else " so far"
            return f" Plain training shows nothing to gain{far}; a pilot with emais.audit can make sure.{change}"
        if self.n_ems_low <= self.batch_size:
            pilot = "" if self.measured else ", or make a pilot with emais.audit"
            return f" Whether that is a gain cannot be told yet: audit more steps{pilot}.{change}"
        little = f" That is little{'.' if settled else SO_FAR}" if self.n_ems < LITTLE * self.batch_size else ""
        return (
            f"{little}{change} If a minibatch of {self.n_ems:.0f} at the matching learning rate would not help "
            "you, this will not. It promises no accuracy and no saved steps."
        )

    def _settled(self) -> bool:
        """Whether there were enough epochs, and n_ems no longer rises as far as they show."""
        return self.epochs >= ENOUGH_EPOCHS and self.trend_high <= FLAT_TREND * self.n_ems  # False of NaN

    def _change(self) -> str:
        """The trend, in words."""
        if math.isnan(self.trend):
            return ""
        earlier = f"{self.n_ems - self.trend:.0f}"
        if max(abs(self.trend_low), abs(self.trend_high)) <= FLAT_TREND * self.n_ems:
            return f" It was about the same before ({earlier})."
        if self.trend_low <= 0 <= self.trend_high:
            return f" Before it was {earlier}; the change may be noise."
        return f" It is {'still rising' if self.trend > 0 else 'falling'}: before it was {earlier}."

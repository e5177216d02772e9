"""What a setting amounts to over its seeds: parts of curves, the best of several, steps to an error."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

from ..runs.record import Record, RunRecord
from .settings import Setting, better, variant

HALF, FIFTH = 0.5, 0.2  # the parts of a run, up to its end, that N_ems and S(W) are taken over


def tail(setting: Setting, quantity: str, part: float) -> list[float]:
    """The finite values of all seeds over the last part of the run, e.g. its second half."""
    curves = [record.curve(quantity) for record in setting.records]
    return [v for curve in curves for v in curve[-round(part * len(curve)) :] if math.isfinite(v)]


def average(setting: Setting, quantity: str, part: float = HALF) -> float:
    """The mean over all seeds and the points of the last part of the run; NaN if there are none."""
    values = tail(setting, quantity, part)
    return statistics.fmean(values) if values else math.nan


def middle(setting: Setting, quantity: str, part: float = HALF) -> float:
    """The median over the same."""
    values = tail(setting, quantity, part)
    return statistics.median(values) if values else math.nan


def mean_steps(setting: Setting, name: str = "step") -> list[float]:
    """The step of each point of a curve, as a mean over seeds: runs at equal progress end at different steps.

    >>> from ..config import Config
    >>> curves = [{"curves": {"step": [10, 20]}}, {"curves": {"step": [12, 24, 30]}}]
    >>> mean_steps(Setting(Config("digits", "perceptron", "emais"), tuple(curves)))
    [11.0, 22.0]
    """
    return [statistics.fmean(steps) for steps in zip(*(record.curve(name) for record in setting.records), strict=False)]


def last_moving(setting: Setting) -> float:
    """The step, as a mean over seeds, from which the learning rate is 0 before the run is over; NaN if it never is."""
    found = []
    for record in setting.records:
        steps, rates = record.curve("step"), record.curve("lr")
        still = [step for step, rate in zip(steps, rates, strict=True) if not rate]
        if not still:
            return math.nan
        found.append(still[0])
    return statistics.fmean(found) if found else math.nan


def best_of(settings: Sequence[Setting]) -> Setting | None:
    """The setting with the best mean, if all were run."""
    best: Setting | None = None
    for setting in settings if all(s.records for s in settings) else ():
        if math.isfinite(setting.mean) and (best is None or better(setting, setting.mean, best.mean)):
            best = setting
    return best


def by_method(settings: Sequence[Setting]) -> list[list[Setting]]:
    """The settings of each method, with its own options, together."""
    found: dict[str, list[Setting]] = {}
    for setting in settings:
        found.setdefault(variant(setting.config), []).append(setting)
    return list(found.values())


def first_step(record: Record, error: float) -> float:
    """The step at which the test error is first at most `error`; NaN if never."""
    run = RunRecord.of(record)
    return first_crossing(run.curve("test_step"), run.curve("test_error"), error)


def first_crossing(steps: Sequence[float], values: Sequence[float], level: float) -> float:
    """The step at which values are first at most `level`, on a straight line between two points; NaN if never.

    >>> first_crossing([10, 20, 30], [30.0, 10.0, 14.0], 12.0)
    19.0
    """
    before: tuple[float, float] | None = None
    for step, value in zip(steps, values, strict=True):
        if value <= level:
            if before is None:
                return float(step)
            share = (before[1] - level) / (before[1] - value)
            return before[0] + share * (step - before[0])
        before = (step, value) if math.isfinite(value) else None
    return math.nan

"""How many steps a method needs to reach the training loss that another ends with."""

from __future__ import annotations

import math
import statistics

from ..numbers import number
from .quantities import first_crossing, mean_steps
from .settings import Setting

SMOOTHED = 5  # points of a curve, of about 60, whose mean is the loss at the last of them


def training_loss(setting: Setting) -> list[float]:
    """The loss at each point of the curves: the mean over seeds and over the last `SMOOTHED` points.

    A record has the importance-weighted loss, an estimate of the mean over the training set whatever was drawn. NaN
    where a seed has none.

    >>> from ..config import Config
    >>> curves = {"step": [10, 20], "loss": [4.0, 1.0]}
    >>> training_loss(Setting(Config("digits", "perceptron", "emais"), ({"curves": curves},)))
    [4.0, 2.5]
    """
    seeds = [list(map(number, record["curves"]["loss"])) for record in setting.records]
    means = [statistics.fmean(values) for values in zip(*seeds, strict=False)]  # runs may end at different points
    return [statistics.fmean(means[max(0, k - SMOOTHED) : k]) for k in range(1, len(means) + 1)]


def final_loss(setting: Setting) -> float:
    """The training loss that a setting ends with; NaN without runs."""
    return (training_loss(setting) or [math.nan])[-1]


def steps_to_loss(setting: Setting, loss: float) -> float:
    """The first step at which the training loss is at most `loss`; NaN where it never is."""
    curve = training_loss(setting)
    return first_crossing(mean_steps(setting), curve, loss) if curve else math.nan

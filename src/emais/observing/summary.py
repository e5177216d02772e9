"""A summary of many steps: averages first, ratios of them last, with an interval, and one sentence in plain words."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from ..functional.traces import GradientSums
from ..statistics.arrays import Array, Arrays, Number
from .steady import window_means

NORMAL = 1.96  # half the width of a 95 % interval, in standard deviations
TINY = 1e-300  # makes 0/0 a 0
KEPT = ("drawn", "uniform", "norm", "pairs", "factor", "bounded")  # what is averaged


@dataclass(frozen=True)
class Summary:
    """Numbers of about the latest epoch, from sums over its steps; `score_low` to `score_high` is a 95 % interval.

    n_ems: effective minibatch size; score: S(W), NaN where no sampler could be told from a uniform one; lr_scale: mean
    learning-rate factor; bounded: share of the steps whose factor was at its bound. Of the whole run: max_r, the
    largest r; max_share, the largest part of a minibatch's gradient norms that came from one sample; fallback_steps;
    steps and effective_steps; steps_saved, their difference.
    """

    batch_size: float
    n_ems: float
    score: float
    score_low: float
    score_high: float
    lr_scale: float
    bounded: float
    max_r: float
    max_share: float
    fallback_steps: int
    steps: int
    effective_steps: float
    steps_saved: float
    rule: str

    def __str__(self) -> str:
        if not self.steps:
            return "No step was observed yet."
        size = f"The gradient of {self.batch_size:.0f} samples had the variance of {self.n_ems:.0f} uniform ones"
        if not self.n_ems > 0:
            size = "The gradients were too much alike to say what the sampler gained"
        if math.isnan(self.score):
            room = "and a better sampler could gain nothing that these steps would show"
        else:
            room = f"and S(W) was {self.score:.2f} ({self.score_low:.2f} to {self.score_high:.2f}; 0 best, 1 uniform)"
        sentence = f"{size}, {room}."
        if self.rule == "none":
            return f"{sentence} The learning rate was left alone."
        return f"{sentence} {self.steps} steps with the rule {self.rule} were worth {self.effective_steps:.0f}."


class Averages:
    """Moving averages over closed windows of what a summary needs, and of all products of two of them.

    The products give the variance of the averages. Both look back on `length` windows. All is written in place.
    """

    def __init__(self, length: int, arrays: Arrays) -> None:
        self._arrays, self._length = arrays, max(2, length)
        width = len(KEPT)
        # averages, their products, and last: windows so far, samples a window, the largest r, the largest share
        self.saved = torch.zeros(width + width * width + 4, dtype=torch.float64, device=arrays.device)
        values = arrays.array(self.saved)
        self._means, self._products = values[:width], values[width : width + width * width]
        self._whole = values[-4:]

    def look(self, r: Array, norms: Array) -> None:
        """A minibatch, for what is largest."""
        arrays, whole = self._arrays, self._whole
        parts = arrays.double(r) * norms
        largest, total = arrays.number(parts.max()), arrays.number(parts.sum())
        found = arrays.stack((r.max(), largest / (total + TINY)))
        whole[2:] = arrays.where(found > whole[2:], found, whole[2:])  # type: ignore[assignment]  # NaN is not above

    def close(self, window: GradientSums, factor: Number, bound: float) -> None:
        """Take in a window whose step had this factor."""
        arrays, means = self._arrays, window_means(window, self._arrays)
        scale = factor + 0 * means[0]  # where the means are
        new = arrays.stack((*means, scale, 1.0 * (scale >= bound)))
        fine = arrays.finite(new)
        self._whole[0] += fine
        share = fine * arrays.at_least(1 / arrays.at_least(self._whole[0], 1.0), 1 / self._length)
        new = arrays.where(fine, new, 0.0)
        self._means += share * (new - self._means)
        self._products += share * ((new[:, None] * new).reshape(-1) - self._products)
        self._whole[1] += share * (window.num - self._whole[1])

    def summary(self, steps: int, effective: float, fallback: int, rule: str) -> Summary:
        """The numbers; waits for a device."""
        values = self.saved.cpu()
        width = len(KEPT)
        drawn, uniform, norm, pairs, factor, bounded = values[:width].tolist()
        count, num, largest, share = values[-4:].tolist()
        nan = math.nan
        covariance = values[width : width * (width + 1)].view(width, width) - torch.outer(
            values[:width], values[:width]
        )
        covariance /= max(1.0, min(count, 2 * self._length))  # of averages over so many windows
        best = norm * norm
        room, room_error = uniform - best, _error(covariance, [0.0, 1.0, -2 * norm, 0.0, 0.0, 0.0])
        score = low = high = nan
        if count > 1 and room > NORMAL * room_error:
            score = (drawn - best) / room
            slope = [1 / room, -score / room, 2 * norm * (score - 1) / room, 0.0, 0.0, 0.0]
            half = NORMAL * _error(covariance, slope)
            low, high = score - half, score + half
        gap = drawn - pairs
        n_ems = num * (uniform - pairs) / gap if count and gap > 0 else nan
        return Summary(
            num, n_ems, score, low, high, factor if count else 1.0, bounded, largest, share, fallback, steps, effective,
            effective - steps, rule,
        )  # fmt: skip


def _error(covariance: torch.Tensor, slope: list[float]) -> float:
    """Standard error of a function of the averages, from its slopes."""
    s = torch.tensor(slope, dtype=torch.float64, device="cpu")
    return math.sqrt(max(0.0, float(s @ covariance @ s)))

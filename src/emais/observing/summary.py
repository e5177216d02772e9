"""A summary of many steps: averages first, ratios of them last, with an interval, and one sentence in plain words."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from ..statistics.arrays import Array, Arrays, Number

NORMAL = 1.96  # half the width of a 95 % interval, in standard deviations
TINY = 1e-300  # makes 0/0 a 0
MOST = 1000  # windows to look back on


@dataclass(frozen=True)
class Summary:
    """Numbers of the latest epoch, of at most 1,000 steps, from their sums; score_low to score_high: a 95 % interval.

    tr_is, tr_unif, tr_opt: variance traces, corrected for the plug-in mean; n_ems: effective minibatch size; score:
    S(W), NaN where no sampler could be told from a uniform one; lr_scale: mean learning-rate factor; bounded: share of
    the steps whose factor was at its bound; max_r: the largest r; max_share: the largest part of a minibatch's gradient
    norms that came from one sample. Of the whole run: fallback_steps; steps (minibatches trained on) and what
    they are worth, effective_steps; steps_saved, the difference.
    """

    batch_size: float
    tr_is: float
    tr_unif: float
    tr_opt: float
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


class RecentWindows:
    """What a summary needs of the latest windows, a row each, in a ring that is written in place.

    A row has the sums of r^2|g|^2, r|g|^2 and r|g|, |sum r g|^2, the factor of the step, the number of samples, the
    largest r, and the largest r|g|. Nothing is computed from them before somebody asks: a step has other things to do.
    """

    def __init__(self, length: int, arrays: Arrays) -> None:
        self._arrays = arrays
        length = min(max(2, length), MOST)
        self.rows = torch.full((length, 8), math.nan, dtype=torch.float64, device=arrays.device)
        self.count = torch.zeros(1, dtype=torch.int64, device=arrays.device)  # windows so far
        self.largest = torch.zeros(2, dtype=torch.float64, device=arrays.device)  # r and r|g| of the latest window
        # the same memory
        self._rows, self._count, self._largest = map(arrays.array, (self.rows, self.count, self.largest))

    def look(self, r: Array, norms: Array, joins: bool) -> None:
        """A minibatch, for what is largest; joins: others of the same window came before it."""
        found = self._arrays.stack((r.max(), (r * norms).max()))
        if joins:
            found = self._arrays.where(found > self._largest, found, self._largest)
        self._largest[:] = found  # type: ignore[assignment]

    def close(self, sums: Array, factor: Number, num: float) -> None:
        """A window is over: its four sums, and the factor of its step."""
        arrays = self._arrays
        row = arrays.concatenate((sums, arrays.pair(factor, num), self._largest))
        self._rows[self._count % len(self.rows)] = row  # type: ignore[assignment]
        self._count += 1

    def state_dict(self) -> dict[str, Tensor]:
        """All of it, copied to the CPU."""
        return {name: getattr(self, name).cpu().clone() for name in ("rows", "count", "largest")}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Take over what `state_dict` gave."""
        for name, value in state.items():
            getattr(self, name).copy_(value)

    def latest(self, windows: int | None = None) -> Tensor:
        """The rows of the latest windows that are finite, on the CPU."""
        rows, count = self.rows.cpu(), int(self.count)
        kept = min(count, len(rows), windows or count)
        rows = rows[torch.arange(count - kept, count, device="cpu") % len(rows)]
        return rows[rows.isfinite().all(1)]

    def summary(
        self, steps: int, effective: float, fallback: int, rule: str, bound: float, windows: int | None = None
    ) -> Summary:
        """The numbers of the latest windows, by default of all that are kept; waits for a device.

        steps, effective, fallback: of the whole run, in minibatches.
        """
        rows = self.latest(windows)
        if not len(rows):
            nan = math.nan
            none = Summary(nan, nan, nan, nan, nan, nan, nan, nan, 1.0, 0.0, nan, nan, fallback, steps, 0.0, 0.0, rule)
            return replace(none, effective_steps=effective, steps_saved=effective - steps)
        n, factor = rows[:, 5], rows[:, 4]
        means = rows[:, :4] / n.unsqueeze(1)  # of r^2|g|^2, r|g|^2 and r|g|
        means[:, 3] = (rows[:, 3] - rows[:, 0]) / (n * (n - 1)).clamp(min=1)  # of pairs
        drawn, uniform, norm, pairs = means.mean(0).tolist()
        score, low, high = _score(means)
        gap, size = drawn - pairs, float(n.mean())
        return Summary(
            batch_size=size,
            tr_is=gap,
            tr_unif=uniform - pairs,
            tr_opt=norm**2 - pairs,
            n_ems=size * (uniform - pairs) / gap if gap > 0 else math.nan,
            score=score,
            score_low=low,
            score_high=high,
            lr_scale=float(factor.mean()),
            bounded=float((factor >= bound).double().mean()),
            max_r=float(rows[:, 6].max()),
            max_share=float((rows[:, 7] / rows[:, 2].clamp(min=TINY)).max()),
            fallback_steps=fallback,
            steps=steps,
            effective_steps=effective,
            steps_saved=effective - steps,
            rule=rule,
        )


def _score(means: Tensor) -> tuple[float, float, float]:
    """S(W) and its interval, from windows' means of r^2|g|^2, r|g|^2 and r|g|; NaN where there is nothing to gain."""
    drawn, uniform, norm = means[:, :3].mean(0).tolist()
    room, nothing = uniform - norm**2, (math.nan, math.nan, math.nan)
    if len(means) < 2:
        return nothing
    covariance = means[:, :3].T.cov() / len(means)  # of their averages
    if not room > NORMAL * _error(covariance, [0.0, 1.0, -2 * norm]):
        return nothing
    score = (drawn - norm**2) / room
    half = NORMAL * _error(covariance, [1 / room, -score / room, 2 * norm * (score - 1) / room])
    return score, score - half, score + half


def _error(covariance: Tensor, slope: list[float]) -> float:
    """Standard error of a function of the averages, from its slopes."""
    s = torch.tensor(slope, dtype=torch.float64, device="cpu")
    return math.sqrt(max(0.0, float(s @ covariance @ s)))

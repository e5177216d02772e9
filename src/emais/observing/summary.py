"""A summary of many steps: averages first, ratios of them last, with an interval, and one sentence in plain words."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from ..functional.rates import TINY
from ..statistics.arrays import Array, Arrays, Number
from ..statistics.limits import Limit
from .stretch import ALIGNED, NORMAL

ROUNDING = 1e-9  # of a mean of squares: a difference of two of them that is smaller may come from rounding
FEW_WINDOWS = 20  # windows: with fewer of them their scatter says little about the noise
UNEARNED = 1.1  # a mean factor beyond this, or its inverse, is not earned where gradients hardly differ
OFTEN = 0.05  # share of the steps from which on the sentence says that the factor was at its bound
MOST_WINDOWS = 1000  # windows to look back on


@dataclass(frozen=True)
class Summary:
    """Numbers of the latest epoch, of at most 1,000 steps, from their sums; score_low to score_high: a 95 % interval.

    tr_is, tr_unif, tr_opt: variance traces, corrected for the plug-in mean; n_ems: effective minibatch size, NaN where
    the samples' gradients do not clearly differ; score: S(W), NaN where no sampler could be told from a uniform one;
    alignment: |E g|^2/(E|g|)^2, 1 where all gradients point the same way, so that those of the parameters differ more;
    lr_scale: mean learning-rate factor; bounded: share of the steps whose factor was at its bound; max_r: the largest
    r; max_share: the largest part of a minibatch's gradient norms that came from one sample. Of the whole run:
    nonfinite, gradient norms that were not finite; fallback_steps; observed, minibatches that were observed; steps,
    those that were trained on, and what they are worth, effective_steps; steps_saved, the difference in a run of
    equal_progress, which counts effective steps, else 0; warming_up, whether all of them were of the warm-up.
    """

    batch_size: float
    tr_is: float
    tr_unif: float
    tr_opt: float
    n_ems: float
    score: float
    score_low: float
    score_high: float
    alignment: float
    lr_scale: float
    bounded: float
    max_r: float
    max_share: float
    nonfinite: int
    fallback_steps: int
    observed: int
    steps: int
    effective_steps: float
    warming_up: bool
    equal_progress: bool
    steps_saved: float
    rule: str

    def as_dict(self) -> dict[str, Any]:
        """All numbers by name."""
        return asdict(self)

    def __str__(self) -> str:
        """One sentence in plain words."""
        if not self.observed:
            return "No minibatch was observed yet."
        parts = [self._size(), self._room(), self._rate(), self._warm_up()]
        if self.fallback_steps:
            parts.append(f"{self.fallback_steps} of them were drawn uniformly because the sampler was worse")
        if self.nonfinite:
            parts.append(f"{self.nonfinite} gradient norms were not finite")
        sentence = "; ".join(part for part in parts if part)
        return f"{sentence[0].upper()}{sentence[1:]}."

    def _size(self) -> str:
        if math.isnan(self.batch_size):
            return "no gradient of the latest steps was finite" if self.nonfinite else ""
        if math.isnan(self.n_ems):
            return "the gradients of the samples hardly differed, so no sampler could gain anything"
        samples = f"{self.batch_size:.0f} sample{'s' * (round(self.batch_size) != 1)}"
        where = " (in the logits, where nearly all point the same way)" if self.alignment >= ALIGNED else ""
        return f"the gradient of {samples} had the variance of {self.n_ems:.0f} uniform ones{where}"

    def _room(self) -> str:
        if math.isnan(self.n_ems):
            return ""
        if math.isnan(self.score):
            return "these steps show no room for a better sampler"
        interval = f"{self.score_low:.2f} to {self.score_high:.2f}"
        return f"S(W) was {self.score:.2f} ({interval}), where 0 is the best sampler and 1 uniform sampling"

    def _rate(self) -> str:
        if not self.steps:
            seen = f"{self.observed} minibatch{'es were' if self.observed != 1 else ' was'} observed"
            return f"{seen}, and the attached optimizer has made no step yet: attach the one that trains"
        made = f"{self.steps} minibatch{'es' * (self.steps != 1)}"
        if self.rule == "none" and self.effective_steps == self.steps:
            return f"the learning rate of {made} was left alone"
        rule = "no rule at present" if self.rule == "none" else f"rule {self.rule}"  # a loaded run is not attached yet
        mean = f"{rule}, latest mean lr_scale {self.lr_scale:.2f}"
        if self.bounded >= OFTEN:
            mean += f", at its bound in {100 * self.bounded:.0f} % of the steps"
        worth = f"{self.effective_steps:.0f} ({mean})"
        unearned = math.isnan(self.n_ems) and not 1 / UNEARNED <= self.lr_scale <= UNEARNED
        if unearned and not self.rule.startswith("steady"):
            return f"{made} counted as {worth}, which is noise where gradients hardly differ: use rule steady"
        late = ", which lags behind: the latest steps are worth 1 each" if unearned else ""
        was = "was" if self.steps == 1 else "were"
        saved = f", so steps_saved is {round(self.steps_saved)}" if self.equal_progress else ""
        return f"{made} {was} worth {worth}{late}{saved}"

    def _warm_up(self) -> str:
        if not (self.warming_up and self.steps):
            return ""
        seen = f"all {self.observed} minibatches were" if self.observed != 1 else "the only minibatch was"
        return f"{seen} of the warm-up, which draws as plain training does"


@dataclass(frozen=True)
class RunCounts:
    """What a summary says of the whole run: see `Summary`."""

    nonfinite: int
    fallback_steps: int
    observed: int
    steps: int
    effective_steps: float
    warming_up: bool = False
    equal_progress: bool = False


class RecentWindows:
    """What a summary needs of the latest windows, a row each, in a ring that is written in place.

    A row has the sums of r^2|g|^2, r|g|^2 and r|g|, |sum r g|^2, the factor of the step, the number of samples, the
    largest r, and the largest r|g|. Nothing is computed from them before somebody asks: a step has other things to do.
    """

    def __init__(self, length: int, arrays: Arrays) -> None:
        self._arrays = arrays
        length = min(max(2, length), MOST_WINDOWS)
        self.rows = torch.full((length, 8), math.nan, dtype=torch.float64, device=arrays.device)
        self.count = torch.zeros(1, dtype=torch.int64, device=arrays.device)  # windows so far
        self.largest = torch.zeros(2, dtype=torch.float64, device=arrays.device)  # r and r|g| of the latest window
        # the same memory
        self._rows, self._count, self._largest = map(arrays.array, (self.rows, self.count, self.largest))

    def look(self, r: Array, norms: Array, joins: bool) -> None:
        """A minibatch, for what is largest; joins: others of the same window came before it."""
        found = self._arrays.largest((r, r * norms))
        if joins:
            found = self._arrays.where(found > self._largest, found, self._largest)
        self._largest[:] = found  # type: ignore[assignment]

    def close(self, sums: Array, factor: Number, num: float) -> None:
        """A window is over: its four sums, and the factor of its step."""
        arrays = self._arrays
        row = arrays.concatenate((sums, arrays.one(factor), arrays.one(num), self._largest))
        self._rows[self._count % len(self.rows)] = row  # type: ignore[assignment]
        self._count += 1

    def state_dict(self) -> dict[str, Tensor]:
        """All of it, copied to the CPU."""
        return {name: getattr(self, name).cpu().clone() for name in ("rows", "count", "largest")}

    def check_state(self, state: dict[str, Tensor], added: int) -> None:
        """Refuse values that no run of so many minibatches can have saved. Those that are not finite may be there."""
        Limit(0, added).check(state["count"], "monitor.recent.count")
        positive = Limit(0.0, finite=False)
        positive.check(state["largest"], "monitor.recent.largest")
        rows = state["rows"]
        positive.check(rows[:, [0, 1, 2, 4, 5, 6, 7]], "monitor.recent.rows")  # the other one estimates a square

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

    def summary(self, run: RunCounts, rule: str, bound: float, windows: int | None = None) -> Summary:
        """The numbers of the latest windows, by default of all that are kept; waits for a device."""
        rows = self.latest(windows)
        n, factor, means = rows[:, 5], rows[:, 4], unbiased_means(rows)
        drawn, uniform, best, pairs = means.mean(0).tolist()  # NaN without rows
        score, low, high = _score(means)
        size = float(n.mean())
        differ = _clearly(means, uniform - pairs, [0.0, 1.0, 0.0, -1.0], at_least=FEW_WINDOWS)
        return Summary(
            batch_size=size,
            tr_is=drawn - pairs,
            tr_unif=uniform - pairs,
            tr_opt=best - pairs,
            n_ems=size * (uniform - pairs) / (drawn - pairs) if differ and drawn > pairs else math.nan,
            score=score,
            score_low=low,
            score_high=high,
            alignment=pairs / best if best > 0 else math.nan,
            lr_scale=float(factor.mean()) if len(rows) else 1.0,
            bounded=float((factor >= bound).double().mean()) if len(rows) else 0.0,
            max_r=float(rows[:, 6].max()) if len(rows) else math.nan,
            max_share=float((rows[:, 7] / rows[:, 2].clamp(min=TINY)).max()) if len(rows) else math.nan,
            **asdict(run),
            steps_saved=run.effective_steps - run.steps if run.equal_progress else 0.0,
            rule=rule,
        )


def unbiased_means(rows: Tensor) -> Tensor:
    """Of each window, unbiased for draws that are independent: E r^2|g|^2, E|g|^2, (E|g|)^2 and |E g|^2, (windows, 4).

    The last two are squares of means and come from pairs of different samples of one window. Windows are only averaged
    after that, so gradients that grow or shrink over the windows are not taken for samples that differ. With one
    sample a window there are no pairs: the third is NaN then, and the fourth 0, as if gradients were orthogonal.
    """
    n, (drawn, uniform, norm, square) = rows[:, 5], rows[:, :4].T
    pairs = n * (n - 1)
    best, mean = (norm.square() - drawn) / pairs, (square - drawn) / pairs.clamp(min=1)
    return torch.stack((drawn / n, uniform / n, best.where(n > 1, math.nan), mean), 1)


def _score(means: Tensor) -> tuple[float, float, float]:
    """S(W) and its interval; NaN where there is nothing to gain."""
    drawn, uniform, best, _ = means.mean(0).tolist()
    room, nothing = uniform - best, (math.nan, math.nan, math.nan)
    if len(means) < 2 or not _clearly(means, room, [0.0, 1.0, -1.0, 0.0]):
        return nothing
    score = (drawn - best) / room
    half = NORMAL * _error(means, [1 / room, -score / room, (score - 1) / room, 0.0])
    return score, score - half, score + half


def _clearly(means: Tensor, difference: float, slope: list[float], at_least: int = 2) -> bool:
    """Whether a difference of two averages is above its noise, with so many windows, and above what rounding makes."""
    noise = NORMAL * _error(means, slope) if len(means) >= at_least else 0.0
    return difference > max(noise, ROUNDING * float(means[:, 1].mean()))


def _error(means: Tensor, slope: list[float]) -> float:
    """Standard error of a function of the averages, from its slopes."""
    values = sum(s * means[:, k] for k, s in enumerate(slope) if s)
    assert isinstance(values, Tensor)
    return math.sqrt(float(values.var()) / len(values))

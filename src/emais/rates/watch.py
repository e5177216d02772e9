"""A warning where a run ends by its effective steps and its learning rate follows the ordinary ones."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Sequence

from torch.optim import Optimizer

from .effective_steps import Progress

NEVER = (
    "the run ends after {:.0f} steps that are worth {:.0f}, and its EffectiveSchedule was never stepped: call "
    "schedule.step() after each optimizer.step()"
)
SAVED = 0.05  # share of the steps that must have been saved: below it, a plain schedule ends close to its end
CUT_OFF = (
    "the run ends after {:.0f} steps that are worth {:.0f}, but the learning rate followed the steps: its schedule is "
    "cut off at {:.0f} %. {}"
)
FOLLOW = (
    "Make schedule = emais.EffectiveSchedule(scheduler, imp), with per_epoch=True if the scheduler counts epochs, and "
    "call schedule.step() after each optimizer.step() in place of scheduler.step()"
)
FIXED = (
    "the run ends after {:.0f} steps that are worth {:.0f}, a scheduler was made for its optimizer, and the learning "
    "rate never moved. If it was to fall, make schedule = emais.EffectiveSchedule(scheduler, imp), with "
    "per_epoch=True if the scheduler counts epochs, and call schedule.step() after each optimizer.step(). A constant "
    "rate is fine"
)


class ScheduleWatch:
    """Looks at the rates once in every tenth of the run, and says at its end that they did not follow.

    Only a rate that goes on moving is spoken of: one that is constant, warms up, or falls to a part now and then,
    as ReduceLROnPlateau's does, may end anywhere. And one that never moved, though it has a scheduler: that may be
    stepped after passes, of which there was one. Nothing is said if somebody asked what the steps are worth
    (`Progress.asked`): a schedule of the user's own may follow that.
    """

    def __init__(self, progress: Progress) -> None:
        self._progress, self._told = progress, False
        self.way_out = FOLLOW  # a framework that steps the schedulers itself knows another
        self._seen: dict[int, list[float]] = {}  # rates by the tenth of the run

    def look(self, optimizers: Sequence[Optimizer], steps: int) -> None:
        """At the rates in place after so many steps; waits for those that are on a device."""
        goal = self._progress.goal
        if goal is None or self._progress.asked or self._told or not optimizers:
            return
        effective = self._progress.effective()
        tenth = min(10, int(10 * effective / goal))
        if tenth not in self._seen:
            self._seen[tenth] = [float(group["lr"]) for optimizer in optimizers for group in optimizer.param_groups]
        if effective >= goal:
            self._told = True
            if len(self._seen) > 1:  # not one that was resumed at its end
                self._say(optimizers, steps, effective)

    def _say(self, optimizers: Sequence[Optimizer], steps: int, effective: float) -> None:
        saved = effective > (1 + SAVED) * steps
        if self._progress.followed:
            warnings.warn(NEVER.format(steps, effective), stacklevel=5)
        elif saved and self._moved_on():
            warnings.warn(CUT_OFF.format(steps, effective, 100 * steps / effective, self.way_out), stacklevel=5)
        elif saved and 0 in self._seen and self._never_moved() and any(map(has_scheduler, optimizers)):
            warnings.warn(FIXED.format(steps, effective), stacklevel=5)

    def _never_moved(self) -> bool:
        return len({tuple(rates) for rates in self._seen.values()}) == 1

    def _moved_on(self) -> bool:
        """Whether a rate had three values in all, and went on moving in the second half."""
        rates = list(zip(*(self._seen[k] for k in sorted(self._seen)), strict=False))
        return any(len(set(rate)) > 2 and _drifts(rate[-5:]) for rate in rates)


def has_scheduler(optimizer: Optimizer) -> bool:
    """Whether a torch scheduler was made for it: they note the initial rate in the parameter groups."""
    return any("initial_lr" in group for group in optimizer.param_groups)


def _drifts(rates: Sequence[float]) -> bool:
    """Whether rates change each time; or at least twice, by less than to a third: a scheduler of epochs.

    >>> _drifts([0.1, 0.09, 0.09, 0.07]), _drifts([0.1, 0.1]), _drifts([0.1, 0.1, 0.01]), _drifts([0.1, 0.03, 0.01])
    (True, False, False, True)
    """
    pairs = list(itertools.pairwise(rates))
    mild = len(set(rates)) > 2 and all(a / 3 < b < 3 * a for a, b in pairs)
    return mild or all(a != b for a, b in pairs)

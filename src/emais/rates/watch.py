"""A warning where a run ends by its effective steps and its learning rate follows the ordinary ones."""

from __future__ import annotations

import warnings
from collections.abc import Iterable

from torch.optim import Optimizer

from .effective_steps import Progress

SAVED = 0.05  # share of the steps that must have been saved: below it, a plain schedule ends close to its end
PLAIN = (
    "the run ends after {:.0f} steps that are worth {:.0f}, but the learning rate followed the steps: its schedule is "
    "cut off at {:.0f} %. Make schedule = emais.EffectiveSchedule(scheduler, imp), and call schedule.step() in place "
    "of scheduler.step()"
)


class ScheduleWatch:
    """Looks at the rates once in every tenth of the run, and says at its end that they did not follow.

    Only a rate that has moved in each of the last tenths is spoken of: one that is constant, warms up, or falls now and
    then, as ReduceLROnPlateau's does, may end anywhere. Nor is anything said if somebody asked what the steps are
    worth (`Progress.asked`): a schedule of the user's own may follow that.
    """

    def __init__(self, progress: Progress) -> None:
        self._progress, self._told = progress, False
        self._seen: dict[int, list[float]] = {}  # rates by the tenth of the run

    def look(self, optimizers: Iterable[Optimizer], steps: int) -> None:
        """At the rates in place after so many steps; waits for those that are on a device."""
        goal = self._progress.goal
        if goal is None or self._progress.asked or self._told:
            return
        effective = self._progress.effective()
        tenth = min(10, int(10 * effective / goal))
        if tenth not in self._seen:
            self._seen[tenth] = [float(group["lr"]) for optimizer in optimizers for group in optimizer.param_groups]
        if effective >= goal:
            self._told = True
            if self._moved_on() and effective > (1 + SAVED) * steps:
                warnings.warn(PLAIN.format(steps, effective, 100 * steps / effective), stacklevel=4)

    def _moved_on(self) -> bool:
        """Whether a rate has another value in each of the last five tenths."""
        last = [self._seen[k] for k in range(6, 11) if k in self._seen]
        return len(last) == 5 and any(len(set(rates)) == 5 for rates in zip(*last, strict=False))

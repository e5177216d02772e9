"""In place of a scheduler that a framework steps: it moves on by what a step is worth."""

from __future__ import annotations

from typing import Any

from .schedule import EffectiveSchedule


class Followed:
    """To all others it is the scheduler itself, also in a checkpoint: that can be loaded into a plain scheduler.

    Where the rate is between two of its steps is in the state of `schedule`.
    """

    def __init__(self, scheduler: Any, schedule: EffectiveSchedule) -> None:
        self.scheduler, self.schedule = scheduler, schedule

    def step(self, *_: Any, **__: Any) -> None:
        """The framework calls it after each optimizer step."""
        self.schedule.step()

    def get_last_lr(self) -> list[float]:
        """The rates in place now, which lie between two of the scheduler's."""
        return self.schedule.get_last_lr()

    def __getattr__(self, name: str) -> Any:
        if name in ("scheduler", "schedule"):  # of a copy that is not filled yet
            raise AttributeError(name)
        return getattr(self.scheduler, name)

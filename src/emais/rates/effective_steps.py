"""Effective steps: how many ordinary steps a run's steps are worth, and where a run of equal progress ends."""

from __future__ import annotations

import math

import torch

from ..errors import EmaisError, positive_float
from ..statistics.arrays import Arrays, Number

NO_END = (
    "effective_steps=True needs an end to count to: give num_steps=, the steps that you would make without importance "
    "sampling; or, for passes of one epoch each, give their number as effective_steps= and leave num_steps out"
)
TWO_ENDS = "effective_steps={} and num_steps={} are two ends: pass effective_steps=True to end at num_steps"


class Progress:
    """The sum of the factors of all steps so far; `goal`: where the run ends, if it is to end by that sum.

    A step with the factor f is worth f ordinary steps (docs/math.md). With accumulated gradients each minibatch counts,
    as it does in num_steps: a step of k minibatches is worth k f. The sum is written in place, so that CUDA graphs
    carry it.
    """

    def __init__(self, effective_steps: bool | float, num_steps: int | None, arrays: Arrays) -> None:
        self.goal: float | None = None
        if effective_steps is True:
            if num_steps is None:
                raise EmaisError(NO_END)
            self.goal = float(num_steps)
        elif effective_steps is not False:
            self.goal = positive_float("effective_steps", effective_steps)
            if num_steps is not None:
                raise EmaisError(TWO_ENDS.format(effective_steps, num_steps))
        self.asked = False  # whether a schedule, or somebody, has asked for effective steps
        self.saved = torch.zeros(1, dtype=torch.float64, device=arrays.device)
        self._effective = arrays.array(self.saved)  # the same memory

    def add(self, factor: Number) -> None:
        """A step was made."""
        self._effective += factor

    def effective(self) -> float:
        """Effective steps so far; waits for a device."""
        return float(self._effective[0])

    def ask(self) -> float:
        """The same, for somebody who may let a schedule of their own follow it."""
        self.asked = True
        return self.effective()

    def finished(self) -> bool:
        """Whether the goal is reached."""
        return self.goal is not None and self.effective() >= self.goal

    def at_most(self, steps: int) -> int:
        """So many steps, or fewer where the goal is nearer: a step is worth one at least."""
        return steps if self.goal is None else min(steps, math.ceil(self.goal - self.effective()))

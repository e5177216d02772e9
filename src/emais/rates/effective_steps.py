"""Effective steps: how many ordinary steps a run's steps are worth, and where a run of equal progress ends."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.optim import Optimizer

from ..errors import EmaisError, positive_float
from ..statistics.arrays import Arrays, Number

NO_END = (
    "effective_steps=True needs an end to count to: give num_steps=, the steps that you would make without importance "
    "sampling; or, for a loop over epochs, effective_steps=epochs * len(loader), a number of steps, without num_steps"
)
FEW_STEPS = (
    "effective_steps={:g} is a number of steps, and one epoch has {}: for a loop over epochs pass "
    "effective_steps=epochs * {}"
)
TOO_LOW = (
    "max_scale={:g} makes every step worth less than an ordinary one, so a run with effective_steps could only take "
    "longer: give a max_scale of at least 1, or leave it out"
)
TWO_ENDS = "effective_steps={} and num_steps={} are two ends: pass effective_steps=True to end at num_steps"


def minibatches_of(steps: int, epoch: int, accumulated: int) -> int:
    """Of so many optimizer steps: the last one of an epoch may accumulate fewer minibatches than the others.

    >>> minibatches_of(5, 10, 3)  # steps of 3, 3, 3 and 1 minibatches make an epoch
    13
    """
    epochs, left = divmod(steps, max(1, -(-epoch // accumulated)))
    return epochs * epoch + min(left * accumulated, epoch)


@dataclass(eq=False)
class Follower:
    """What the steps since a schedule last moved are worth: it takes that and sets it to 0.

    by_minibatch: it counts all minibatches. Else it counts the steps of its optimizer, how many they were in `steps`;
    of one that is not attached, those that close a window.
    """

    optimizer: Optimizer
    by_minibatch: bool
    worth: Tensor
    steps: int = 0

    def add(self, worth: Number) -> None:
        """A step."""
        self.worth.add_(worth)
        self.steps += 1

    def clear(self) -> None:
        """From now on."""
        self.worth.zero_()
        self.steps = 0


class Progress:
    """The sum of the factors of all steps so far; `goal`: where the run ends, if it is to end by that sum.

    A step with the factor f is worth f ordinary steps (docs/math.md). With accumulated gradients each minibatch counts,
    as it does in num_steps: a step of k minibatches is worth k f. Schedules
    follow the same steps: each has a `Follower`. All sums are written in place, so that CUDA graphs carry them.
    """

    def __init__(
        self,
        effective_steps: bool | float,
        num_steps: int | None,
        arrays: Arrays,
        epoch: int = 1,
        max_scale: float | None = None,
    ) -> None:
        self.goal: float | None = None
        # steps that a number should have at least; a framework that has counted its batches sets it to 0
        self.fewest = 0 if effective_steps is True else epoch
        if effective_steps is True:
            if num_steps is None:
                raise EmaisError(NO_END)
            self.goal = float(num_steps)
        elif effective_steps is not False:
            self.goal = positive_float("effective_steps", effective_steps)
            if num_steps is not None:
                raise EmaisError(TWO_ENDS.format(effective_steps, num_steps))
        if self.goal is not None and max_scale is not None and max_scale < 1:
            raise EmaisError(TOO_LOW.format(max_scale))
        self.asked = False  # whether a schedule was stepped, or somebody has asked for effective steps
        self.saved = torch.zeros(1, dtype=torch.float64, device=arrays.device)
        self._effective = arrays.array(self.saved)  # the same memory
        self._followers: list[Follower] = []

    def add(self, factor: Number, minibatches: int = 1, attached: Sequence[Optimizer | None] = ()) -> None:
        """A step was made, of so many minibatches; attached: optimizers, for each of which `add_step` tells its own."""
        self._effective += factor * minibatches if minibatches > 1 else factor
        for follower in self._followers:
            if follower.by_minibatch:
                follower.add(factor * minibatches)
            elif not any(optimizer is follower.optimizer for optimizer in attached):
                follower.add(factor)

    def add_step(self, optimizer: Optimizer, factor: Number) -> None:
        """An attached optimizer has made a step, whichever of them closed the window."""
        for follower in self._followers:
            if follower.optimizer is optimizer and not follower.by_minibatch:
                follower.add(factor)

    def tell_few(self) -> None:
        """Say that a goal is less than an epoch: a number of epochs was given where steps are counted."""
        if self.goal is not None and self.goal < self.fewest:
            warnings.warn(FEW_STEPS.format(self.goal, self.fewest, self.fewest), stacklevel=4)

    def follower(self, optimizer: Optimizer, by_minibatch: bool) -> Follower:
        """For a schedule: what steps from now on are worth, in minibatches, or in steps of the optimizer."""
        worth = torch.zeros((), dtype=torch.float64, device=self.saved.device)
        self._followers.append(Follower(optimizer, by_minibatch, worth))
        return self._followers[-1]

    @property
    def followed(self) -> bool:
        """Whether a schedule was made that is to follow."""
        return bool(self._followers)

    def counts(self) -> bool:
        """Whether the run, or a schedule of it, goes by effective steps."""
        return self.goal is not None or self.followed

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

    def at_most(self, steps: int, full: bool = True) -> int:
        """So many steps, or fewer where the goal is nearer; full: every step is worth one at least."""
        if self.goal is None or not (full or self.finished()):
            return steps
        return min(steps, math.ceil(self.goal - self.effective()))

"""A learning-rate schedule that follows effective steps: after a step worth 1.3 ordinary ones it moves on by 1.3."""

from __future__ import annotations

import copy
import math
import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.optim import Optimizer
from torch.optim.lr_scheduler import CosineAnnealingLR, LRScheduler, OneCycleLR

from ..errors import EmaisError, number_above, positive_float
from ..statistics.limits import AS_SAVED
from .attached import innermost
from .group_rates import carries_on, fill, in_place, rate_where, read, times, write_rates
from .saved_schedule import check_schedule_state
from .schedulers import check_scheduler, check_unit, own_end, steps_left, steps_made

if TYPE_CHECKING:
    from ..engine import Engine


SELDOM = (
    "{} optimizer steps were made since the last step of the schedule, and the rate stood still in between: call "
    "schedule.step() after each optimizer.step(), and make it with per_epoch=True if the scheduler counts epochs"
)
ELSEWHERE = (
    "the scheduler was stepped outside of its EffectiveSchedule, which steps it itself: leave scheduler.step() out, "
    "and call schedule.step() after each optimizer.step() in its place"
)
GROUPS = (
    "the optimizer had {} parameter groups when this EffectiveSchedule was made, and has {} now: after add_param_group "
    "make a new scheduler and a new EffectiveSchedule"
)
# what a state of 0.1.0 has not got
OLDER: dict[str, Any] = {"pending": 0.0, "change": None, "written": None, "rates": None}
NEAR = 0.9  # of the way to an end
UNITS = (
    "The scheduler counts steps of the optimizer, {each}: make it for {right:.0f} of them, or for epochs with "
    "{way}. After a resume, load the states of the engine and of the schedule"
)
COUNTS_EPOCHS = (
    "The scheduler counts epochs: make it for {right:.0f} of them. After a resume, load the states of the engine and "
    "of the schedule"
)
IN_STEPS = (
    "effective_steps counts minibatches, and {k} are accumulated for a step: if {goal:.0f} was meant in steps of the "
    "optimizer, give {whole:.0f}. Else: "
)
EARLY = "the schedule came to its end at {here:.0f} effective steps, and the run goes on to {goal:.0f}. "
LATE = "the run came to its end, and the schedule was at {t:.0f} of its {end:.0f} steps. "


class EffectiveSchedule:
    """RAIS's effective iterations: lr = schedule(t_eff), and t_eff grows by the learning-rate factor of each step.

    schedule: any torch scheduler that is stepped without an argument (OneCycleLR and CyclicLR with
    cycle_momentum=False); between two of its steps the rate is interpolated. Or a function of t, which gives what to
    multiply the optimizer's rate by; then pass `optimizer`. A function that takes tensors makes no host sync. t_eff
    stops at `num_steps` (default: the engine's, or the scheduler's own end: beyond it a cosine would rise again).
    Where something else changes the rate, as a ReduceLROnPlateau, a second schedule or a warm-up by hand, it is as with
    the scheduler alone: most go on from the rate that is there, and some compute theirs anew in each step (LambdaLR,
    OneCycleLR, CyclicLR, warm restarts). A function of t is multiplied by what others have multiplied the rate by.

    A scheduler counts steps of the optimizer, as without importance sampling, while the engine's num_steps counts
    minibatches: of T minibatches with k accumulated a step, make it for T/k. per_epoch: it counts epochs, of ceil(M/N)
    minibatches each, or of as many as you give. One that was made in another unit is refused, or told at its end.

    Call `step()` after each `optimizer.step()`, in place of the scheduler's own. It moves on by what the steps since
    were worth: by nothing, if GradScaler has skipped the step (a fused optimizer is called all the same, and its step
    counts). The factor itself is put on by `engine.attach`.

    >>> from torch import nn
    >>> import emais
    >>> optimizer = torch.optim.SGD(nn.Linear(1, 1).parameters(), lr=0.1)
    >>> imp = emais.create("rais", 1000, num_steps=500)
    >>> _ = imp.attach(optimizer)
    >>> schedule = EffectiveSchedule(torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 500), imp)
    """

    in_epochs = "per_epoch=True"  # how a user says that a scheduler counts epochs

    def __init__(
        self,
        schedule: LRScheduler | Callable[[Any], Any],
        engine: Engine,
        *,
        optimizer: Optimizer | None = None,
        num_steps: float | None = None,
        per_epoch: bool | float = False,
    ) -> None:
        self._engine, self._function = engine, schedule
        self._scheduler: Any = schedule if hasattr(schedule, "step") else None
        if self._scheduler is not None:
            optimizer = check_scheduler(self._scheduler).optimizer
        self._run = engine.progress.goal if engine.num_steps is None else engine.num_steps  # in minibatches
        self._given = self._run if num_steps is None else number_above("num_steps", num_steps, 0)
        self._own_end = num_steps is None  # whether a cosine's own end counts, too, if it comes first
        self._told, self._early, self._late = False, False, False
        epoch = engine.epoch_length if isinstance(per_epoch, bool) else positive_float("per_epoch", per_epoch)
        self._unit = epoch if per_epoch else 1
        if self._scheduler is not None and self._run is not None and self._own_end and not per_epoch:
            check_unit(self._scheduler, self._run, epoch, self.in_epochs)
        if optimizer is None or not (self._scheduler or callable(schedule)):
            raise EmaisError("a schedule that is a function of t needs optimizer=, whose rate it multiplies")
        self.optimizer: Optimizer = optimizer
        self._follower = engine.progress.follower(innermost(optimizer), by_minibatch=bool(per_epoch))
        self._t = torch.zeros((), dtype=torch.float64, device=engine.device)
        # rates at two steps of the scheduler: `_place`, and the next, where it stands once it has been stepped
        self._place = 0
        self._low = read(self.optimizer)
        self._high: list[Any] | None = None
        self._count = steps_made(self._scheduler)
        self._end = self._ends()
        self.num_steps = self._limit()
        self._written = read(
            self.optimizer
        )  # the rates as they were left here: whatever differs later, others have changed
        self._change = [torch.ones_like(lr) if isinstance(lr, Tensor) else 1.0 for lr in self._low]
        self._carries: bool | None = None  # whether the scheduler goes on from the rate that is there; None: not known
        if self._scheduler is None:
            self._place_rates()

    def _limit(self) -> float:
        """Where t_eff stops. OneCycleLR has no rate beyond its end, whatever was given."""
        cosine = self._own_end and type(self._scheduler) is CosineAnnealingLR
        if self._given is not None and not isinstance(self._scheduler, OneCycleLR) and not cosine:
            return self._given
        taken = self._place + (self._high is not None)  # steps that the scheduler has made here
        return min((taken + steps_left(self._scheduler)) * self._unit, self._given or math.inf)

    def _ends(self) -> float:
        """The scheduler's own end, in its steps, from where it stood when it began to follow."""
        if self._scheduler is None:
            return math.inf
        taken = self._place + (self._high is not None)
        return own_end(self._scheduler) - (steps_made(self._scheduler) or 0) + taken

    def step(self) -> None:
        """Move on by what the optimizer's steps since the last call are worth."""
        if steps_made(self._scheduler) != self._count:
            raise EmaisError(ELSEWHERE)
        if len(self.optimizer.param_groups) != len(self._low):
            raise EmaisError(GROUPS.format(len(self._low), len(self.optimizer.param_groups)))
        self._engine.progress.asked = True
        if self._follower.steps > 1 and self._unit == 1 and self._engine.attached.scalers and not self._told:
            self._told = True
            warnings.warn(SELDOM.format(self._follower.steps), stacklevel=2)
        self._take_worth()
        before, place = self._keep_changes(), self._place
        self._place_rates()
        if self._place == place or self._carries is not False:
            self._keep_stopped(*before)
        if self._scheduler is not None and self._run is not None:
            self._look_at_ends(self._run)

    def _take_worth(self) -> None:
        with self._engine.attached.settled:
            self._t.add_(self._follower.worth).clamp_(max=self.num_steps)
            self._follower.clear()

    def _keep_changes(self) -> tuple[list[Any], list[Any]]:
        """What others have multiplied the rates by since they were written here stays, until a scheduler drops it.

        Gives whether others have set a rate to 0, and the rates as they were written.
        """
        pairs = list(zip(in_place(self.optimizer), self._written, strict=True))
        fill(self._change, [change * times(*pair) for change, pair in zip(self._change, pairs, strict=True)])
        copies = [was.clone() if isinstance(was, Tensor) else was for was in self._written]
        return [(now == 0) & (was != 0) for now, was in pairs], copies

    def _keep_stopped(self, stopped: list[Any], was: list[Any]) -> None:
        """A rate that others have set to 0 stays there until they set another one."""
        rates = zip(in_place(self.optimizer), stopped, strict=True)
        write_rates(self.optimizer, [rate_where(stop, 0.0, lr) for lr, stop in rates])
        # the schedule's own rate may be 0 for a while: the one before tells that others have stopped it
        own = zip(stopped, was, self._written, strict=True)
        fill(self._written, [rate_where((written == 0) & stop, before, written) for stop, before, written in own])

    def _place_rates(self) -> None:
        rates = self._rates()
        write_rates(self.optimizer, [change * rate for change, rate in zip(self._change, rates, strict=True)])
        fill(self._written, in_place(self.optimizer))

    def _look_at_ends(self, run: float) -> None:
        """Say, once, that schedule and run end far apart: the scheduler counts in another unit."""
        t, here, end = float(self.t_eff), self._engine.progress.effective(), self._end * self._unit
        if not self._early and t >= end and here < NEAR * run:
            self._early = True
            self._warn(EARLY, t, here, run, end)
        if not self._late and self._engine.progress.finished() and end < math.inf and t < NEAR * end:
            self._late = True
            self._warn(LATE, t, here, run, end)

    def _warn(self, message: str, t: float, here: float, goal: float, end: float) -> None:
        k = max(1, round(here / t)) if t and self._unit == 1 else 1
        each = f"of {k} minibatches each" if k > 1 else "and num_steps the minibatches"
        right, way = goal / k / self._unit, self.in_epochs
        accumulated = self._engine.attached.minibatches
        planned = end * accumulated if self._unit == 1 else end  # minibatches that the scheduler was made for
        if accumulated > 1 and NEAR * planned <= accumulated * goal <= planned / NEAR:
            message += IN_STEPS.format(k=accumulated, goal=goal, whole=accumulated * goal)
        message += UNITS if self._unit == 1 else COUNTS_EPOCHS
        told = message.format(
            t=t / self._unit, here=here, goal=goal, end=end / self._unit, right=right, each=each, way=way
        )
        warnings.warn(told, stacklevel=4)

    @property
    def t_eff(self) -> Any:
        """Effective steps so far: a float, or a 0-d tensor where the statistics live on a GPU."""
        return self._engine.arrays.number(self._t)

    def _rates(self) -> list[Any]:
        if self._scheduler is None:
            multiplier = self._function(self.t_eff / self._unit)  # type: ignore[operator]
            return [lr * multiplier for lr in self._low]
        t = float(self.t_eff) / self._unit  # sync where the statistics live on a GPU: one float
        if self._high is None:
            if t == 0:
                return self._low
            self._high = self._advance(self._low)
        while self._place + 1 <= t and self._place + 1 < self.num_steps / self._unit:
            self._low, self._place = self._high, self._place + 1
            if self._carries is None:
                self._carries = carries_on(self._scheduler, self.optimizer)
            if not self._carries:
                fill(self._change, [1.0] * len(self._change))
            self._high = self._advance(self._low)
        part = t - self._place
        return [(1 - part) * low + part * high for low, high in zip(self._low, self._high, strict=True)]

    def _advance(self, rates: list[Any]) -> list[Any]:
        """The scheduler's next rates after these, from which it goes on."""
        assert self._scheduler is not None
        write_rates(self.optimizer, rates)
        self._scheduler.step()
        self._count = steps_made(self._scheduler)
        return read(self.optimizer)

    def get_last_lr(self) -> list[float]:
        """The rates in place now."""
        return [float(lr) for lr in in_place(self.optimizer)]

    def state_dict(self) -> dict[str, Any]:
        """For an exact resume, the scheduler's own state included."""
        inner = None if self._scheduler is None else self._scheduler.state_dict()
        named = {"low": self._low, "high": self._high, "change": self._change}
        named |= {"written": self._written, "rates": in_place(self.optimizer)}
        rates = {name: None if values is None else [float(x) for x in values] for name, values in named.items()}
        with self._engine.attached.settled:
            pending = self._follower.worth + self._engine.attached.unclosed_worth(self._follower)
            moved = {"t_eff": float(self.t_eff), "pending": float(pending)}
        return moved | {"place": self._place, "scheduler": inner} | rates

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take over what `state_dict` gave, of a schedule of the same kind. A state that is refused changes nothing."""
        before = self.state_dict()
        state = OLDER | state if isinstance(state, dict) else state
        check_schedule_state(state, before, len(self._low), self._unit)
        self._take_over(state, before)
        self.num_steps = max(self._limit(), state["t_eff"])
        self._place_rates()
        if state["written"] is not None:
            fill(self._written, state["written"])
            write_rates(self.optimizer, state["rates"])

    def _take_over(self, state: dict[str, Any], before: dict[str, Any]) -> None:
        if self._scheduler is not None:
            try:
                self._scheduler.load_state_dict(copy.deepcopy(state["scheduler"]))
            except Exception as error:
                self._scheduler.load_state_dict(before["scheduler"])
                name = type(self._scheduler).__name__
                raise EmaisError(f"{name} cannot take this state over ({error!r}): {AS_SAVED}") from error
            self._count = steps_made(self._scheduler)
        self._t.fill_(float(state["t_eff"]))
        self._follower.clear()
        self._follower.worth.fill_(float(state["pending"]))
        self._place = state["place"]
        fill(self._low, state["low"])
        fill(self._change, state["change"] or [1.0] * len(self._low))
        self._high = None if state["high"] is None else read(self.optimizer)
        if self._high is not None:
            fill(self._high, state["high"])
        self._end = self._ends()

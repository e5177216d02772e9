"""A learning-rate schedule that follows effective steps: after a step worth 1.3 ordinary ones it moves on by 1.3."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.optim import Optimizer
from torch.optim.lr_scheduler import CosineAnnealingLR, LRScheduler, OneCycleLR, ReduceLROnPlateau, SequentialLR

from ..errors import EmaisError, number_above

if TYPE_CHECKING:
    from ..engine import Engine


SELDOM = (
    "{} optimizer steps were made since the last step of the schedule, which counts only the latest: call "
    "schedule.step() after each optimizer.step(), and make it with per_epoch=True if the scheduler counts epochs"
)


class EffectiveSchedule:
    """RAIS's effective iterations: lr = schedule(t_eff), and t_eff grows by the learning-rate factor of each step.

    schedule: any torch scheduler that is stepped without an argument (OneCycleLR and CyclicLR with
    cycle_momentum=False); between two of its steps the rate is interpolated. Or a function of t, which gives what to
    multiply the optimizer's rate by; then pass `optimizer`. A function that takes tensors makes no host sync. t_eff
    stops at `num_steps` (default: the engine's, or the scheduler's own end: beyond it a cosine would rise again).
    per_epoch: the scheduler counts epochs, ceil(M/N) effective steps each.

    Call `step()` after each `optimizer.step()`, in place of the scheduler's own. The factor itself is put on by
    `engine.attach`, as always.

    >>> from torch import nn
    >>> import emais
    >>> optimizer = torch.optim.SGD(nn.Linear(1, 1).parameters(), lr=0.1)
    >>> imp = emais.create("rais", 1000, num_steps=500)
    >>> _ = imp.attach(optimizer)
    >>> schedule = EffectiveSchedule(torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 500), imp)
    """

    def __init__(
        self,
        schedule: LRScheduler | Callable[[Any], Any],
        engine: Engine,
        *,
        optimizer: Optimizer | None = None,
        num_steps: float | None = None,
        per_epoch: bool = False,
    ) -> None:
        self._engine, self._function, engine.progress.asked = engine, schedule, True
        self._scheduler: Any = schedule if hasattr(schedule, "step") else None
        if self._scheduler is not None:
            optimizer = _check_scheduler(self._scheduler).optimizer
        end = engine.progress.goal if engine.num_steps is None else engine.num_steps
        self._given = end if num_steps is None else number_above("num_steps", num_steps, 0)
        self._own_end = num_steps is None  # whether a cosine's own end counts, too, if it comes first
        self._steps, self._told = engine.attached.steps, False
        self._unit = engine.epoch_length if per_epoch else 1
        if optimizer is None or not (self._scheduler or callable(schedule)):
            raise EmaisError("a schedule that is a function of t needs optimizer=, whose rate it multiplies")
        self.optimizer: Optimizer = optimizer
        self._t = torch.zeros((), dtype=torch.float64, device=engine.device)
        # rates at two steps of the scheduler: `_place`, and the next, where it stands once it has been stepped
        self._place = 0
        self._low = self._read()
        self._high: list[Any] | None = None
        self.num_steps = self._limit()
        if self._scheduler is None:
            self._write(self._rates())

    def _limit(self) -> float:
        """Where t_eff stops. OneCycleLR has no rate beyond its end, whatever was given."""
        cosine = self._own_end and type(self._scheduler) is CosineAnnealingLR
        if self._given is not None and not isinstance(self._scheduler, OneCycleLR) and not cosine:
            return self._given
        taken = self._place + (self._high is not None)  # steps that the scheduler has made here
        return min((taken + _left(self._scheduler)) * self._unit, self._given or math.inf)

    def step(self) -> None:
        """Move on by the factor of the optimizer's step that has just been made."""
        attached = self._engine.attached
        if attached.steps > self._steps + 1 and not self._told:
            self._told = True
            warnings.warn(SELDOM.format(attached.steps - self._steps), stacklevel=2)
        self._steps = attached.steps
        worth = attached.applied * attached.minibatches if self._unit > 1 else attached.applied  # epochs have those
        self._t.add_(worth).clamp_(max=self.num_steps)
        self._write(self._rates())

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
            self._high = self._advance(self._low)
        part = t - self._place
        return [(1 - part) * low + part * high for low, high in zip(self._low, self._high, strict=True)]

    def _advance(self, rates: list[Any]) -> list[Any]:
        """The scheduler's next rates after these, from which it goes on."""
        assert self._scheduler is not None
        self._write(rates)
        self._scheduler.step()
        return self._read()

    def _read(self) -> list[Any]:
        rates = [group["lr"] for group in self.optimizer.param_groups]
        return [lr.clone() if isinstance(lr, Tensor) else lr for lr in rates]

    def _write(self, rates: list[Any]) -> None:
        for group, lr in zip(self.optimizer.param_groups, rates, strict=True):
            if isinstance(group["lr"], Tensor):
                group["lr"].copy_(torch.as_tensor(lr, device=group["lr"].device))
            else:
                group["lr"] = float(lr)

    def get_last_lr(self) -> list[float]:
        """The rates in place now."""
        return [float(group["lr"]) for group in self.optimizer.param_groups]

    def state_dict(self) -> dict[str, Any]:
        """For an exact resume, the scheduler's own state included."""
        inner = None if self._scheduler is None else self._scheduler.state_dict()
        low, high = (None if rates is None else [float(x) for x in rates] for rates in (self._low, self._high))
        return {"t_eff": float(self.t_eff), "place": self._place, "scheduler": inner, "low": low, "high": high}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take over what `state_dict` gave, of a schedule of the same kind."""
        if (state["scheduler"] is None) != (self._scheduler is None):
            raise EmaisError("this state was saved with another kind of schedule (a function, or a torch scheduler)")
        if self._scheduler is not None:
            self._scheduler.load_state_dict(state["scheduler"])
        self._t.fill_(state["t_eff"])
        self._steps = self._engine.attached.steps
        self._place, self._low, self._high = state["place"], state["low"], state["high"]
        self.num_steps = max(self._limit(), state["t_eff"])
        self._write(self._rates())


def _left(scheduler: Any) -> float:
    """How many steps a scheduler has left, where its rate is no longer meant to be used beyond an end."""
    if isinstance(scheduler, OneCycleLR):
        return scheduler.total_steps - 1 - scheduler.last_epoch
    if type(scheduler) is CosineAnnealingLR:  # a class of one's own may mean something else by T_max
        return scheduler.T_max - scheduler.last_epoch
    parts = getattr(scheduler, "_schedulers", [])[-1 if isinstance(scheduler, SequentialLR) else 0 :]
    if any(_left(part) < math.inf for part in parts):
        raise EmaisError(
            f"{type(scheduler).__name__} has an end that t_eff would pass: give num_steps=, here or to the engine"
        )
    return math.inf


def _check_scheduler(scheduler: Any) -> LRScheduler:
    name = type(scheduler).__name__
    if isinstance(scheduler, ReduceLROnPlateau):
        raise EmaisError(f"{name} follows a metric, not the step: it has no value at a fractional step; use it alone")
    if getattr(scheduler, "cycle_momentum", False):
        raise EmaisError(
            f"{name} moves the momentum along with the rate, which cannot be interpolated between two of its steps: "
            "make it with cycle_momentum=False"
        )
    if not isinstance(scheduler, LRScheduler):
        raise EmaisError(f"{name} is not a torch LRScheduler: pass one, or a function of t with optimizer=")
    return scheduler

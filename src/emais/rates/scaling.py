"""The learning-rate factor of one step: only the optimizer's own step sees the rate multiplied."""

from __future__ import annotations

import copy
import inspect
import warnings
from collections.abc import Iterator, MutableMapping
from types import CodeType, FrameType
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from ..errors import EmaisError
from ..statistics.arrays import Number

if TYPE_CHECKING:
    from .attached import Attached

UNREAD = (
    "the step of {} did not read its learning rate from param_groups, so it could not be scaled: attach the optimizer "
    'that does the work, if this one wraps it, or attach with rule="none"'
)

WRITTEN = (
    "the step of {} changes its own learning rate, which it has read multiplied by the factor: the factor would stay "
    'in it: attach with rule="none", or let a scheduler change the rate'
)


class ManualStep:
    """For an update that is not a torch optimizer's: what `attach(None)` returns.

    Call `lr_scale()` once after the minibatches of an update have been observed, and multiply its learning rate by it.
    """

    optimizer = None

    def __init__(self, attached: Attached) -> None:
        self._attached, self.used = attached, 0

    def lr_scale(self) -> Any:
        """The factor of this update: a float, or a 0-d tensor where the statistics live on a device."""
        factor = self._attached.lr_scale(self)
        self._attached.stepped(self)
        return factor

    def remove(self) -> None:
        """Detach."""
        self._attached.forget(self)


class ScaledGroup(MutableMapping[str, Any]):
    """A parameter group whose rate is multiplied only for the optimizer's own step.

    It stands in for the group while a step runs, and keeps nothing itself: what is written goes to the group.
    """

    def __init__(self, group: MutableMapping[str, Any], scaler: StepScaler) -> None:
        self.group, self.scaler = group, scaler

    def __getitem__(self, key: str) -> Any:
        value = self.group[key]
        if key == "weight_decay" and not self.scaler.scale_decay:
            return self.scaler.unscaled(value)
        return self.scaler.scaled(value) if key == "lr" else value

    def __setitem__(self, key: str, value: Any) -> None:
        if key == "lr":
            self.scaler.refuse_write()
        self.group[key] = value

    def __delitem__(self, key: str) -> None:
        del self.group[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self.group)

    def __len__(self) -> int:
        return len(self.group)

    def plain(self) -> dict[str, Any]:
        """The group itself."""
        group: Any = self.group
        return group.plain() if isinstance(group, ScaledGroup) else group

    def __deepcopy__(self, memo: dict[int, Any]) -> dict[str, Any]:
        return copy.deepcopy(self.plain(), memo)

    def __reduce__(self) -> Any:
        return dict, (dict(self.plain()),)


class StepScaler:
    """Multiplies every rate by the monitor's factor for one `optimizer.step`. The rates themselves never change.

    While the step runs, each group is a `ScaledGroup`: a rate that is read by the optimizer's own step, or by a
    pre-hook that runs after ours, comes multiplied; read by anyone else (a scheduler, a post-hook, a logger) it is what
    the schedule set. So there is nothing to restore: after a step that raises the stand-ins stay until the next step,
    and show everyone the rate as it is. A step that reads its rate and then writes it is refused: the factor would stay
    in it. Several engines on one optimizer need not know of each other: each multiplies what the one before gives.

    With `step(closure)` the forward pass happens inside the step: the closure is wrapped, so that the factor is that of
    the minibatch it has just computed. A step that nothing was observed for has factor 1. A factor of exactly 0, known
    on the host, skips the step: the gradients are dropped, so neither parameters nor momentum change.
    """

    def __init__(self, optimizer: Optimizer, attached: Attached, scale_decay: bool = True) -> None:
        self.optimizer, self._attached, self.used = optimizer, attached, 0
        self.scale_decay = scale_decay
        self._factor: Number | None = None  # of the step under way
        # torch's loop over pre-hooks, and the place of its calls; the frame itself would keep its locals alive
        self._hooks: tuple[int, CodeType | None, int] = 0, None, 0
        self._reads = 0  # of scaled rates, by the step under way
        self._steps = step_functions(optimizer)
        self._step_ids = frozenset(map(id, self._steps))  # the hash of code goes through all of its constants
        self._handles = [
            optimizer.register_step_pre_hook(self._before),
            optimizer.register_step_post_hook(self._after),
        ]

    @property
    def rule(self) -> str:
        """The rule in force."""
        return self._attached.monitor.rule

    def remove(self) -> None:
        """Leave the optimizer as it was."""
        self._put_back()
        for handle in self._handles:
            handle.remove()
        self._attached.forget(self)
        self._handles = []

    def scaled(self, rate: Any) -> Any:
        """A rate as the reader is to see it: multiplied, if that is the optimizer's own step."""
        if rate is None or self._factor is None or not self._is_stepping():  # None: with rule="none" only
            return rate
        self._reads += 1
        if isinstance(rate, Tensor):  # no host sync; in the rate's own precision, which fused optimizers insist on
            factor = self._factor.to(rate.device) if isinstance(self._factor, Tensor) else self._factor
            return torch.mul(rate, factor, out=torch.empty_like(rate))
        return rate * float(self._factor)  # sync where the statistics live on a GPU: one float

    def unscaled(self, decay: Any) -> Any:
        """A weight decay that the step will multiply by the scaled rate: divided by the factor, it stays as it is."""
        return decay / float(self._factor) if self._factor is not None and self._is_stepping() else decay

    def refuse_write(self) -> None:
        """Refuse a new rate from the optimizer's own step, once it has read the old one multiplied."""
        if self._reads and self._factor is not None and self.rule != "none" and self._is_stepping(hooks=False):
            raise EmaisError(WRITTEN.format(type(self.optimizer).__name__))

    def _is_stepping(self, hooks: bool = True) -> bool:
        """Whether the optimizer's own step is among the callers, or the loop over its pre-hooks."""
        frame, ids, (loop, *place) = inspect.currentframe(), self._step_ids, self._hooks
        while frame is not None:  # through all callers, twice a step
            if id(frame.f_code) in ids and first_argument(frame) is self.optimizer:
                return True
            if hooks and id(frame) == loop and [frame.f_code, frame.f_lasti] == place:
                return True
            frame = frame.f_back
        return False

    def _before(self, optimizer: Optimizer, args: Any, kwargs: Any) -> Any:
        if self._is_stepping():  # a step that calls another's by super(): torch calls the hooks of both
            return None
        frame = inspect.currentframe()
        loop = frame.f_back if frame is not None else None
        self._hooks = (0, None, 0) if loop is None else (id(loop), loop.f_code, loop.f_lasti)
        groups: list[Any] = optimizer.param_groups
        groups[:] = [group if self._has_part_in(group) else ScaledGroup(group, self) for group in groups]
        # the optimizer itself is args[0]
        closure = args[1] if len(args) > 1 else kwargs.get("closure")
        if closure is None:
            self._scale()
            return None

        def scaled_closure() -> Any:
            self._factor = None  # a closure may be evaluated more than once
            loss = closure()
            self._scale()
            return loss

        if len(args) > 1:
            return (args[0], scaled_closure, *args[2:]), kwargs
        return args, {**kwargs, "closure": scaled_closure}

    def _has_part_in(self, group: Any) -> bool:
        """Whether a group is multiplied by this scaler already: a step that raised leaves its stand-ins behind."""
        while isinstance(group, ScaledGroup):
            if group.scaler is self:
                return True
            group = group.group
        return False

    def _scale(self) -> None:
        self._factor, self._reads = None, 0
        if not self._handles:  # removed inside the closure
            return
        factor = self._attached.lr_scale(self)
        if not isinstance(factor, Tensor) and factor == 0:
            self.optimizer.zero_grad(set_to_none=True)
        else:
            self._factor = factor

    def _put_back(self) -> None:
        """The groups themselves, in place of those that stand in for them."""
        self._factor, self._hooks = None, (0, None, 0)
        groups: list[Any] = self.optimizer.param_groups
        if any(isinstance(group, ScaledGroup) for group in groups):
            groups[:] = [self._without(group) for group in groups]

    def _without(self, group: Any) -> Any:
        if not isinstance(group, ScaledGroup):
            return group
        inner = self._without(group.group)
        return inner if group.scaler is self else ScaledGroup(inner, group.scaler)

    def _after(self, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        if self._is_stepping():
            return
        if self._factor is not None and not self._reads and self._has_work():
            warnings.warn(UNREAD.format(type(optimizer).__name__), stacklevel=2)
        self._put_back()
        self._attached.stepped(self)

    def _has_work(self) -> bool:
        """Whether there was a rate to scale, and a gradient to apply."""
        parameters = (p for group in self.optimizer.param_groups for p in group["params"])
        return self.rule != "none" and any(p.grad is not None for p in parameters)


def first_argument(frame: FrameType) -> Any:
    """What a running function was called with first, whatever it calls that."""
    names = frame.f_code.co_varnames
    found = frame.f_locals.get(names[0]) if names else None
    return found[0] if isinstance(found, tuple) and found else found  # of *args


def step_functions(optimizer: Optimizer) -> frozenset[CodeType]:
    """The code of an optimizer's step, and of those that it may call by super()."""
    found = [vars(cls)["step"] for cls in type(optimizer).__mro__ if "step" in vars(cls)]
    return frozenset(inspect.unwrap(step).__code__ for step in found)

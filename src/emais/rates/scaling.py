"""The learning-rate factor of one step: only the optimizer's own step sees the rate multiplied."""

from __future__ import annotations

import copy
import inspect
import warnings
from collections.abc import Iterator, MutableMapping
from types import FrameType
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from ..errors import EmaisError
from ..statistics.arrays import Number

if TYPE_CHECKING:
    from .attached import Attached

    _Dict = dict[str, Any]
else:

    class _Dict(MutableMapping, dict):
        """A dict, all of whose methods go through those that a subclass defines."""


UNREAD = (
    "the step of {} did not read its learning rate from param_groups, so it could not be scaled: attach the optimizer "
    'that does the work, if this one wraps it, or attach with rule="none"'
)

WRITTEN = (
    "the step of {} changes its own learning rate, which it has read multiplied by the factor: the factor would stay "
    'in it: attach with rule="none", or change the rate outside the step, as a scheduler does'
)

TWO = (
    "two engines are attached to this {}, and their factors would multiply: call remove() on the handle that attach "
    "gave for one of them. That engine goes on drawing and weighing, and leaves the learning rate alone"
)


class ScaledGroup(_Dict):
    """A parameter group whose rate is multiplied only for the optimizer's own step.

    It stands in for the group while a step runs. What is read comes from the group, and what is written goes to it. Its
    own entries, the same as the group's, are for code that reads a dict without calling its methods.
    """

    def __init__(self, group: dict[str, Any], scaler: StepScaler) -> None:
        super().__init__(group)
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
        dict.__setitem__(self, key, value)

    def __delitem__(self, key: str) -> None:
        del self.group[key]
        dict.pop(self, key, None)

    def __iter__(self) -> Iterator[str]:
        return iter(self.group)

    def __len__(self) -> int:
        return len(self.group)

    def copy(self) -> dict[str, Any]:
        """The entries as the reader is to see them."""
        return dict(self)

    def __or__(self, other: Any) -> Any:
        return dict(self) | other

    def __ror__(self, other: Any) -> Any:
        return other | dict(self)

    def __ior__(self, other: Any) -> Any:
        self.update(other)
        return self

    def __repr__(self) -> str:
        return repr(self.group)

    def __deepcopy__(self, memo: dict[int, Any]) -> dict[str, Any]:
        return copy.deepcopy(self.group, memo)

    def __reduce_ex__(self, protocol: Any) -> Any:
        return dict, (dict(self.group),)


class StepScaler:
    """Multiplies every rate by the monitor's factor for one `optimizer.step`. The rates themselves never change.

    While the step runs, each group is a `ScaledGroup`: a rate that is read by the optimizer's own step comes
    multiplied; read by anyone else (a scheduler, a hook, a logger) it is what the schedule set. So there is nothing to
    restore: after a step that raises the stand-ins stay until the next step, and show everyone the rate as it is. A
    step that reads its rate and then writes it is refused: the factor would stay in it. So is a second engine.

    With `step(closure)` the forward pass happens inside the step: the closure is wrapped, so that the factor is that of
    the minibatch it has just computed. A step that nothing was observed for has factor 1. A factor of exactly 0, known
    on the host, skips the step: the gradients are dropped, so neither parameters nor momentum change.
    """

    def __init__(self, optimizer: Optimizer, attached: Attached, scale_decay: bool = True) -> None:
        self.optimizer, self._attached, self.used = optimizer, attached, 0
        self.scale_decay = scale_decay
        self._factor: Number | None = None  # of the step under way
        self._reads = 0  # of scaled rates, by the step under way
        self._handed_out: list[tuple[Tensor, Tensor]] = []  # to it: scaled tensors on the CPU, and their values
        self._codes = step_codes(optimizer)
        # the hash of code goes through all of its constants
        self._own, self._around = (frozenset(map(id, codes)) for codes in self._codes)
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
        if not self._reads:
            self._attached.unclosed.append(self)
        self._reads += 1
        if isinstance(rate, Tensor):
            return self._scaled_tensor(rate, self._factor)
        return rate * float(self._factor)  # sync where the statistics live on a GPU: one float

    def _scaled_tensor(self, rate: Tensor, factor: Number) -> Tensor:
        """No host sync. In the rate's own precision, which fused optimizers insist on."""
        if self.rule == "none" and not isinstance(factor, Tensor) and factor == 1:
            return rate  # itself: the step may write to it
        factor = factor.to(rate.device) if isinstance(factor, Tensor) else factor
        scaled = torch.mul(rate, factor, out=torch.empty_like(rate))
        if rate.device.type == "cpu":
            self._handed_out.append((scaled, scaled.clone()))
        return scaled

    def unscaled(self, decay: Any) -> Any:
        """A weight decay that the step will multiply by the scaled rate: divided by the factor, it stays as it is."""
        return decay / float(self._factor) if self._factor is not None and self._is_stepping() else decay

    def refuse_write(self) -> None:
        """Refuse a new rate from the optimizer's own step, once it has read the old one multiplied."""
        if self._reads and self._factor is not None and self.rule != "none" and self._is_stepping():
            raise EmaisError(WRITTEN.format(type(self.optimizer).__name__))

    def _refuse_written_tensors(self) -> None:
        """Refuse the same of a tensor, which is written in place: the rate itself would not have changed."""
        handed_out, self._handed_out = self._handed_out, []
        if not all(torch.equal(rate, before) for rate, before in handed_out):
            raise EmaisError(WRITTEN.format(type(self.optimizer).__name__))

    def _is_stepping(self, hooks: bool = False) -> bool:
        """Whether the optimizer's own step has called this; hooks: also through a hook of a step inside it."""
        frame = inspect.currentframe()
        while frame is not None:
            code = id(frame.f_code)
            if code in self._own and first_argument(frame) is self.optimizer:
                return True
            if not hooks and code in self._around and first_argument(frame) is self.optimizer:
                return False
            frame = frame.f_back
        return False

    def _before(self, optimizer: Optimizer, args: Any, kwargs: Any) -> Any:
        if self._is_stepping(hooks=True):  # a step that calls another's by super(): torch calls the hooks of both
            return None
        self._factor, self._reads = None, 0
        self._stand_in()
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

    def _stand_in(self) -> None:
        """Put a stand-in in the place of every group; steps that raised, here or elsewhere, may have left some."""
        groups: list[Any] = self.optimizer.param_groups
        for k, group in enumerate(groups):
            if type(group) is ScaledGroup:
                if group.scaler is self:
                    continue
                if group.scaler.optimizer is self.optimizer:  # removed ones have put theirs back
                    raise EmaisError(TWO.format(type(self.optimizer).__name__))
                group = group.group
            groups[k] = ScaledGroup(group, self)

    def _scale(self) -> None:
        self._factor, self._reads, self._handed_out = None, 0, []
        if not self._handles:  # removed inside the closure
            return
        factor = self._attached.lr_scale(self)
        if not isinstance(factor, Tensor) and factor == 0:
            self.optimizer.zero_grad(set_to_none=True)
        else:
            self._factor = factor

    def _put_back(self) -> None:
        """The groups themselves, in place of those that stand in for them."""
        self._factor = None
        groups: list[Any] = self.optimizer.param_groups
        for k, group in enumerate(groups):
            if type(group) is ScaledGroup and group.scaler is self:
                groups[k] = group.group

    def _after(self, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        if self._is_stepping(hooks=True):
            return
        if self._factor is not None and not self._reads and self._has_work():
            warnings.warn(UNREAD.format(type(optimizer).__name__), stacklevel=2)
        self._put_back()
        self._refuse_written_tensors()
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


def step_codes(optimizer: Optimizer) -> tuple[list[Any], list[Any]]:
    """Code of the step, and of those it may call by super(); code of what is around them: torch's hooks, decorators."""
    own: list[Any] = []
    around: list[Any] = []
    for step in (vars(cls).get("step") for cls in type(optimizer).__mro__):
        while step is not None:
            inner = getattr(step, "__wrapped__", None) or getattr(step, "func", None)  # of a partial
            if hasattr(step, "__code__"):  # an object that can be called has none
                (own if inner is None else around).append(step.__code__)
            step = inner
    return own, around

"""The learning-rate factor of one step: put on before the parameters move, taken off again afterwards."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

from torch import Tensor
from torch.optim import Optimizer

from .errors import EmaisError
from .functional import LR_RULES
from .monitor import Monitor

RULES = (*LR_RULES, "rais")
UNSTEPPED = (
    "{} minibatches were observed since an attached optimizer has stepped: attach the one that trains now, and "
    "remove() the old handle, if it is another; or its steps are being skipped, as GradScaler does while gradients are "
    "not finite. Until it steps no learning rate is scaled, and the report is of all of them together"
)
_LINEAR = ("SGD", "ASGD")
_SQRT = (
    "Adam",
    "AdamW",
    "NAdam",
    "RAdam",
    "Adamax",
    "SparseAdam",
    "RMSprop",
    "Adagrad",
    "Adadelta",
    "Adafactor",
)


def default_rule(optimizer: Optimizer | None) -> str:
    """The rule that suits an optimizer's class: linear for SGD, sqrt for the Adam family.

    Paper: sec:epsilon_ems
    """
    if optimizer is None:
        raise EmaisError(f"without an optimizer the rule must be given: one of {', '.join(RULES)}")
    names = {c.__name__ for c in type(optimizer).__mro__}
    if names.intersection(_SQRT):
        return "sqrt"
    if names.intersection(_LINEAR):
        return "linear"
    raise EmaisError(
        f"no learning-rate rule is known for {type(optimizer).__name__}: pass rule= one of {', '.join(RULES)}"
    )


def check_rule(rule: str) -> str:
    """Return the rule, or list the ones there are."""
    if rule not in RULES:
        raise EmaisError(f"rule must be one of {', '.join(RULES)}, got {rule!r}")
    return rule


class Overdue:
    """Says, once, that minibatches are observed and no attached optimizer steps.

    limit: minibatches that somebody may accumulate; at least 100.
    """

    def __init__(self, limit: int) -> None:
        self.limit, self._told = max(100, limit), False

    def look(self, waiting: int) -> None:
        """Given how many minibatches there were since a step."""
        if waiting <= self.limit:
            self._told = False
        elif not self._told:
            self._told = True
            warnings.warn(UNSTEPPED.format(waiting), stacklevel=2)


class OwnStep:
    """For an update that is not a torch optimizer's: what `attach(None)` returns.

    Call `factor()` once after the minibatches of an update have been observed, and multiply its learning rate by it.
    """

    def __init__(self, factor: Callable[[int], Any], monitor: Monitor, siblings: list[Any]) -> None:
        self.optimizer, self._factor, self._monitor, self._siblings = None, factor, monitor, siblings
        self.used = monitor.added
        siblings.append(self)

    def settle(self) -> None:
        """There is no rate to put right."""

    def factor(self) -> Any:
        """The factor of this update: a float, or a 0-d tensor where the statistics live on a device."""
        factor = self._factor(self.used)
        self.used = self._monitor.added
        self._monitor.close()
        return factor

    def remove(self) -> None:
        """Detach."""
        if self in self._siblings:
            self._siblings.remove(self)


class StepScaler:
    """Multiplies every `group["lr"]` by the monitor's factor during one `optimizer.step`, and restores it.

    Schedulers compute the next rate from the present one, so a factor left in place would compound. With
    `step(closure)` the forward pass happens inside the step: the closure is wrapped, so that the factor is that of
    the minibatch it has just computed. A tensor rate is changed in place, without waiting for the device.

    `factor` gives the factor once everything observed has arrived, told how many minibatches there were at the last
    step: one that nothing was observed for has factor 1. A factor of exactly 0, known on the host, skips the step: the
    gradients are dropped, so neither parameters nor momentum change. After a step that raised, the rate is put right
    by `settle`: with the next minibatch, or when the optimizer's state is saved. Of several engines on one optimizer
    each multiplies by its own factor, if it has observed a minibatch since the last step. A class that calls the step
    of another has its hooks called for both: the inner ones must find what the outer ones found.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        factor: Callable[[int], Any],
        monitor: Monitor,
        siblings: list[Any],
    ) -> None:
        self.optimizer, self._factor, self._monitor, self._siblings = optimizer, factor, monitor, siblings
        siblings.append(self)
        self.used = monitor.added
        self._saved: list[float | Tensor] = []
        self._scaled = 1.0  # by what, where rates are numbers
        self._handles = [
            optimizer.register_step_pre_hook(self._before),
            optimizer.register_step_post_hook(self._after),
            optimizer.register_state_dict_pre_hook(lambda _: self.settle()),
            optimizer.register_load_state_dict_post_hook(lambda _: self._saved.clear()),
        ]
        hooks = getattr(optimizer, "_optimizer_step_post_hooks", None)  # torch has no other way to come first
        if hooks:  # first off: a hook that steps a scheduler, or another engine's, must find the rate restored
            hooks.move_to_end(self._handles[1].id, last=False)

    @property
    def rule(self) -> str:
        """The rule in force."""
        return self._monitor.rule

    def remove(self) -> None:
        """Leave the optimizer as it was."""
        self._unwind()
        for handle in self._handles:
            handle.remove()
        if self in self._siblings:
            self._siblings.remove(self)
        self._handles = []

    def _before(self, optimizer: Optimizer, args: Any, kwargs: Any) -> Any:
        # the optimizer itself is args[0]
        closure = args[1] if len(args) > 1 else kwargs.get("closure")
        if closure is None:
            self._scale()
            return None

        def scaled_closure() -> Any:
            self._unwind()  # a closure may be evaluated more than once
            loss = closure()
            self._scale()
            return loss

        if len(args) > 1:
            return (args[0], scaled_closure, *args[2:]), kwargs
        return args, {**kwargs, "closure": scaled_closure}

    def _scale(self) -> None:
        self._unwind()  # in case an earlier step raised half-way, or this one is called by another
        if not self._handles:  # removed inside the closure: nobody would take the factor off
            return
        factor = self._factor(self.used)
        if not isinstance(factor, Tensor) and factor == 0:
            self.optimizer.zero_grad(set_to_none=True)
            return
        shared: dict[int, Tensor] = {}  # torch gives all groups the same tensor: it is scaled, and saved, once
        for group in self.optimizer.param_groups:
            lr = group["lr"]
            if not isinstance(lr, Tensor):
                self._saved.append(lr)
                self._scaled = float(factor)  # sync where the statistics live on a GPU: one float
                group["lr"] = lr * self._scaled
                continue
            if id(lr) not in shared:
                shared[id(lr)] = lr.clone()
                lr.mul_(factor)
            self._saved.append(shared[id(lr)])

    def settle(self) -> None:
        """Take the factor off if it is still on, because the step raised."""
        if self._saved:
            self._unwind()

    def _unwind(self) -> None:
        """Take off this factor, and before it those that were put on top of it by other engines."""
        hooks = getattr(self.optimizer, "_optimizer_step_pre_hooks", {}).values()
        stack = [hook.__self__ for hook in hooks if isinstance(getattr(hook, "__self__", None), StepScaler)]
        later = stack[stack.index(self) + 1 :] if self in stack else []
        for scaler in (*reversed(later), self):
            scaler._restore()

    def _restore(self) -> None:
        for group, lr in zip(self.optimizer.param_groups, self._saved, strict=False):
            if isinstance(lr, Tensor):
                if isinstance(group["lr"], Tensor):  # else it is another's by now
                    group["lr"].copy_(lr)
            elif group["lr"] == lr * self._scaled:  # else it is another's by now, after a step that raised
                group["lr"] = lr
        self._saved.clear()

    def _after(self, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        self._restore()
        self.used = self._monitor.added
        self._monitor.close()

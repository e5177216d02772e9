"""All optimizers of an engine: what is attached, and the factor that a step gets."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import torch
from torch import Tensor
from torch.optim import Optimizer

from ..errors import EmaisError, truth
from ..observing.handover import Settled
from ..observing.monitor import Monitor
from ..statistics.arrays import Number
from .effective_steps import Follower, Progress
from .manual import ManualStep
from .rules import check_decay, check_rate, check_rule, default_rule
from .scaling import StepScaler
from .watch import ScheduleWatch

UNSTEPPED = (
    "{} minibatches were observed since an attached optimizer has stepped: attach the one that trains now, and "
    "remove() the old handle, if it is another; or its steps are being skipped, as GradScaler does while gradients are "
    "not finite. Until it steps no learning rate is scaled, and the report is of all of them together"
)
UNOBSERVED = (
    "an attached optimizer steps and no minibatch was observed: train on imp.loss(losses, logits, draw) in place of "
    "the plain mean. Without it nothing is learnt about the samples. If this optimizer trains on something else, do "
    "not attach it"
)
UNTRAINED = (
    "{} steps were made, and no gradient came to the loss that imp.loss returned, so the model trains on another: call "
    "imp.loss(losses, logits, draw).backward(). A loop with a loss of its own calls imp.observe(losses, logits, draw)"
)
ENOUGH_STEPS = 3  # after which a loss that trains has had a gradient
A_FEW = 50  # minibatches
FORGOTTEN_ATTACH = (
    "{} minibatches were observed and no optimizer is attached, so no learning rate is scaled: call "
    'imp.attach(optimizer) before training, or imp.attach(optimizer, rule="none") to leave the rate alone'
)
WORTH_ONE = (
    'effective_steps has no effect with rule="none": every step is worth one, and the run makes all of them. Attach '
    "with rule={!r}, or leave effective_steps out"
)


class Attached:
    """All optimizers of an engine, and the factor that their steps get.

    settled: inside it, everything observed has arrived, and nothing else comes in; scale: the method's last word on a
    factor; patience: minibatches that somebody may accumulate, at least 100; drawn: how many minibatches were handed
    out.
    """

    def __init__(
        self,
        monitor: Monitor,
        progress: Progress,
        settled: Settled,
        scale: Callable[[Number], Number],
        patience: int,
        drawn: Callable[[], int],
    ) -> None:
        self.monitor, self._progress, self.settled, self._scale = monitor, progress, settled, scale
        self._drawn = drawn
        self.told_to_observe = False  # also where a framework refuses a forgotten loss itself
        self._trained: bool | None = None  # whether a gradient came to a training loss; None: there was no loss yet
        self.watch = ScheduleWatch(progress)
        self.scalers: tuple[StepScaler | ManualStep, ...] = ()
        self.unclosed: list[StepScaler] = []  # have read their rate in a step that has not come to its end
        self._loaded: list[int] = []  # `used` of optimizers that are still to be attached after a resume
        self.applied: Number = 1.0  # the factor of the latest step
        self.steps, self.minibatches = 0, 1  # steps here, and minibatches of the latest
        self.lr: Number | None = None  # the schedule's rate in the latest step
        self._latest, self._patience, self._told = 0, max(100, patience), False  # minibatches at the latest step

    def add(
        self, optimizer: Optimizer | None, rule: str | None, usual: str = "linear", scale_decay: bool = True
    ) -> StepScaler | ManualStep:
        """Attach an optimizer, or an update of the user's own, under a rule (None: the usual one, for its class).

        Of an optimizer that a framework has wrapped, the inner one is attached.
        """
        if optimizer is not None:
            optimizer = checked_optimizer(innermost(optimizer))
        if any(s.optimizer is optimizer for s in self.scalers):
            raise EmaisError("this optimizer is attached already: a second factor would be applied on top of the first")
        rule = check_rule(rule or default_rule(optimizer, usual))
        if rule != "none":
            check_rate(optimizer)
        if self.scalers and rule != self.monitor.rule:
            raise EmaisError(
                f"all optimizers of an engine share one rule, got {rule!r} besides {self.monitor.rule!r}: pass the "
                "same rule= for each"
            )
        if not truth("scale_decay", scale_decay):
            check_decay(optimizer)
        if not self.scalers:
            self._progress.tell_few()
        scaler = ManualStep(self) if optimizer is None else StepScaler(optimizer, self, scale_decay)
        scaler.used = self._loaded.pop(0) if self._loaded else self.monitor.added
        if not self.scalers:
            self._latest = max(self._latest, scaler.used)
        self.scalers = (*self.scalers, scaler)
        self.monitor.rule = rule
        if rule == "none" != usual and self._progress.goal is not None:
            warnings.warn(WORTH_ONE.format(usual), stacklevel=3)
        return scaler

    def forget(self, scaler: StepScaler | ManualStep) -> None:
        """Detach one; its next step is its own again."""
        with self.settled:
            self.scalers = tuple(s for s in self.scalers if s is not scaler)
            self.unclosed = [s for s in self.unclosed if s is not scaler]
            if not self.scalers:
                self.monitor.rule, self.applied, self._told = "none", 1.0, True  # nothing was forgotten

    def lr_scale(self, scaler: StepScaler | ManualStep) -> Number:
        """The factor of a step; 1 if no minibatch has come since the last."""
        with self.settled:
            if self.monitor.added == scaler.used:
                self._remind_to_observe()
            self.applied = 1.0 if self.monitor.added == scaler.used else self._scale(self.monitor.lr_scale())
            return self.applied

    def _remind_to_observe(self) -> None:
        """Say in the first step, once, that the loop trains on minibatches of the engine without showing it any."""
        if not self.told_to_observe and not self.monitor.added and self._drawn():
            self.told_to_observe = True
            warnings.warn(UNOBSERVED, stacklevel=2)

    def watched(self, loss: Tensor) -> Tensor:
        """The loss that a loop is to train on. In the first steps it is noticed whether a gradient comes to it."""
        if self.scalers and not self._trained and self.steps < ENOUGH_STEPS and loss.requires_grad:
            self._trained = False
            loss.register_hook(self._note_gradient)
        return loss

    def _note_gradient(self, _: Tensor) -> None:
        self._trained = True

    def stepped(self, scaler: StepScaler | ManualStep) -> None:
        """A step is over: what comes next belongs to another."""
        with self.settled:
            self._close(scaler)

    def unclosed_worth(self, follower: Follower) -> float:
        """What a schedule will get of steps that a hook has broken off after they had read their rate."""
        own = [s for s in self.unclosed if s.optimizer is follower.optimizer and not follower.by_minibatch]
        return len(own) * float(self.applied)

    def close_unclosed(self) -> None:
        """Another minibatch comes: a step that has read its rate was made, even if a hook has raised after it."""
        for scaler in self.unclosed:
            self._close(scaler)

    def _close(self, scaler: StepScaler | ManualStep) -> None:
        if self.unclosed:
            self.unclosed = [s for s in self.unclosed if s is not scaler]
        made = self.monitor.added - self._latest  # minibatches of the step: several if they were accumulated
        if made:  # of several optimizers, the first that steps counts them
            self._progress.add(self.applied, made, [s.optimizer for s in self.scalers])
            self.steps, self.minibatches = self.steps + 1, made
            if self.steps == ENOUGH_STEPS and self._trained is False:
                warnings.warn(UNTRAINED.format(self.steps), stacklevel=2)
            if scaler.optimizer is not None:
                self.lr = scaler.optimizer.param_groups[0]["lr"]
        if scaler.optimizer is not None:
            self._progress.add_step(scaler.optimizer, self.applied)
        scaler.used = self._latest = self.monitor.added
        self._told = False
        self.monitor.close()

    def terms(self) -> str:
        """What several processes that train one model must have alike, in words."""
        kept = [scaler for scaler in self.scalers if isinstance(scaler, StepScaler) and not scaler.scale_decay]
        return f"{len(self.scalers)} attached, rule={self.monitor.rule!r}, scale_decay={not kept}"

    def latest(self) -> tuple[int, float]:
        """Minibatches up to the latest step, and its factor; who has looked at what in between changes neither."""
        return self.monitor.added if self.unclosed else self._latest, float(self.applied)

    def counted(self) -> int:
        """Minibatches of all steps so far; without an optimizer, all that were observed."""
        return self._latest if self.scalers else self.monitor.added

    def trained(self) -> int:
        """The same once everything observed has arrived."""
        with self.settled:
            return self.counted()

    def finished(self) -> bool:
        """Whether the run has come to the end that it was given in effective steps; sync on a device."""
        if self._progress.goal is None:
            return False
        with self.settled:
            return self._at_the_end()

    def _at_the_end(self) -> bool:
        optimizers = [scaler.optimizer for scaler in self.scalers if scaler.optimizer is not None]
        self.watch.look(optimizers, self.monitor.added)
        return self._progress.finished()

    def remind_to_attach(self, warmup: int) -> None:
        """Say, once, that minibatches are observed and nothing is attached, when a factor would begin: after warm-up.

        Nothing is said of the first few minibatches.
        """
        if not self._told and self.monitor.added > max(warmup, A_FEW):
            self._told = True
            warnings.warn(FORGOTTEN_ATTACH.format(self.monitor.added), stacklevel=2)

    def remind(self) -> None:
        """Say, once, that minibatches are observed and no attached optimizer steps."""
        waiting = self.monitor.added - self._latest
        if waiting > self._patience and not self._told:
            self._told = True
            warnings.warn(UNSTEPPED.format(waiting), stacklevel=2)

    def used(self) -> list[int]:
        """For each, how many minibatches there were at its last step."""
        return [scaler.used for scaler in self.scalers] + self._loaded

    def restore(self, used: list[int], applied: float) -> None:
        """Go on after `used`, of optimizers in the order in which they were, and will be, attached."""
        self.applied, self.unclosed = applied, []
        for k, scaler in enumerate(self.scalers):
            scaler.used = used[k] if k < len(used) else self.monitor.added
        self._loaded = used[len(self.scalers) :]
        self._latest, self._told = max(used, default=self.monitor.added if self.scalers else 0), False


def innermost(optimizer: Optimizer) -> Optimizer:
    """The optimizer that does the work, of one that a framework has wrapped: its step is the one that reads the rate.

    A wrapper shows the inner optimizer as `optimizer`, and its very list of parameter groups as its own. An optimizer
    that has another one for other parameters is no wrapper.

    >>> adam = torch.optim.Adam([torch.zeros(1, requires_grad=True)])
    >>> innermost(adam) is adam
    True
    """
    inner = getattr(optimizer, "optimizer", None)
    if not isinstance(inner, Optimizer) or inner is optimizer:
        return optimizer
    shared = inner.param_groups is getattr(optimizer, "param_groups", None)
    return innermost(inner) if shared else optimizer


def checked_optimizer(optimizer: Optimizer) -> Optimizer:
    """The optimizer, or say why it cannot be attached."""
    if not hasattr(optimizer, "register_step_pre_hook"):
        raise EmaisError(f"attach takes a torch optimizer, got {type(optimizer).__name__}")
    if isinstance(optimizer, torch.optim.LBFGS):
        raise EmaisError("LBFGS cannot be used: it evaluates its closure several times, a draw is observed once")
    return optimizer

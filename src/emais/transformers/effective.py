"""A run that ends once its steps are worth those that the Trainer would make, with a schedule that follows."""

from __future__ import annotations

from typing import Any

from transformers import TrainerCallback
from transformers.trainer_utils import IntervalStrategy, SaveStrategy

from ..engine import Engine
from ..errors import EmaisError
from ..rates.effective_steps import minibatches_of
from ..rates.followed import Followed
from ..rates.schedule import EffectiveSchedule


def minibatches(trainer: Any, dataloader: Any) -> int:
    """How many the Trainer would train on."""
    steps = int(trainer.set_initial_training_values(trainer.args, dataloader)[-1])
    return minibatches_of(steps, len(dataloader), int(trainer.args.gradient_accumulation_steps))


def follow_effective_steps(scheduler: Any, made_here: bool, engine: Engine, steps: int) -> Followed:
    """The Trainer's scheduler, at effective steps; steps: optimizer steps of a whole run."""
    if not made_here:
        raise EmaisError(
            f"effective_steps=True needs a schedule that the Trainer makes, got {type(scheduler).__name__}: leave the "
            "scheduler out of optimizers= and set lr_scheduler_type"
        )
    return Followed(scheduler, EffectiveSchedule(scheduler, engine, num_steps=steps))


class EarlyEnd(TrainerCallback):
    """Ends a run as the Trainer ends it at max_steps: with an evaluation and a checkpoint, if these go by steps."""

    def __init__(self, trainer: Any) -> None:
        self._trainer = trainer

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """A run that was resumed at its end has nothing left to do."""
        control.should_training_stop = self._trainer.importance.finished

    def on_step_end(self, args: Any, state: Any, control: Any, lr_scheduler: Any = None, **_: Any) -> None:
        """Look whether the end is reached, in minibatches or in optimizer steps."""
        if not (self._trainer.importance.finished or float(lr_scheduler.schedule.t_eff) >= state.max_steps):
            return
        if not control.should_training_stop:
            control.should_training_stop = True
            control.should_evaluate |= (
                args.eval_strategy == IntervalStrategy.STEPS and state.global_step >= args.eval_delay
            )
            control.should_save |= args.save_strategy == SaveStrategy.STEPS

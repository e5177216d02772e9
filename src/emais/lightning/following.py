"""Equal progress: where a fit ends by what its steps are worth, and the Trainer's schedulers, which follow that."""

from __future__ import annotations

from typing import Any

from lightning.pytorch import Trainer

from ..engine import Engine
from ..errors import EmaisError
from ..methods.weighted import warn_of_plain_run
from ..rates.effective_steps import minibatches_of
from ..rates.followed import Followed
from ..rates.schedule import EffectiveSchedule

NO_END_OF_FIT = (
    "effective_steps=True needs an end to count to, and this Trainer has none: give it max_epochs or max_steps, those "
    "that you would train without importance sampling"
)
PART = (
    "effective_steps=True counts a run from its beginning, and this one goes on from a checkpoint without the state of "
    "ImportanceSampling: give effective_steps={}, the batches that are left"
)
NO_COUNT = (
    "effective_steps=True cannot tell how many batches max_steps={} are in a module that optimises manually: give the "
    "Trainer max_epochs instead, or give effective_steps= the number of batches"
)
FREQUENCY = (
    "effective_steps moves a scheduler on after each optimizer step, and this {} is to move after every {} batches: "
    'give it "frequency": 1'
)


def batches_taken(trainer: Trainer, length: int) -> int:
    """How many batches of a loader of this length the trainer takes in an epoch."""
    limit = trainer.limit_train_batches
    return int(limit * length) if isinstance(limit, float) else min(limit or length, length)


def planned(trainer: Trainer, epoch: int) -> int:
    """Batches of the whole fit, as the trainer would end it; epoch: those of an epoch."""
    if trainer.max_steps >= 0 and not trainer.lightning_module.automatic_optimization:
        raise EmaisError(NO_COUNT.format(trainer.max_steps))
    ends = known_ends(trainer, epoch)
    if not ends:
        raise EmaisError(NO_END_OF_FIT)
    return min(ends)


def known_ends(trainer: Trainer, epoch: int) -> list[int]:
    """Batches after which the trainer ends a fit, by epochs and by steps; whichever comes first."""
    ends: list[int] = []
    if trainer.max_epochs is not None and trainer.max_epochs >= 0:
        ends.append(trainer.max_epochs * epoch)
    if trainer.max_steps >= 0 and trainer.lightning_module.automatic_optimization:
        ends.append(minibatches_of(trainer.max_steps, epoch, trainer.accumulate_grad_batches))
    return ends


def warn_of_plain_fit(trainer: Trainer, engine: Engine) -> None:
    """Say so if a fit will end within the warm-up, as far as is known."""
    epoch = trainer.num_training_batches
    ends = known_ends(trainer, epoch) if isinstance(epoch, int) else []  # infinite of a loader without a length
    if ends and trainer.is_global_zero and not trainer.fast_dev_run:
        left = min(ends) - batches_trained(trainer)
        warn_of_plain_run(engine, engine.step + left, "ImportanceSampling(warmup_epochs=...)")


def batches_trained(trainer: Trainer) -> int:
    """Batches of the run so far, which a checkpoint has counted too."""
    return int(trainer.fit_loop.epoch_loop.batch_progress.total.processed)


class _Schedule(EffectiveSchedule):
    in_epochs = '"interval": "epoch"'


class Following:
    """The schedulers of one fit that follow effective steps.

    The Trainer's checkpoints keep the state of its own schedulers, which can be loaded without the callback, too.
    Where they are between two steps is part of the callback's state.
    """

    def __init__(self) -> None:
        self._followed: list[Followed] = []
        self._saved: list[dict[str, Any]] = []  # loaded, until there are schedulers

    def begin(self, trainer: Trainer, engine: Engine, epoch: int) -> None:
        """Let the trainer's schedulers follow, if a run ends by effective steps; epoch: its batches.

        One that follows a metric does not follow the steps. Nor do those of a module that steps them itself.
        """
        if engine.progress.goal is None or not trainer.lightning_module.automatic_optimization:
            return
        for config in trainer.lr_scheduler_configs:
            if not (config.reduce_on_plateau or isinstance(config.scheduler, Followed)):
                self._followed.append(_followed(config, engine, epoch))
        for followed, state in zip(self._followed, self._saved, strict=False):
            followed.schedule.load_state_dict(state)
        self._saved = []

    def state(self) -> list[dict[str, Any]]:
        """Of all schedules."""
        return self._saved or [followed.schedule.state_dict() for followed in self._followed]

    def load(self, saved: list[dict[str, Any]]) -> None:
        """Take over what `state` gave, when the next epoch begins."""
        self._saved = saved


def _followed(config: Any, engine: Engine, epoch: int) -> Followed:
    """Put into the Trainer's configuration of a scheduler, in place of it."""
    name, unit = type(config.scheduler).__name__, config.frequency * epoch
    if config.interval == "step" and config.frequency > 1:
        raise EmaisError(FREQUENCY.format(name, config.frequency))
    schedule = _Schedule(config.scheduler, engine, per_epoch=unit if config.interval == "epoch" else False)
    config.scheduler, config.interval, config.frequency = Followed(config.scheduler, schedule), "step", 1
    return config.scheduler  # type: ignore[no-any-return]

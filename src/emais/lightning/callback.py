"""The callback: takes the train DataLoader over, saves and resumes, reports, and says what is wrong."""

from __future__ import annotations

import copy
import os
import warnings
from collections.abc import Mapping
from typing import Any

import lightning
from lightning.pytorch import Callback, LightningModule, Trainer

from ..engine import Engine
from ..errors import EmaisError
from ..rates.rules import check_rule
from .checks import FORGOTTEN_LOSS, NOT_OURS, check_settings, check_trainer, checked_dataloader
from .following import PART, Following, batches_taken, batches_trained, planned, warn_of_plain_fit
from .logs import NumbersLogged
from .processes import data_parallel_group, share_of
from .run_engine import RunEngine
from .training import StepUnderWay, TrainLoader, TrainSource

CHECKPOINT_WITHOUT_STATE = (
    "this checkpoint has no state of ImportanceSampling: its statistics begin now, with their warm-up epochs. To go on "
    "without importance sampling, take the callback out of the Trainer"
)
OTHER_BATCH_SIZE = (
    "the samples of a step, batch_size of the train DataLoader times the processes, changed from {} to {}: the "
    "statistics of importance sampling start again"
)


class _TrainData(LightningModule):
    """Where the trainer asks for its train DataLoader, instead of where it was told to."""

    def __init__(self, callback: ImportanceSampling, trainer: Trainer, given: Any) -> None:
        super().__init__()
        self.trainer, self._callback, self._given = trainer, callback, given

    def train_dataloader(self) -> TrainSource:
        """Ask the one whom the trainer would have asked, and take over what it gives."""
        return TrainSource(self._callback.take_over(self.trainer, self._given.dataloader()))


class ImportanceSampling(Callback):
    """Trains with importance sampling: ``Trainer(callbacks=[emais.lightning.ImportanceSampling()])``.

    method: as of `emais.create`; rule and scale_decay: as of `Engine.attach`; settings: of the method, such as seed=1.
    Without seed= it takes the seed of Lightning's `seed_everything`, or 0; a resumed run keeps that of its checkpoint.
    In `training_step` call `emais.lightning.loss`. The train DataLoader may come from the module, a data module or
    `Trainer.fit`. Batches, their number and the number of optimizer steps stay as they are without the callback.
    effective_steps=True ends the fit once its steps are worth those that the Trainer would make, and its schedulers
    follow. With several processes each keeps the statistics of all samples and trains on its share of every minibatch.
    A Trainer takes one such callback.
    """

    def __init__(
        self, method: str = "emais-auto", *, rule: str | None = None, scale_decay: bool = True, **settings: Any
    ) -> None:
        check_settings(method, settings)
        if rule is not None:
            check_rule(rule)
        self._run, self._settings = RunEngine(method, settings, rule, scale_decay), settings
        self._module: LightningModule | None = None  # whose statistics the engine has
        self._loader: TrainLoader | None = None  # of the fit under way
        self._following = Following()  # the schedulers of the fit under way
        self._numbers = NumbersLogged()
        self._used = False  # whether this fit has called `loss`
        self._stepped = 0  # optimizer steps before this batch, of a module that makes them itself
        self._under_way = False  # whether a state is loaded in the middle of a fit

    @property
    def engine(self) -> Engine | None:
        """The engine, from the first batch on; `engine.summary()` says what it does.

        It stays for further fits of the same module, and its state is part of every checkpoint.
        """
        return self._run.engine

    # ---- the train DataLoader

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Have the trainer ask us for its train DataLoader. The next fit sets this anew, so nothing is left behind."""
        if stage != "fit":
            return
        check_trainer(trainer, pl_module)
        if self._module is not pl_module or (self._ends() and not trainer.global_step):
            self._run.forget()
        self._module, self._used, self._stepped, self._numbers = pl_module, False, 0, NumbersLogged()
        self._following = Following()
        # a private name: no hook of Lightning's lets a callback give a loader when one is passed to fit
        source: Any = getattr(trainer.fit_loop, "_data_source", None)
        if not hasattr(source, "instance"):
            raise EmaisError(f"Lightning {lightning.__version__} keeps its loaders elsewhere: install lightning 2.6")
        source.instance = _TrainData(self, trainer, copy.copy(source))

    def _ends(self) -> bool:
        """Whether fits end by their progress: a new one counts from its own beginning."""
        return self._settings.get("effective_steps", False) is not False

    def take_over(self, trainer: Trainer, given: Any) -> TrainLoader:
        """The loader for the trainer in place of the DataLoader that it was given."""
        dataloader = checked_dataloader(given)
        group = data_parallel_group(trainer, self._settings.get("process_group"))
        seed = int(trainer.strategy.broadcast(os.environ.get("PL_GLOBAL_SEED", "0")))  # what seed_everything has set
        plain = share_of(dataloader, group)
        epoch = batches_taken(trainer, len(plain))
        tuning, end = self not in trainer.callbacks, self._settings.get("effective_steps", False)
        if tuning:
            end = None
        elif end is True:
            end = planned(trainer, epoch)
            if self._run.is_new and (trained := batches_trained(trainer)):
                raise EmaisError(PART.format(end - trained))
        engine = self._run.take(dataloader, group, seed, end)

        def begin() -> None:
            self._run.attach(trainer.optimizers)
            if not tuning:
                self._following.begin(trainer, engine, epoch)

        self._loader = TrainLoader(engine, dataloader, plain, trainer, begin)
        return self._loader

    def teardown(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """End what the fit has left: workers that were to persist, and what `loss` reads."""
        vars(pl_module).pop(StepUnderWay.NAME, None)
        if self._loader is not None:
            self._loader.close()
            self._loader = None

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        """As after a fit that came to its end."""
        self.teardown(trainer, pl_module, "fit")

    # ---- a step

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Refuse to train on a loader that is not ours, and say so if the whole fit will be plain training."""
        if trainer.train_dataloader is not self._loader:
            raise EmaisError(NOT_OURS.format(type(trainer.train_dataloader).__name__))
        self._stepped = trainer.global_step
        if self._loader.engine.finished:  # resumed at its end
            trainer.should_stop = True
        else:
            warn_of_plain_fit(trainer, self._loader.engine)

    def on_train_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Say so if the statistics of a loader before were of no use."""
        if self._run.resized is not None:
            warnings.warn(OTHER_BATCH_SIZE.format(*self._run.resized), stacklevel=2)
            self._run.resized = None

    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int) -> None:
        """Let `loss` know whose batch it is."""
        vars(pl_module)[StepUnderWay.NAME] = StepUnderWay(self._loader)

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Check that the batch was observed, report once an interval, and end a run that has made its progress."""
        vars(pl_module).pop(StepUnderWay.NAME, None)
        loader = self._loader
        assert loader is not None
        stepped = not pl_module.automatic_optimization and self._has_stepped(trainer)
        if loader.used():
            self._used = True
        elif outputs or stepped or not (pl_module.automatic_optimization or self._used):
            raise EmaisError(FORGOTTEN_LOSS)  # not if training_step returned None to skip the batch
        self._log(trainer, pl_module, loader.engine)
        if loader.engine.finished:
            trainer.should_stop = True

    def _log(self, trainer: Trainer, module: LightningModule, engine: Engine) -> None:
        self._numbers.step(trainer, module, engine)

    def _has_stepped(self, trainer: Trainer) -> bool:
        """Whether an optimizer has made a step since the batch before."""
        before, self._stepped = self._stepped, trainer.global_step
        return self._stepped > before

    # ---- saving

    def state_dict(self) -> dict[str, Any]:
        """The state of the engine; None before the first batch, so that a tuner can take its steps back."""
        return {"engine": self._run.state(), "schedules": self._following.state()}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take over what `state_dict` gave, at once or when the train DataLoader is known."""
        self._run.load(state_dict["engine"], self._under_way)
        self._following.load(state_dict.get("schedules", []))

    def on_save_checkpoint(self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]) -> None:
        """Leave nothing in the checkpoint that would keep it from being resumed without the callback."""
        checkpoint["loops"]["fit_loop"]["state_dict"].pop("combined_loader", None)

    def on_load_checkpoint(self, trainer: Trainer, pl_module: LightningModule, checkpoint: Mapping[str, Any]) -> None:
        """Say so if a run is resumed from a checkpoint without our state."""
        self._under_way = self._loader is not None
        ours = self.state_key in checkpoint["callbacks"]
        if trainer.state.fn == "fit" and not ours and trainer.is_global_zero:
            warnings.warn(CHECKPOINT_WITHOUT_STATE, stacklevel=2)

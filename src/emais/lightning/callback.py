"""The callback: takes the train DataLoader over, saves and resumes, reports, and says what is wrong."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Mapping
from typing import Any

import lightning
from lightning.pytorch import Callback, LightningModule, Trainer

from ..engine import Engine
from ..errors import EmaisError
from ..log import log_numbers
from ..methods import create
from .checks import FORGOTTEN, NOT_OURS, check_length, check_settings, check_trainer, checked_dataloader
from .training import TrainLoader, train_loader

NO_STATE = (
    "this checkpoint has no state of ImportanceSampling: its statistics begin now, with their warm-up epochs. To go on "
    "without importance sampling, take the callback out of the Trainer"
)
OTHER_BATCH_SIZE = (
    "the batch size of the train DataLoader changed from {} to {}: the statistics of importance sampling start again"
)


class _TrainData(LightningModule):
    """Where the trainer asks for its train DataLoader, instead of where it was told to."""

    def __init__(self, callback: ImportanceSampling, trainer: Trainer, given: Any) -> None:
        super().__init__()
        self.trainer, self._callback, self._given = trainer, callback, given

    def train_dataloader(self) -> TrainLoader:
        """Ask the one whom the trainer would have asked, and take over what it gives."""
        return self._callback.take_over(self.trainer, self._given.dataloader())


class ImportanceSampling(Callback):
    """Trains with importance sampling: ``Trainer(callbacks=[emais.lightning.ImportanceSampling()])``.

    method: as of `emais.create`; rule and scale_decay: as of `Engine.attach`; settings: of the method, such as seed=1.
    In `training_step` call `emais.lightning.loss`. The train DataLoader may come from the module, a data module or
    `Trainer.fit`. Batches, their number and the number of optimizer steps stay as they are without the callback.
    `engine` is the engine, from the first batch on; `engine.summary()` says what it does. It stays for further fits of
    the same module, and its state is part of every checkpoint.
    """

    def __init__(
        self, method: str = "emais-auto", *, rule: str | None = None, scale_decay: bool = True, **settings: Any
    ) -> None:
        check_settings(method, settings)
        self.engine: Engine | None = None
        self._method, self._settings = method, settings
        self._rule, self._scale_decay = rule, scale_decay
        self._module: LightningModule | None = None  # whose statistics the engine has
        self._saved: dict[str, Any] | None = None  # a loaded state, until there is an engine
        self._handles: list[Any] = []
        self._observed = False  # whether this fit has called `loss`
        self._logged = -1

    # ---- the train DataLoader

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Have the trainer ask us for its train DataLoader. The next fit sets this anew, so nothing is left behind."""
        if stage != "fit":
            return
        check_trainer(trainer, pl_module)
        if self._module is not pl_module:
            self._forget()
        self._module, self._observed, self._logged = pl_module, False, -1
        # the one private name: no hook of Lightning's lets a callback give a loader when one is passed to fit
        source: Any = getattr(trainer.fit_loop, "_data_source", None)
        if not hasattr(source, "instance"):
            raise EmaisError(f"Lightning {lightning.__version__} keeps its loaders elsewhere: install lightning 2.6")
        source.instance = _TrainData(self, trainer, copy.copy(source))

    def take_over(self, trainer: Trainer, given: Any) -> TrainLoader:
        """The loader for the trainer in place of the DataLoader that it was given."""
        dataloader = checked_dataloader(given)
        size = dataloader.batch_size
        if self.engine is not None and self.engine.batch_size != size:
            if self in trainer.callbacks:  # not while a tuner tries sizes
                warnings.warn(OTHER_BATCH_SIZE.format(self.engine.batch_size, size), stacklevel=2)
            self._forget()
        if self.engine is None:
            self.engine = self._make_engine(dataloader)
        check_length(dataloader, self.engine.num_samples, "so far")
        return TrainLoader(self.engine, dataloader, trainer, lambda: self._attach(trainer.optimizers))

    def _make_engine(self, dataloader: Any) -> Engine:
        engine = create(self._method, len(dataloader.dataset), dataloader.batch_size, **self._settings)
        if self._saved is not None:
            check_length(dataloader, self._saved["settings"]["num_samples"], "in the checkpoint")
            engine.load_state_dict(self._saved)
            self._saved = None
        return engine

    def _forget(self) -> None:
        """Drop the engine and leave the optimizers as they were."""
        self._attach([])
        self.engine = self._saved = None

    def _attach(self, optimizers: list[Any]) -> None:
        """Let the engine scale the steps of these optimizers, and of no others."""
        if [id(handle.optimizer) for handle in self._handles] == [id(optimizer) for optimizer in optimizers]:
            return
        for handle in self._handles:
            handle.remove()
        self._handles = []
        for optimizer in optimizers:
            assert self.engine is not None
            self._handles.append(self.engine.attach(optimizer, self._rule, scale_decay=self._scale_decay))

    # ---- a step

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Refuse to train on a loader that is not ours."""
        if not isinstance(trainer.train_dataloader, TrainLoader):
            raise EmaisError(NOT_OURS.format(type(trainer.train_dataloader).__name__))

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Check that the batch was observed, report once an interval, and end a run that has made its progress."""
        loader = train_loader(pl_module)
        assert loader is not None
        if loader.observed():
            self._observed = True
        elif outputs or not (pl_module.automatic_optimization or self._observed):
            raise EmaisError(FORGOTTEN)  # not if training_step returned None to skip the batch
        self._log(trainer, pl_module, loader.engine)
        if loader.engine.finished:
            trainer.should_stop = True

    def _log(self, trainer: Trainer, module: LightningModule, engine: Engine) -> None:
        """Log in the steps that the trainer's loggers take in."""
        automatic = module.automatic_optimization
        step = trainer.global_step if automatic else trainer.fit_loop.total_batch_idx + 1
        every = trainer.log_every_n_steps
        if not (every and step) or step % every or step == self._logged or trainer.barebones:
            return
        self._logged, numbers = step, log_numbers(engine, every)
        module.log("emais/n_ems", numbers.pop("emais/n_ems"), prog_bar=True)
        module.log_dict(numbers)

    # ---- saving

    def state_dict(self) -> dict[str, Any]:
        """The state of the engine; None before the first batch, so that a tuner can take its steps back."""
        return {"engine": self._saved if self.engine is None else self.engine.state_dict()}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take over what `state_dict` gave, at once or when the train DataLoader is known."""
        saved = state_dict["engine"]
        if self.engine is None or saved is None:
            self._forget()
            self._saved = saved
        else:
            self.engine.load_state_dict(saved)

    def on_save_checkpoint(self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]) -> None:
        """Leave nothing in the checkpoint that would keep it from being resumed without the callback."""
        checkpoint["loops"]["fit_loop"]["state_dict"].pop("combined_loader", None)

    def on_load_checkpoint(self, trainer: Trainer, pl_module: LightningModule, checkpoint: Mapping[str, Any]) -> None:
        """Say so if a run is resumed from a checkpoint without our state."""
        if trainer.state.fn == "fit" and self.state_key not in checkpoint["callbacks"]:
            warnings.warn(NO_STATE, stacklevel=2)

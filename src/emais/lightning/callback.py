"""The callback: takes the train DataLoader over, saves and resumes, reports, and says what is wrong."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Mapping
from typing import Any

import lightning
from lightning.pytorch import Callback, LightningModule, Trainer

from ..distributed import group_size
from ..engine import Engine
from ..errors import EmaisError
from ..log import log_numbers
from ..methods import create
from ..rates.rules import check_rule
from .checks import (
    FORGOTTEN,
    NOT_OURS,
    check_length,
    check_samples,
    check_settings,
    check_trainer,
    checked_dataloader,
)
from .processes import data_parallel_group
from .training import TrainLoader

HEADLINES = ("emais/n_ems", "emais/score", "emais/lr_scale")  # the first of them is on the progress bar
NO_STATE = (
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

    def train_dataloader(self) -> TrainLoader:
        """Ask the one whom the trainer would have asked, and take over what it gives."""
        return self._callback.take_over(self.trainer, self._given.dataloader())


class ImportanceSampling(Callback):
    """Trains with importance sampling: ``Trainer(callbacks=[emais.lightning.ImportanceSampling()])``.

    method: as of `emais.create`; rule and scale_decay: as of `Engine.attach`; settings: of the method, such as seed=1.
    In `training_step` call `emais.lightning.loss`. The train DataLoader may come from the module, a data module or
    `Trainer.fit`. Batches, their number and the number of optimizer steps stay as they are without the callback.
    With several processes each keeps the statistics of all samples and trains on its share of every minibatch.
    `engine` is the engine, from the first batch on; `engine.summary()` says what it does. It stays for further fits of
    the same module, and its state is part of every checkpoint.
    """

    def __init__(
        self, method: str = "emais-auto", *, rule: str | None = None, scale_decay: bool = True, **settings: Any
    ) -> None:
        check_settings(method, settings)
        if rule is not None:
            check_rule(rule)
        self.engine: Engine | None = None
        self._method, self._settings = method, settings
        self._rule, self._scale_decay = rule, scale_decay
        self._module: LightningModule | None = None  # whose statistics the engine has
        self._saved: dict[str, Any] | None = None  # a loaded state, until there is an engine
        self._group: Any = None  # of the processes that the engine was made with
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
        group = data_parallel_group(trainer, self._settings.get("process_group"))
        if self.engine is not None:
            self._keep(trainer, dataloader.batch_size * group_size(group), group)  # type: ignore[operator]
        if self.engine is None:
            self._group, self.engine = group, self._make_engine(dataloader, group)
        check_length(dataloader, self.engine.num_samples, "so far")
        return TrainLoader(self.engine, dataloader, trainer, lambda: self._attach(trainer.optimizers))

    def _keep(self, trainer: Trainer, samples: int, group: Any) -> None:
        """Keep the statistics that there are, unless a step has another number of samples from now on."""
        assert self.engine is not None
        if self.engine.global_batch_size != samples:
            if self in trainer.callbacks:  # not while a tuner tries sizes
                warnings.warn(OTHER_BATCH_SIZE.format(self.engine.global_batch_size, samples), stacklevel=3)
            self._forget()
        elif self._group is not group:  # other processes go on with them
            saved = self.engine.state_dict()
            self._forget()
            self._saved = saved

    def _make_engine(self, dataloader: Any, group: Any) -> Engine:
        settings = self._settings | {"process_group": group}
        if self._saved is not None:
            check_samples(self._saved["settings"]["batch_size"], dataloader.batch_size, group_size(group))
        engine = create(self._method, len(dataloader.dataset), dataloader.batch_size, **settings)
        if self._saved is not None:
            check_length(dataloader, self._saved["settings"]["num_samples"], "in the checkpoint")
            engine.load_state_dict(self._saved)
            self._saved = None
        return engine

    def _forget(self) -> None:
        """Drop the engine and leave the optimizers as they were."""
        self._attach([])
        self.engine = self._saved = self._group = None

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
        loader = trainer.train_dataloader
        assert isinstance(loader, TrainLoader)
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
        # `log` takes 0.2 ms a number, and 0.7 at its first time: without a logger nobody sees the rest of them
        names = numbers if trainer.loggers else HEADLINES
        for name in names:
            module.log(name, numbers[name], prog_bar=name == HEADLINES[0])

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
        ours = self.state_key in checkpoint["callbacks"]
        if trainer.state.fn == "fit" and not ours and trainer.is_global_zero:
            warnings.warn(NO_STATE, stacklevel=2)

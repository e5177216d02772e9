"""Logs the numbers of a run through a module's `self.log`, and a histogram of r where a logger can show one."""

from __future__ import annotations

from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.loggers import TensorBoardLogger

from ..engine import Engine
from ..log import log_numbers

HEADLINES = ("emais/n_ems", "emais/score", "emais/lr_scale", "emais/projected_n_ems")
ON_BAR = (HEADLINES[3], HEADLINES[0])  # the first that there is: the projected one of an audit


class NumbersLogged:
    """Logs in the steps that the trainer's loggers take in; one for each fit."""

    def __init__(self) -> None:
        self._logged = -1

    def step(self, trainer: Trainer, module: LightningModule, engine: Engine) -> None:
        """A batch was trained on."""
        automatic = module.automatic_optimization
        step = trainer.global_step if automatic else trainer.fit_loop.total_batch_idx + 1
        every = trainer.log_every_n_steps
        if not (every and step) or step % every or step == self._logged or trainer.barebones:
            return
        self._logged, numbers = step, log_numbers(engine, every)
        # `log` takes 0.2 ms a number, and 0.7 at its first time: without a logger nobody sees the rest of them
        on_bar = next(name for name in ON_BAR if name in numbers)
        for name, value in numbers.items():
            if trainer.loggers or name in HEADLINES:
                module.log(name, value, prog_bar=name == on_bar)
        for logger in trainer.loggers:
            if isinstance(logger, TensorBoardLogger) and len(r := engine.diagnostics.r):
                logger.experiment.add_histogram("emais/r", r, step - 1)  # where Lightning puts the numbers

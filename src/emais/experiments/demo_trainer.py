"""Runs one after the other through the loop of the README, on the CPU: the trainer of the demo.

A step costs what it costs a user of the library; `stacked_runs` is for many runs on a GPU.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from ..errors import EmaisError
from .config import Config
from .data import Data
from .runs.leaders import length_of
from .runs.store import Results
from .train.loop import Run, train
from .train.models import SMALL
from .train.stacked_runs import rule_of

# settings that the loop takes
TAKEN = ("lr", "weight_decay", "num_steps", "seed", "batch_size", "rule", "schedule", "follow")
IN_OTHER_WORDS = ("rule", "schedule", "follow")  # as `train` takes them


class PlainLoop:
    """Trains runs by `train.loop.train`; a trainer for `run_all`."""

    def __init__(self, group: Sequence[Config], data: Data, device: torch.device | str, results: Results) -> None:
        for config in group:
            check_demo_config(config)
        self._group, self._data, self._results = group, data, results
        self._runs: list[Run] = []

    def train(self, points: int, on_steps: Callable[[int], None]) -> None:
        """Train to the end. The loop tests the model at every point of its curves, whatever `points` says."""
        for config in self._group:
            given = {name: getattr(config, name) for name in TAKEN if name not in IN_OTHER_WORDS}
            given |= {"rule": rule_of(config), "equal_progress": config.schedule == "progress"}
            if config.follow:
                given["num_steps"] = length_of(config, self._results.read())
            run = train(self._data, SMALL[config.model], config.method, on_step=lambda: on_steps(1), **given)
            self._runs.append(run)
            on_steps(config.num_steps - run.steps)  # planned and not needed

    def finish(self) -> Iterator[tuple[Config, dict[str, Any]]]:
        """(configuration, result) of each run, after `train`."""
        for config, run in zip(self._group, self._runs, strict=True):
            yield config, result_of(run)


def check_demo_config(config: Config) -> None:
    """Refuse settings that the loop would leave aside."""
    plain = Config(config.data, config.model, config.method, **{name: getattr(config, name) for name in TAKEN})
    if config != plain or config.model not in SMALL or config.schedule == "effective" or config.follow == "emais":
        raise EmaisError(f"the plain loop trains small networks, and takes only {', '.join(TAKEN)}: got {config}")


def result_of(run: Run) -> dict[str, Any]:
    """A run in the words of all other records."""
    named = {"loss": "train_loss", "test_step": "step"}
    names = ("step", "loss", "lr", "lr_scale", "n_ems", "score", "test_step", "test_error")
    curves = {name: run.curves[named.get(name, name)] for name in names}
    measured = {"test_error": run.test_error, "steps": run.steps, "ms_per_step": run.ms_per_step}
    return measured | {"side_by_side": 1, "curves": curves}

"""One run of `train()`: the engine, its minibatches, the optimizer that it is attached to, and the state to resume."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from typing import Any

import torch
import torch.distributed as dist

from ..engine import Engine
from ..errors import EmaisError
from ..loading.sources import FOR_WORKERS
from ..log import log_numbers
from ..methods import create
from ..methods.weighted import warn_of_plain_run
from ..rates.effective_steps import minibatches_of
from ..rates.followed import Followed
from .items import ExpectedItems
from .minibatches import DrawnBatches, sizes

STATE_NAME = "emais.pt"  # in a checkpoint folder
_TAKEN = ("collate_fn", "num_workers", "pin_memory", "in_order", *FOR_WORKERS)  # of the Trainer's DataLoader
NO_STATE = (
    "{} has no {}: it was saved by a Trainer without importance sampling, or with save_only_model=True. To go on from "
    "its weights, load the model from that folder and call train() without resume_from_checkpoint"
)


class Session:
    """What one run of `train()` needs; settings: of the engine, and `rule` and `scale_decay` of `attach`.

    plain: the Trainer's own DataLoader. processes: that train the model together, each with a Session.
    """

    def __init__(self, plain: Any, processes: int, settings: Mapping[str, Any]) -> None:
        settings = {"process_group": dist.group.WORLD if processes > 1 else None, **settings}
        attach = ("rule", "scale_decay")
        self._attach = {name: settings.pop(name) for name in attach if name in settings}
        method, samples = settings.pop("method"), len(plain.dataset)
        batch_size, length = sizes(plain, processes)
        self.engine: Engine = create(method, samples, batch_size, **settings)
        self.engine.progress.fewest = 0  # the Trainer has counted the steps of a run
        options = {name: getattr(plain, name) for name in _TAKEN if hasattr(plain, name)}
        if not options["num_workers"]:
            options = {name: value for name, value in options.items() if name not in FOR_WORKERS}
        self.batches = DrawnBatches(self.engine.loader(plain.dataset, **options), length)
        self.items, self.plain = ExpectedItems(samples), plain
        self._handle: Any = None

    def attach(self, optimizer: Any) -> None:
        """Scale the steps of the optimizer, from the first minibatch on."""
        if self._handle is None:
            try:
                self._handle = self.engine.attach(optimizer, **self._attach)
            except EmaisError as error:
                raise EmaisError(in_the_trainers_words(str(error))) from error

    def warn_of_plain_run(self, steps: int, accumulated: int) -> None:
        """Say so if so many optimizer steps end within the warm-up."""
        planned = minibatches_of(steps, len(self.batches), accumulated)
        warn_of_plain_run(self.engine, planned, 'importance={"warmup_epochs": ...}')

    def close(self) -> None:
        """End the worker processes. The optimizer stays attached: a step that nothing was observed for has factor 1."""
        self.batches.dataset.close()

    def detach(self) -> None:
        """Leave the optimizer as it was."""
        if self._handle is not None:
            self._handle.remove()

    def report(self, steps: int) -> dict[str, float]:
        """What is logged: numbers of so many steps, of at most an epoch; those that are finite."""
        return {name: value for name, value in log_numbers(self.engine, steps).items() if math.isfinite(value)}

    def save(self, folder: str, scheduler: Any) -> None:
        """Write the state into a checkpoint folder, with that of a scheduler that follows."""
        state = {"engine": self.engine.state_dict(), "items": self.items.state_dict()}
        if isinstance(scheduler, Followed):
            state["schedule"] = scheduler.schedule.state_dict()
        torch.save(state, os.path.join(folder, STATE_NAME))

    def load(self, folder: str, scheduler: Any) -> None:
        """Go on from the state in a checkpoint folder."""
        state = read_state(folder)
        check_saved(folder, state["engine"].get("settings", {}), self.engine)
        try:
            self.engine.load_state_dict(state["engine"])
        except EmaisError as error:
            raise EmaisError(f"{folder} is of another run, give the same importance= and seed: {error}") from error
        self.items.load_state_dict(state["items"])
        if isinstance(scheduler, Followed):
            scheduler.schedule.load_state_dict(state.get("schedule"))


def in_the_trainers_words(message: str) -> str:
    """What `attach` says of its argument `rule`, as it is given to a Trainer."""
    message = message.replace("pass rule=", 'give importance={"rule": ...} with')
    return message.replace('attach it with rule="none"', 'give importance={"rule": "none"}')


def read_state(folder: str) -> Any:
    """What `Session.save` wrote into a checkpoint folder."""
    path = os.path.join(folder, STATE_NAME)
    if not os.path.isfile(path):
        raise EmaisError(NO_STATE.format(folder, STATE_NAME))
    try:
        return torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # of what a damaged file raises, torch has no common class
        raise EmaisError(f"{path} cannot be read ({error!r}): it is damaged, resume from another checkpoint") from error


def check_saved(folder: str, saved: Mapping[str, Any], engine: Engine) -> None:
    """Refuse the state of a run on other samples or minibatches, in the Trainer's words."""
    samples, size = saved.get("num_samples"), saved.get("batch_size", 0)
    end, here = saved.get("effective_steps"), engine.progress.goal
    if samples != engine.total_samples:
        raise EmaisError(
            f"{folder} is of a run on a data set of {samples} samples, and train_dataset has {engine.total_samples}: "
            "give the data set of that run, or load the model from that folder and train without resume_from_checkpoint"
        )
    if size != engine.global_batch_size:
        processes = engine.global_batch_size // engine.batch_size
        way = f"set per_device_train_batch_size={size / processes:g}"
        if size % processes:
            way = f"start a number of processes that divides {size}"
        raise EmaisError(
            f"{folder} is of a run with minibatches of {size} samples, here {engine.global_batch_size}: {way}"
        )
    if end != here:
        told = [
            "by the Trainer alone" if goal is None else f"after {goal:g} effective minibatches" for goal in (end, here)
        ]
        way = "max_steps or num_train_epochs" if end and here else 'importance={"effective_steps": ...}'
        raise EmaisError(f"{folder} is of a run that ends {told[0]}, here {told[1]}: set the same {way}")

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
from ..log import log_numbers
from ..methods import create
from .items import ExpectedItems
from .minibatches import Minibatches, sizes

STATE_NAME = "emais.pt"  # in a checkpoint folder
_FOR_WORKERS = ("timeout", "multiprocessing_context", "prefetch_factor", "persistent_workers")
_TAKEN = ("collate_fn", "num_workers", "pin_memory", "in_order", *_FOR_WORKERS)  # of the Trainer's DataLoader
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
        options = {name: getattr(plain, name) for name in _TAKEN if hasattr(plain, name)}
        if not options["num_workers"]:
            options = {name: value for name, value in options.items() if name not in _FOR_WORKERS}
        self.batches = Minibatches(self.engine.loader(plain.dataset, **options), length)
        self.items = ExpectedItems(samples)
        self._handle: Any = None

    def attach(self, optimizer: Any) -> None:
        """Scale the steps of the optimizer, from the first minibatch on."""
        if self._handle is None:
            try:
                self._handle = self.engine.attach(optimizer, **self._attach)
            except EmaisError as error:
                raise EmaisError(str(error).replace("pass rule=", 'give importance={"rule": ...} with')) from error

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

    def save(self, folder: str) -> None:
        """Write the state into a checkpoint folder."""
        state = {"engine": self.engine.state_dict(), "items": self.items.state_dict()}
        torch.save(state, os.path.join(folder, STATE_NAME))

    def load(self, folder: str) -> None:
        """Go on from the state in a checkpoint folder."""
        path = os.path.join(folder, STATE_NAME)
        if not os.path.isfile(path):
            raise EmaisError(NO_STATE.format(folder, STATE_NAME))
        state = torch.load(path, map_location="cpu", weights_only=True)
        check_saved(folder, state["engine"].get("settings", {}), self.engine)
        try:
            self.engine.load_state_dict(state["engine"])
        except EmaisError as error:
            raise EmaisError(f"{folder} is of another run, give the same importance= and seed: {error}") from error
        self.items.load_state_dict(state["items"])


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
    if end != here and end and here:
        raise EmaisError(
            f"{folder} is of a run that ends after {end:g} effective minibatches, here after {here:g}: set the same "
            "max_steps or num_train_epochs"
        )

"""What cannot be trained on with importance sampling in Lightning, and what to do instead."""

from __future__ import annotations

import inspect
from typing import Any

from lightning.pytorch import LightningModule, Trainer
from torch.utils.data import DataLoader, IterableDataset

from ..distributed import group_size
from ..errors import EmaisError
from ..loading.loader import Loader
from ..loading.sources import check_iterable, check_plain
from ..methods import METHODS, create
from .processes import check_strategy, group_of_one

_TAKEN = {
    "num_samples": "the train DataLoader's data set has it",
    "batch_size": "the train DataLoader has it",
    "num_steps": "the Trainer says how long it trains",
    "device": "the statistics of a Lightning run live on the CPU",
    "resident": "the statistics of a Lightning run live on the CPU",
}
FORGOTTEN = (
    "training_step did not call emais.lightning.loss, so this batch was trained on without its importance "
    'coefficients: compute the losses with reduction="none" and return emais.lightning.loss(self, losses, logits), or '
    "take the ImportanceSampling callback out of the Trainer"
)
NOT_OURS = (
    "the Trainer trains on {}, not on the loader that ImportanceSampling gave it: another callback or the strategy "
    "has replaced it. Leave that out, or use an engine in a loop of your own"
)


def check_settings(method: str, settings: dict[str, Any]) -> None:
    """Refuse what a callback cannot serve, before anything is trained."""
    for name in settings:
        if name in _TAKEN:
            raise EmaisError(f"ImportanceSampling takes no {name}: {_TAKEN[name]}. Leave it out")
    if method in METHODS and METHODS[method].needs_score:
        raise EmaisError(
            f"{method} scores candidates in a forward pass of its own, which a Trainer has no place for: choose "
            "another method, or use imp.loader(dataset, score=f) in a loop of your own"
        )
    if settings.get("sharded"):
        raise EmaisError(
            f"ImportanceSampling takes no sharded={settings['sharded']!r}: every process of a Lightning run keeps the "
            "statistics of all samples. Leave it out, or use an engine in a loop of your own"
        )
    group_size(settings.get("process_group"))  # says what is wrong with a group
    with group_of_one() as group:
        create(method, 10_000, 1, **settings | {"process_group": group})  # says what is wrong with the rest


def check_trainer(trainer: Trainer, module: LightningModule) -> None:
    """Refuse a Trainer that draws or fetches in a way that ours does not fit."""
    check_strategy(trainer)
    if trainer.overfit_batches:
        raise EmaisError(
            f"overfit_batches={trainer.overfit_batches} trains on the same few batches again and again, and "
            "importance sampling draws its own: use limit_train_batches, or leave the callback out while you overfit"
        )
    if "dataloader_iter" in inspect.signature(module.training_step).parameters:
        raise EmaisError(
            "training_step takes dataloader_iter and fetches batches itself, so nobody knows which draw belongs to "
            "them: write training_step(self, batch, batch_idx)"
        )


def checked_dataloader(given: Any) -> DataLoader[Any]:
    """The one train DataLoader whose batches an engine can draw instead."""
    if isinstance(given, Loader):
        raise EmaisError(
            "the train loader belongs to an engine already, and the callback makes one of its own: give the Trainer a "
            "torch DataLoader"
        )
    if not isinstance(given, DataLoader):
        raise EmaisError(
            f"importance sampling needs one torch DataLoader to train on, got {_named(given)}: give the Trainer a "
            "single DataLoader, perhaps of a torch.utils.data.ConcatDataset"
        )
    try:
        if isinstance(given.dataset, IterableDataset):
            check_iterable(given.dataset)
        check_plain(given)
    except EmaisError as error:
        raise EmaisError(
            f"the train DataLoader cannot be taken over: {error}. In Lightning, make it with batch_size= and "
            "shuffle=True, and without a sampler"
        ) from None
    return given


def _named(given: Any) -> str:
    if isinstance(given, list | tuple | dict):
        return f"a {type(given).__name__} of {len(given)} train loaders"
    return f"a {type(given).__name__}"


def check_length(given: DataLoader[Any], num_samples: int, whose: str) -> None:
    """Refuse a data set of another length than the statistics are of."""
    if (length := len(given.dataset)) != num_samples:  # type: ignore[arg-type]
        raise EmaisError(
            f"the train data set has {length} samples, and the statistics {whose} are of {num_samples}: train on the "
            "same data set, or make a new ImportanceSampling and fit without ckpt_path to begin new statistics"
        )


def check_samples(saved: int, batch_size: int, processes: int) -> None:
    """Refuse a checkpoint of a run that trained on another number of samples a step."""
    if saved != batch_size * processes:
        way = f"give its DataLoader batch_size={saved // processes}"
        raise EmaisError(
            f"the checkpoint is of a run with {saved} samples a step over all processes, this Trainer takes "
            f"{processes} x {batch_size}: "
            + (f"use a number of processes that divides {saved}" if saved % processes else way)
            + ", or fit without ckpt_path"
        )

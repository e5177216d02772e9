"""What cannot be trained on with importance sampling in Lightning, and what to do instead."""

from __future__ import annotations

import inspect
from typing import Any

from lightning.pytorch import LightningModule, Trainer
from torch import Tensor
from torch.utils.data import DataLoader, IterableDataset

from ..distributed import group_size
from ..engine import Engine
from ..errors import EmaisError
from ..loading.draw import Draw
from ..loading.engine_loader import EngineLoader
from ..loading.sources import check_iterable, check_plain
from ..methods import METHODS, create
from ..rates.attached import checked_optimizer, innermost
from ..rates.rules import default_rule
from .processes import check_strategy, group_of_one

_TAKEN = {
    "num_samples": "the train DataLoader's data set has it",
    "batch_size": "the train DataLoader has it",
    "num_steps": "the Trainer says how long it trains",
    "device": "the statistics of a Lightning run live on the CPU",
    "resident": "the statistics of a Lightning run live on the CPU",
}
FORGOTTEN_LOSS = (
    "training_step did not call emais.lightning.loss, so this batch was trained on without its importance "
    'coefficients: compute the losses with reduction="none" and return emais.lightning.loss(self, losses, logits), or '
    "take the ImportanceSampling callback out of the Trainer"
)
TWICE = (
    "emais.lightning.loss was called twice for this batch, and each batch is observed once. For further losses on it, "
    "as of a second forward pass or another head, call emais.lightning.loss(self, losses, logits, observe=False). An "
    "optimizer that evaluates its closure several times, such as LBFGS, cannot be used"
)
BY_HAND = (
    "The schedulers of a module that optimises manually do not follow: train at a constant rate, or with automatic "
    "optimisation"
)
OTHER_END = (
    "the run that goes on ends {}, this fit ends {}: give the Trainer the max_epochs and max_steps of that run, and "
    "ImportanceSampling its effective_steps"
)
ANOTHER_RUN = (
    "the checkpoint is of a run with {}, here it is {}: give ImportanceSampling({}), or fit without ckpt_path to begin "
    "new statistics"
)
CHECKED = ("num_samples", "batch_size", "effective_steps")  # settings of a state that have checks of their own
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
    if settings.get("effective_steps") is True:  # the Trainer will say how many
        settings = settings | {"effective_steps": 10_000}
    with group_of_one() as group:
        create(method, 10_000, 1, **settings | {"process_group": group})  # says what is wrong with the rest


def check_trainer(trainer: Trainer, module: LightningModule) -> None:
    """Refuse a Trainer that draws or fetches in a way that ours does not fit."""
    if not isinstance(trainer, Trainer):
        raise EmaisError(
            f"the Trainer is {type(trainer).__module__.split('.')[0]}'s, and its classes are not those of lightning, "
            "which the callback is made of: write import lightning.pytorch as pl instead"
        )
    check_strategy(trainer)
    if getattr(module, "_compiler_ctx", None):  # Lightning's mark of a module that was compiled as a whole
        raise EmaisError(
            "torch.compile(module) would compile emais.lightning.loss, too, which reads gradients in the middle of a "
            "step: compile the network alone, self.net = torch.compile(self.net) in the module's __init__"
        )
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
    if isinstance(given, EngineLoader):
        raise EmaisError(
            "the train loader belongs to an engine already, and the callback makes one of its own: give the Trainer a "
            "torch DataLoader"
        )
    if not isinstance(given, DataLoader):
        raise EmaisError(
            f"importance sampling needs one torch DataLoader to train on, got {_named(given)}: give the Trainer a "
            "single DataLoader, perhaps of a torch.utils.data.ConcatDataset"
        )
    way = ""
    try:
        if isinstance(given.dataset, IterableDataset):
            check_iterable(given.dataset)
        way = ". In Lightning, make it with batch_size= and shuffle=True, and without a sampler"
        check_plain(given)
    except EmaisError as error:
        raise EmaisError(f"the train DataLoader cannot be taken over: {error}{way}") from None
    return given


def check_optimizers(optimizers: list[Any], usual: str) -> None:
    """Refuse optimizers that have no common rule of their own; usual: the method's."""
    if any(type(optimizer).__name__ == "_MockOptimizer" for optimizer in optimizers):
        raise EmaisError(
            "configure_optimizers gave no optimizer, so nothing would be trained: return one, or take the "
            "ImportanceSampling callback out of the Trainer"
        )
    own = [checked_optimizer(innermost(optimizer)) for optimizer in optimizers]
    try:
        rules = {type(optimizer).__name__: default_rule(optimizer, usual) for optimizer in own}
    except EmaisError as error:
        raise EmaisError(f"{error}. In Lightning: ImportanceSampling(rule=...)") from None
    if len(set(rules.values())) > 1:
        suits = " and ".join(f"{rule} suits {name}" for name, rule in rules.items())
        raise EmaisError(
            f"all optimizers of a run share one rule, but {suits}: choose one, such as "
            'ImportanceSampling(rule="none"), which leaves the rates alone'
        )


def check_first(draw: Draw) -> None:
    """Refuse to observe a batch again."""
    if draw._record.used:
        raise EmaisError(TWICE)


def check_unobserved(losses: Tensor, draw: Draw, options: dict[str, Any]) -> None:
    """Refuse what a loss that is not observed cannot use."""
    if options:
        raise EmaisError(f"with observe=False nothing looks at {', '.join(options)}: leave it out")
    if losses.shape != draw.r.shape:
        raise EmaisError(
            f"losses must be one number per sample, shape {tuple(draw.r.shape)}, got {tuple(losses.shape)}: compute "
            'the loss with reduction="none"'
        )


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


def check_alike(saved: dict[str, Any], engine: Engine) -> None:
    """Refuse a checkpoint of a run with another method or other settings; saved: the state of its engine."""
    method, here = saved["method"], engine.saved_settings()
    if method != engine.name:
        raise EmaisError(ANOTHER_RUN.format(f"the method {method!r}", repr(engine.name), repr(method)))
    for name, value in saved["settings"].items():
        if name not in CHECKED and name in here and repr(value) != repr(here[name]):
            raise EmaisError(ANOTHER_RUN.format(f"{name}={value!r}", repr(here[name]), f"..., {name}={value!r}"))


def check_end(saved: float | None, here: float | None) -> None:
    """Refuse to go on with a run that ends elsewhere."""
    if saved != here:
        told = ["where the Trainer says" if end is None else f"after {end:g} effective steps" for end in (saved, here)]
        raise EmaisError(OTHER_END.format(*told))

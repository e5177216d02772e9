"""What cannot be used together with importance sampling in a Trainer, and what to do instead."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import torch.distributed as dist
from accelerate.data_loader import BatchSamplerShard, DataLoaderDispatcher, SeedableRandomSampler
from torch import Tensor
from torch.utils.data import BatchSampler, IterableDataset, RandomSampler
from transformers import Trainer

from ..errors import EmaisError, UnknownOption, shortly
from ..loading.draw import Draw
from ..methods import METHODS, create
from ..rates.rules import check_rule

WAY_OUT = (
    "pass compute_loss_func=f with f(outputs, labels, num_items_in_batch) -> losses of shape (N,), one per sample, "
    "which are then averaged"
)
AUXILIARY = "the model's {} belongs to no sample: switch output_router_logits off in its config"
DECIDED = {
    "num_samples": "len(train_dataset)",
    "batch_size": "args.per_device_train_batch_size",
    "num_steps": "args.max_steps or args.num_train_epochs",
    "process_group": "the processes that torchrun or accelerate launch has started",
    "sharded": "giving every process the whole train_dataset",
}


def checked_settings(importance: Any) -> dict[str, Any]:
    """The settings given as `importance=`, with the default method; those that the Trainer decides are refused."""
    if importance is not None and not isinstance(importance, Mapping):
        raise EmaisError(f'importance must be a dict such as {{"method": "emais"}}, got {shortly(importance)}')
    settings = {"method": "emais-auto", **(importance or {})}
    if settings.get("effective_steps", False) not in (True, False):
        raise EmaisError(
            f"importance has effective_steps={shortly(settings['effective_steps'])}: the Trainer decides by max_steps "
            "or num_train_epochs what the steps are to be worth: pass effective_steps=True"
        )
    for name in settings.keys() & DECIDED.keys():
        raise EmaisError(f"importance has {name!r}, which the Trainer decides by {DECIDED[name]}: leave it out")
    if settings["method"] == "presampling":
        raise EmaisError(
            "presampling scores candidates in a forward pass of its own, which a Trainer has no place for: choose "
            "another method, or write a plain loop (examples/01_five_lines/after.py)"
        )
    others = ("method", "rule", "scale_decay", "effective_steps")
    if settings["method"] in METHODS:
        known = ({*METHODS[settings["method"]].settings()} | {*others}) - DECIDED.keys()
        for name in settings.keys() - known:
            raise UnknownOption("importance", name, known)
    engine = {name: value for name, value in settings.items() if name not in others}
    if not (dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1):  # those make it together
        create(settings["method"], 10_000, 1, **engine)  # says what is wrong with the rest
    if settings.get("rule") is not None:
        check_rule(settings["rule"])
    return settings


def check_order(cls: type, mixin: type) -> None:
    """Refuse a class whose Trainer comes before the mixin, and would so be asked first."""
    order = cls.__mro__
    if Trainer in order and order.index(Trainer) < order.index(mixin):
        trainer = next(base for base in cls.__bases__ if issubclass(base, Trainer))
        raise EmaisError(
            f"{cls.__name__} would train without importance sampling, because {trainer.__name__} comes before "
            f"{mixin.__name__}: write class {cls.__name__}({mixin.__name__}, {trainer.__name__})"
        )


def check_arguments(trainer: Any) -> None:
    """Refuse settings of a run that would not train on what was drawn."""
    args, processes = trainer.args, int(os.environ.get("WORLD_SIZE") or 1)
    if processes > max(1, args.world_size):
        raise EmaisError(
            f"WORLD_SIZE={processes} says that this is one of several processes, but the Trainer knows of "
            f"{args.world_size}, so all would draw the same minibatches: start them with torchrun or accelerate "
            "launch, with use_cpu=True where there is no GPU, or unset WORLD_SIZE"
        )
    if getattr(trainer.accelerator, "parallelism_config", None) or getattr(trainer.model, "_tp_size", None):
        raise EmaisError(
            "processes that share a minibatch (tensor, context or sequence parallelism) are not supported in a "
            "Trainer: leave parallelism_config and tp_plan out, or write a plain loop with process_group="
        )
    if args.n_gpu > 1:
        raise EmaisError(f"{args.n_gpu} GPUs in one process are not supported: set CUDA_VISIBLE_DEVICES to one of them")
    if trainer.is_deepspeed_enabled or trainer.is_fsdp_enabled:
        raise EmaisError("DeepSpeed and FSDP are not supported: leave deepspeed= and fsdp= out of the arguments")
    if args.auto_find_batch_size:
        raise EmaisError("auto_find_batch_size=True changes the minibatch size: set per_device_train_batch_size")
    if getattr(args, "loss_type", "nll") not in (None, "nll"):  # of TRL
        raise EmaisError(f"loss_type={args.loss_type!r} has no per-sample form here: leave it at 'nll'")
    check_train_dataset(trainer.train_dataset)


def check_train_dataset(dataset: Any) -> None:
    """Refuse a data set that cannot be drawn from by index."""
    if isinstance(dataset, IterableDataset) or (dataset is not None and not hasattr(dataset, "__len__")):
        raise EmaisError(
            f"train_dataset is a {type(dataset).__name__}, which has no length: importance sampling picks samples by "
            "index, so give a data set with __getitem__ and __len__, not a streamed one"
        )


def check_sampler(plain: Any, strategy: str) -> None:
    """Refuse a training DataLoader with an order of its own, which would be lost."""
    batches = plain.batch_sampler
    if isinstance(batches, BatchSamplerShard):  # of one process among several
        batches = batches.batch_sampler
    sampler = getattr(batches, "sampler", None)
    if isinstance(plain, DataLoaderDispatcher):
        raise EmaisError(
            "dispatch_batches=True lets one process read the data of all, and each reads its own samples here: leave "
            "it out of accelerator_config"
        )
    if strategy != "random":
        raise EmaisError(
            f"train_sampling_strategy={strategy!r} chooses the order of samples, and so does importance sampling: "
            "leave it at 'random'"
        )
    if type(batches) is not BatchSampler or type(sampler) not in (RandomSampler, SeedableRandomSampler):
        found = type(batches).__name__ if type(batches) is not BatchSampler else type(sampler).__name__
        raise EmaisError(
            f"the training DataLoader has a sampler of its own, {found}, and the engine draws the samples instead: "
            "leave get_train_dataloader and the sampler as Trainer has them, or train on a torch.utils.data.Subset"
        )


def logits_of(outputs: Any, model: Any) -> Tensor:
    """The logits among a model's outputs."""
    if getattr(outputs, "aux_loss", None) is not None:
        raise EmaisError(AUXILIARY.format("aux_loss"))
    found = outputs.get("logits") if isinstance(outputs, Mapping) else outputs[0]
    if not isinstance(found, Tensor):
        names = ", ".join(outputs) if isinstance(outputs, Mapping) else f"a {type(found).__name__} first"
        raise EmaisError(
            f"{type(model).__name__} returned no logits, only {names}: importance sampling takes the gradient of each "
            "sample's loss with respect to them; use a model with one head that returns logits"
        )
    return found


def users_losses(given: Any, outputs: Any, labels: Any) -> Any:
    """What compute_loss_func returns; one that needs num_items_in_batch is told that it is not divided by here."""
    try:
        return given(outputs, labels, num_items_in_batch=None)
    except TypeError as error:
        raise EmaisError(
            f"compute_loss_func raised TypeError: {error}. It is called with num_items_in_batch=None, because it must "
            "return losses of shape (N,), one per sample, which are weighted and averaged here"
        ) from error


def checked_samples(what: str, found: Any, draw: Draw) -> Tensor:
    """What must be one number per sample, or say what it is instead."""
    if isinstance(found, Tensor) and found.shape == (len(draw),):
        return found
    got = f"shape {tuple(found.shape)}" if isinstance(found, Tensor) else f"a {type(found).__name__}"
    raise EmaisError(
        f"{what} of a minibatch of {len(draw)} samples must be of shape ({len(draw)},), got {got}: {WAY_OUT}. "
        "Leave packing and padding_free off, which put several samples into one row"
    )

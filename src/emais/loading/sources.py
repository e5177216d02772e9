"""What a loader is made of: a data set and options of torch's DataLoader, or a DataLoader that has both."""

from __future__ import annotations

import inspect
from typing import Any

import torch.distributed as dist
from torch.utils.data import BatchSampler, DataLoader, IterableDataset, RandomSampler, SequentialSampler

from ..errors import EmaisError, UnknownOption
from .by_index import GIVE_LENGTH, is_indexable

DECIDED_HERE = ("batch_size", "shuffle", "sampler", "batch_sampler", "drop_last", "dataset")
# a DataLoader's generator gave its order and seeded its workers: both follow from the engine's seed now
_NOT_TAKEN = (*DECIDED_HERE, "generator")
FOR_WORKERS = ("prefetch_factor", "persistent_workers", "timeout", "multiprocessing_context")


def check_dataset(dataset: Any, num_samples: int, what: str = "engine") -> None:
    """Refuse what cannot be drawn from by index, and what has another length than the engine, or another `what`."""
    iterable = isinstance(dataset, IterableDataset)
    if iterable:
        check_iterable(dataset)
    if not hasattr(dataset, "__len__") or not is_indexable(dataset):
        hint = ": pass its .dataset" if hasattr(dataset, "dataset") else ""
        raise EmaisError(f"the data set needs __getitem__ and __len__, {type(dataset).__name__} lacks one{hint}")
    if len(dataset) != num_samples:
        way = f". If it has more than its len(), {GIVE_LENGTH}" if iterable else ""
        made = f"the engine was made for num_samples={num_samples}: make it with num_samples=len(dataset)"
        if what == "sampler":
            made = f"the sampler {num_samples} weights: make it with one weight for each sample"
        raise EmaisError(f"the data set has {len(dataset)} samples, {made}{way}")


def check_iterable(dataset: IterableDataset[Any]) -> None:
    """Refuse an IterableDataset that cannot be read by index, or that may be longer than it says."""
    name = type(dataset).__name__
    if not is_indexable(dataset):
        raise EmaisError(
            f"{name} is an IterableDataset: the loader picks samples by index, so it needs a data set with __getitem__ "
            "and __len__"
        )
    if not hasattr(dataset, "__len__"):
        raise EmaisError(f"{name} has no len(): {GIVE_LENGTH}")
    if dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1:
        raise EmaisError(f"{name} is an IterableDataset, and its len() may be that of one process: {GIVE_LENGTH}")


def check_engine(engine: Any, score: Any) -> None:
    """Refuse an engine that loads no data, and a scoring pass that a method has no use for."""
    if score is not None and not engine.needs_score:
        raise EmaisError(f"{engine.name} needs no score=: only presampling looks at candidates before it draws")
    if engine.arrays.resident:
        raise EmaisError(
            f"this engine is resident on {engine.device}: call draw() and index data that lies there, or make the "
            "engine without device= and resident= to load data through a DataLoader (the model may be anywhere)"
        )


def check_options(options: dict[str, Any], what: str = "engine") -> None:
    """Refuse DataLoader options that are the engine's, or another `what`'s, to decide, and unknown ones."""
    known = set(inspect.signature(DataLoader).parameters) - set(DECIDED_HERE)
    for name in options:
        if name in DECIDED_HERE:
            raise EmaisError(f"{name} is the {what}'s to decide, because it draws the minibatches: leave it out here")
        if name not in known:
            raise UnknownOption("loader()", name, known)


def take_over(
    loader: DataLoader[Any], batch_size: int, options: dict[str, Any], what: str = "engine"
) -> dict[str, Any]:
    """The options of a DataLoader, with the ones given beside it in place of its own.

    A DataLoader whose order is more than a plain scan or shuffle of its data set is refused: what its sampler does
    would be lost. Its `drop_last` changes nothing, because our minibatches always have N samples.

    >>> loader = DataLoader(range(10), batch_size=5, shuffle=True, num_workers=2)
    >>> take_over(loader, 5, {"num_workers": 0})["num_workers"]
    0
    """
    check_plain(loader, what)
    check_batch_size(loader, batch_size, what)
    taken = {name: getattr(loader, name, default) for name, default in _defaults().items()}
    if not options.get("num_workers", taken["num_workers"]):
        taken = {name: value for name, value in taken.items() if name not in FOR_WORKERS}
    return taken | options


def _defaults() -> dict[str, Any]:
    """The options that are taken over, with torch's defaults; an older torch has fewer."""
    parameters = inspect.signature(DataLoader).parameters
    return {name: p.default for name, p in parameters.items() if name not in _NOT_TAKEN}


def check_plain(loader: DataLoader[Any], what: str = "engine") -> None:
    """Refuse a DataLoader that does more than put samples of its data set together, in order or shuffled."""
    kind, batches = type(loader), loader.batch_sampler
    ours = "imp.loader" if what == "engine" else f"{what}.loader"
    if kind.__iter__ is not DataLoader.__iter__:
        raise EmaisError(
            f"{kind.__name__} iterates in a way of its own, which would be lost: pass the DataLoader that it was made "
            f"from, or its data set, {ours}(dataloader.dataset, num_workers=...)"
        )
    if type(batches) is not BatchSampler:
        option = "batch_size=None" if batches is None else f"batch_sampler={type(batches).__name__}"
        raise EmaisError(
            f"the DataLoader has {option}, and the {what} draws its own minibatches: make the DataLoader with "
            f"batch_size=, or pass its data set, {ours}(dataloader.dataset, collate_fn=...)"
        )
    if not is_whole_pass(batches.sampler, loader.dataset):
        raise EmaisError(
            f"the DataLoader has a sampler of its own, {_named(batches.sampler)}, and the {what} draws the samples "
            f"instead: to do without that sampler, pass the data set, {ours}(dataloader.dataset, num_workers=...); "
            "to train on a part of the data, make a torch.utils.data.Subset of it"
        )


def is_whole_pass(sampler: Any, dataset: Any) -> bool:
    """Whether a sampler gives each sample of a data set once, in order or shuffled: what `shuffle=` makes."""
    if isinstance(dataset, IterableDataset):  # torch takes no sampler for it
        return True
    plain = type(sampler) is SequentialSampler or (type(sampler) is RandomSampler and not sampler.replacement)
    return plain and len(sampler) == len(dataset)


def _named(sampler: Any) -> str:
    """A sampler as it reads in a message."""
    size = f" of {len(sampler)} samples" if hasattr(sampler, "__len__") else ""
    with_replacement = " with replacement" if getattr(sampler, "replacement", False) else ""
    return f"{type(sampler).__name__}{with_replacement}{size}"


def check_batch_size(loader: DataLoader[Any], batch_size: int, what: str = "engine") -> None:
    """Refuse a DataLoader whose minibatches are not as large as those of the engine, or another `what`."""
    batches = loader.batch_sampler
    if isinstance(batches, BatchSampler) and batches.batch_size != batch_size:
        raise EmaisError(
            f"the DataLoader has batch_size={batches.batch_size}, the {what} batch_size={batch_size}: make the {what} "
            f"with batch_size={batches.batch_size}"
        )

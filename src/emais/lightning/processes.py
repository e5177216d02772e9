"""Which processes of a Trainer train one model together, each on samples of its own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch.distributed as dist
from lightning.pytorch import Trainer
from lightning.pytorch.strategies import DDPStrategy, DeepSpeedStrategy, FSDPStrategy, ModelParallelStrategy, Strategy
from torch.utils.data import DataLoader, DistributedSampler, RandomSampler

from ..distributed import group_size
from ..errors import EmaisError
from ..loading.sources import take_over

# all of them average gradients over the processes that have samples of their own
DATA_PARALLEL = (DDPStrategy, FSDPStrategy, ModelParallelStrategy)


def check_strategy(trainer: Trainer) -> None:
    """Refuse several processes under a strategy of which nobody has shown that it fits."""
    strategy = trainer.strategy
    fits = isinstance(strategy, DATA_PARALLEL) and not isinstance(strategy, DeepSpeedStrategy)
    if trainer.world_size > 1 and not fits:
        raise EmaisError(
            f"the Trainer has {trainer.world_size} processes under {type(strategy).__name__}, which importance "
            'sampling was not made for: use strategy="ddp", "fsdp" or ModelParallelStrategy, or Trainer(devices=1, '
            "num_nodes=1)"
        )


def data_parallel_group(trainer: Trainer, given: Any) -> Any:
    """The group that an engine of this Trainer needs, if none was given; None: this process trains alone."""
    if given is not None or trainer.world_size == 1:
        return given
    group = _group_of(trainer.strategy)
    found = {"num_replicas": group_size(group), "rank": dist.get_rank(group)}
    if found != (sampled := trainer.distributed_sampler_kwargs):
        raise EmaisError(
            f"{type(trainer.strategy).__name__} divides the data by {sampled}, its processes are {found}: pass the "
            "group of the processes that have samples of their own, ImportanceSampling(process_group=...)"
        )
    return group


def _group_of(strategy: Strategy) -> Any:
    if isinstance(strategy, ModelParallelStrategy):
        return strategy.device_mesh["data_parallel"].get_group()
    return dist.group.WORLD


def share_of(given: DataLoader[Any], group: Any) -> DataLoader[Any]:
    """What this process would train on without importance sampling: with a DistributedSampler, as Lightning does it."""
    if group_size(group) == 1:
        return given
    assert given.batch_size is not None  # it was checked
    shuffle = isinstance(given.sampler, RandomSampler)
    sampler: Any = DistributedSampler(given.dataset, group_size(group), dist.get_rank(group), shuffle=shuffle)
    options = take_over(given, given.batch_size, {})
    return DataLoader(given.dataset, given.batch_size, sampler=sampler, drop_last=given.drop_last, **options)


@contextmanager
def group_of_one() -> Iterator[Any]:
    """A group of this process alone where there are several, and None where there is one: for a trial of settings."""
    if not (dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1):
        yield None
        return
    group = dist.new_group([dist.get_rank()], backend="gloo", use_local_synchronization=True)
    try:
        yield group
    finally:
        dist.destroy_process_group(group)

"""Which processes of a Trainer train one model together, each on samples of its own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch.distributed as dist
from lightning.pytorch import Trainer
from lightning.pytorch.strategies import DDPStrategy, DeepSpeedStrategy, FSDPStrategy, ModelParallelStrategy, Strategy
from torch.utils.data import DataLoader

from ..distributed import group_size
from ..errors import EmaisError

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


def batches_of_an_epoch(given: DataLoader[Any], processes: int) -> int:
    """Batches of one process, as many as with the DistributedSampler that Lightning puts into a DataLoader."""
    own = -(-len(given.dataset) // processes)  # type: ignore[arg-type]
    assert given.batch_size is not None  # it was checked
    return own // given.batch_size if given.drop_last else -(-own // given.batch_size)


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

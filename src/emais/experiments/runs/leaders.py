"""Runs that follow another: whom they follow, and the minibatch sizes or the length that its record gives them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

import emais

from ...errors import EmaisError
from ..config import STEADY, Config
from ..data import Data
from ..train.stacked_runs import rule_of
from .record import Record, run_key


def leader_of(config: Config) -> Config:
    """The run that this one follows."""
    if config.follow == "progress":
        return replace(config, method="emais-auto", rule=STEADY[config.optimizer], schedule="progress", follow="")
    return replace(config, method="emais", follow="")


def check_leader(config: Config, known: Collection[Any]) -> None:
    """Say that the run to follow is not among those whose keys are known, or that it cannot be followed."""
    leader = leader_of(config)
    if config.follow == "emais" and rule_of(leader) != "linear":
        raise EmaisError(f"follow= needs the rule linear, whose factor is N_ems/N, got {rule_of(leader)}")
    if leader.key() not in known:
        words = " at equal progress" if config.follow == "progress" else ""
        raise EmaisError(
            f"there is no run of {leader.method}{words} with seed {config.seed} and {config.num_steps} steps to "
            "follow: run it first"
        )


def record_to_follow(config: Config, records: Sequence[Record]) -> Record:
    """The record of the run that this one follows."""
    check_leader(config, {run_key(r) for r in records})
    leader = leader_of(config).key()
    return next(r for r in records if run_key(r) == leader)


def length_of(config: Config, records: Sequence[Record]) -> int:
    """The steps of a run: its own, or those that a run at equal progress took."""
    return int(record_to_follow(config, records)["steps"]) if config.follow == "progress" else config.num_steps


def recorded_sizes(config: Config, records: Sequence[Record], warmup: int = 0) -> Tensor:
    """Minibatch sizes (num_steps,) int64: N times the mean factor of the same run by EMAIS, and N in its warm-up."""
    found = record_to_follow(config, records)
    ends, factors = (np.array(found["curves"][name]) for name in ("step", "lr_scale"))
    lengths = np.diff(ends, prepend=0)
    before = np.clip(warmup - (ends - lengths), 0, lengths)  # steps of a point that are in the warm-up, with factor 1
    after = (lengths * factors - before) / np.maximum(lengths - before, 1)
    every = np.where(np.arange(config.num_steps) < warmup, 1.0, np.repeat(after, lengths))
    return torch.from_numpy(config.batch_size * every).round().long().clamp(min=1)


def sizes_to_follow(configs: Sequence[Config], data: Data, records: Sequence[Record]) -> Tensor:
    """The sizes (runs, num_steps) of runs that follow others, from the records of these."""
    return torch.stack([recorded_sizes(c, records, warmup_steps(c, data)) for c in configs])


def warmup_steps(config: Config, data: Data) -> int:
    """Steps of EMAIS's warm-up, in which all minibatches have N samples."""
    return emais.EMAIS(len(data.x_train), config.batch_size).epoch_steps or 0

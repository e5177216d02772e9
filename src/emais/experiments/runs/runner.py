"""Runs configurations and writes each finished run down; what has a record already is not run again."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import torch

import emais

from ...errors import EmaisError, positive_float
from ..config import Config
from ..data import Data, load
from ..progress import ProgressLine
from ..train.following import FollowingRuns
from ..train.loop import initialised
from ..train.models import SMALL
from ..train.parallel_resnets import ParallelResNets
from ..train.stacked_runs import StackedRuns
from .leaders import check_leader, length_of, sizes_to_follow
from .machine import can_compile, check_device, check_memory, release, runs_that_fit
from .provenance import surroundings
from .record import LAYOUT, RunRecord, rounded
from .store import Results

EVALUATIONS = 25  # places of a run where it is tested
BATCH_NORM = ("resnet18", "resnet50")
NEED_ONE_CLASS = ("confidence", "confvar")  # need the probability of a sample's one true class


class Trainer(Protocol):
    """Trains a group of runs."""

    def train(self, points: int, on_steps: Callable[[int], None]) -> None:
        """To the end, with tests at about so many places; `on_steps` hears of steps of all runs together."""

    def finish(self) -> Iterator[tuple[Config, dict[str, Any]]]:
        """(configuration, result) of each run, after `train`."""


MakeTrainer = Callable[[Sequence[Config], Data, torch.device | str, Results], Trainer]


def run_all(
    configs: Sequence[Config],
    path: Path | str,
    *,
    device: torch.device | str = "cpu",
    folder: Path | str | None = None,
    budget: float | None = None,
    look: bool = False,
    trainer: MakeTrainer | None = None,
) -> list[Config]:
    """Run what `path` has no record of, and return what is still missing: a budget of minutes may end it early.

    look: load the data even if nothing is missing, to see whether they are those of the records; trainer: what trains
    the runs of a group, by default the quickest way there is.
    """
    results = Results(path)
    missing = results.missing(list({config.key(): config for config in configs}.values()))
    check_device(device)
    if missing:
        results.must_be_writable(len(missing))
    wanted = configs if look else missing
    data = {name: load(name, folder) for name in {c.data for c in wanted}}  # before training: they may be missing
    check_all(missing, data, results)
    release(device)
    for config in missing:
        check_memory(config, device)
    together = list(groups(missing, partial(runs_that_fit, device=device)))
    end = math.inf if budget is None else time.monotonic() + 60 * positive_float("budget", budget)
    run_groups(together, data, device, results, end, trainer)
    return results.missing(missing)


def run_groups(
    together: Sequence[Sequence[Config]],
    data: Mapping[str, Data],
    device: torch.device | str,
    results: Results,
    end: float,
    trainer: MakeTrainer | None = None,
) -> None:
    """Train group after group and write down each run; none is begun after the time `end`."""
    steps = sum(config.num_steps for group in together for config in group)
    with ProgressLine(total_steps=steps, total_runs=sum(map(len, together))) as progress:
        for planned in together:
            if time.monotonic() > end:
                break
            group = results.missing(list(planned))  # another process may have been quicker
            steps = sum(c.num_steps for c in planned) - sum(c.num_steps for c in group)
            progress.pass_over(len(planned) - len(group), steps)
            if not group:
                continue
            progress.begin_run(label(group))
            for record in run_group(group, data[group[0].data], device, progress.advance, results, trainer):
                results.append(record)
                progress.finish_run()


def check_all(missing: Sequence[Config], data: Mapping[str, Data], results: Results) -> None:
    """Say before training what is wrong with the data, with a run, or with one that is to follow another."""
    records = results.read()
    check_data(data, records, results.path)
    recorded = {record.key for record in records} | {config.key() for config in missing}
    for config in missing:
        check_run(config, data[config.data])
        if config.follow:
            check_leader(config, recorded)


def check_data(data: Mapping[str, Data], records: Sequence[RunRecord], path: Path) -> None:
    """Say that the runs in the file were made with other data of the same name, such as a part of them."""
    for name, own in data.items():
        titles = {r.data_title for r in records if r.get("data") == name and r.data_title is not None}
        if others := sorted(titles - {own.title}):
            raise EmaisError(
                f"{path} has runs on {', '.join(others)}, and the data found here are {own.title}: give "
                "another place with --results"
            )


def check_run(config: Config, data: Data) -> None:
    """Say before training that a method does not take its settings, or a network not the images."""
    emais.create(config.method, len(data.x_train), batch_size=config.batch_size, **config.options)
    if data.multi_label and config.method in NEED_ONE_CLASS:
        raise EmaisError(
            f"{config.method} needs p(true class), with one label per sample. Multi-label targets such as those of "
            f"{data.name} have no such probability; use emais or rais for them"
        )
    if config.follow == "emais" and config.model not in SMALL:
        raise EmaisError(f"only {', '.join(SMALL)} can follow EMAIS's minibatch sizes, got {config.model}")
    if config.model in BATCH_NORM and config.batch_size < 2:
        raise EmaisError(f"{config.model} has BatchNorm, which needs minibatches of two or more: got batch_size=1")
    if config.model in SMALL:
        try:
            initialised(SMALL[config.model], config.seed)(data.scaled(data.x_train[:1]))
        except RuntimeError:
            shape = tuple(data.x_train.shape[1:])
            raise EmaisError(f"{config.model} does not take images of {shape} such as those of {config.data}") from None


def groups(configs: Sequence[Config], size: Callable[[Config], int]) -> Iterator[list[Config]]:
    """Runs that can be trained together, shortest first: up to `size` of each kind."""
    kinds: dict[Any, list[Config]] = {}
    for config in configs:
        kinds.setdefault(config.group(), []).append(config)
    # what follows another run comes after it
    for kind in sorted(kinds.values(), key=lambda runs: (bool(runs[0].follow), runs[0].num_steps)):
        parts = -(-len(kind) // size(kind[0]))
        for k in range(parts):  # parts of about the same size
            yield kind[k * len(kind) // parts : (k + 1) * len(kind) // parts]


def label(group: Sequence[Config]) -> str:
    """What a group of runs is called while it is running."""
    first = group[0]
    if len(group) == 1:
        return f"{first.method} on {first.data} with seed {first.seed}"
    return f"{len(group)} runs of {first.num_steps} steps on {first.data} side by side"


def make_trainer(
    group: Sequence[Config], data: Data, device: torch.device | str, results: Results
) -> StackedRuns | ParallelResNets:
    """Small networks share one forward pass; ResNets have one each, and run at the same time."""
    small, records = SMALL.get(group[0].model), results.read() if group[0].follow else []
    if group[0].follow == "emais" and small is not None:
        return FollowingRuns(group, data, small, device, sizes_to_follow(group, data, records))
    lengths = [length_of(config, records) for config in group]
    if small is None:
        return ParallelResNets(group, data, device, lengths, compiled=can_compile(device))
    return StackedRuns(group, data, small, device, lengths)


def run_group(
    group: Sequence[Config],
    data: Data,
    device: torch.device | str,
    on_steps: Callable[[int], None],
    results: Results,
    trainer: MakeTrainer | None = None,
) -> Iterator[RunRecord]:
    """Train a group and give the record of each run."""
    training = (trainer or make_trainer)(group, data, device, results)
    training.train(EVALUATIONS, on_steps)
    for config, result in training.finish():
        about = {"data_title": data.title, "layout": LAYOUT, **surroundings(device)}
        yield RunRecord(rounded(asdict(config) | result | about))

"""Runs configurations and writes each finished run down; what has a record already is not run again."""

from __future__ import annotations

import gc
import hashlib
import importlib.util
import math
import os
import platform
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from functools import cache, partial
from pathlib import Path
from typing import Any

import torch
from torch import nn

import emais

from ..errors import EmaisError, positive_float, usable_device
from .abreast import Abreast
from .config import Config
from .curves import LOGGED
from .datasets import Data, load
from .demo import perceptron, processor, rounded
from .following import Following, check_leader
from .models import LeNet5, LeNet5ReLU
from .progress import Progress
from .results import LAYOUT, Record, Results, key_of
from .sidebyside import SideBySide
from .training import initialised

SMALL: dict[str, Callable[[], nn.Module]] = {"lenet5": LeNet5, "lenet5-relu": LeNet5ReLU, "perceptron": perceptron}
# runs that share a GPU, if they fit
AT_ONCE = {"lenet5": 96, "lenet5-relu": 96, "perceptron": 96, "resnet18": 4, "resnet18-gn": 4, "resnet50": 3}
EVALUATIONS = 25
MEMORY = {  # bytes a run with minibatches of 128; on a GPU graphs and compiled code reserve more than a step needs
    "cuda": {"lenet5": 200 << 20, "perceptron": 10 << 20, "resnet18": 6 << 30, "resnet50": 24 << 30},
    "cpu": {"lenet5": 8 << 20, "perceptron": 1 << 20, "resnet18": 768 << 20, "resnet50": 1280 << 20},
}
BATCH_NORM = ("resnet18", "resnet50")
ONE_LABEL = ("confidence", "confvar")  # need the probability of a sample's one true class


def run_all(
    configs: Sequence[Config],
    path: Path | str,
    *,
    device: torch.device | str = "cpu",
    folder: Path | str | None = None,
    budget: float | None = None,
    look: bool = False,
) -> list[Config]:
    """Run what `path` has no record of, and return what is still missing: a budget of minutes may end it early.

    look: at the data, even if nothing is missing, to see whether they are those of the records.
    """
    results = Results(path)
    missing = results.missing(list({config.key(): config for config in configs}.values()))
    check_device(device)
    if missing:
        results.must_be_writable(len(missing))
    wanted = configs if look else missing
    data = {name: load(name, folder) for name in {c.data for c in wanted}}  # before training: they may be missing
    records = results.read()
    check_data(data, records, results.path)
    recorded = {key_of(record) for record in records} | {config.key() for config in missing}
    for config in missing:
        check_run(config, data[config.data])
        if config.follow:
            check_leader(config, recorded)
    release(device)
    for config in missing:
        check_memory(config, device)
    together = list(groups(missing, partial(at_once, device=device)))
    end = math.inf if budget is None else time.monotonic() + 60 * positive_float("budget", budget)
    steps = sum(config.num_steps for config in missing)
    with Progress(total_steps=steps, total_runs=len(missing)) as progress:
        for planned in together:
            if time.monotonic() > end:
                break
            group = results.missing(planned)  # another process may have been quicker
            steps = sum(c.num_steps for c in planned) - sum(c.num_steps for c in group)
            progress.pass_over(len(planned) - len(group), steps)
            if not group:
                continue
            progress.begin_run(label(group))
            for record in run_group(group, data[group[0].data], device, progress.advance, results):
                results.append(record)
                progress.finish_run()
    return results.missing(missing)


def check_data(data: Mapping[str, Data], records: Sequence[Record], path: Path) -> None:
    """Say that the runs in the file were made with other data of the same name, such as a part of them."""
    for name, own in data.items():
        titles = {str(r["data_title"]) for r in records if r.get("data") == name and "data_title" in r}
        if others := sorted(titles - {own.title}):
            raise EmaisError(
                f"{path} has runs on {', '.join(others)}, and the data found here are {own.title}: give "
                "another place with --results"
            )


def check_run(config: Config, data: Data) -> None:
    """Say before training that a method does not take its settings, or a network not the images."""
    emais.create(config.method, len(data.x_train), batch_size=config.batch_size, **config.options)
    if data.multi_label and config.method in ONE_LABEL:
        raise EmaisError(
            f"{config.method} needs p(true class), with one label a sample. Multi-label targets such as those of "
            f"{data.name} have no such probability; use emais or rais for them"
        )
    if config.follow and config.model not in SMALL:
        raise EmaisError(f"only {', '.join(SMALL)} can follow another run, got {config.model}")
    if config.model in BATCH_NORM and config.batch_size < 2:
        raise EmaisError(f"{config.model} has BatchNorm, which needs minibatches of two or more: got batch_size=1")
    if config.model in SMALL:
        try:
            initialised(SMALL[config.model], config.seed)(data.scaled(data.x_train[:1]))
        except RuntimeError:
            shape = tuple(data.x_train.shape[1:])
            raise EmaisError(f"{config.model} does not take images of {shape} such as those of {config.data}") from None


def check_device(device: torch.device | str) -> None:
    """Say before anything else that there is no such device."""
    kind = str(device).partition(":")[0]
    if kind not in ("cpu", "cuda"):
        raise EmaisError(f"device must be cpu or cuda, got {str(device)!r}")
    if kind == "cuda" and not torch.cuda.is_available():
        raise EmaisError("there is no CUDA device here: run with --device cpu")
    usable_device(device)


def check_memory(config: Config, device: torch.device | str) -> None:
    """Say before training that a run would not fit into memory."""
    need, free = memory(config, device)
    if need > free:
        where, other = ("GPU memory", "end other programs there, or ") if on_gpu(device) else ("memory", "")
        raise EmaisError(
            f"{config.model} with batch_size={config.batch_size} and num_steps={config.num_steps} needs about "
            f"{need / 2**30:.0f} GiB of {where}, there are {free / 2**30:.0f} GiB: {other}take smaller ones"
        )


def at_once(config: Config, device: torch.device | str) -> int:
    """How many runs such as this are trained together: as many as a GPU has room for, up to `AT_ONCE`."""
    if not on_gpu(device):
        return 1
    need, free = memory(config, device)
    return max(1, min(AT_ONCE[config.model], int(free / need)))


def memory(config: Config, device: torch.device | str) -> tuple[float, float]:
    """Bytes that a run needs, about, and those that there are."""
    need = MEMORY["cuda" if on_gpu(device) else "cpu"][config.model.partition("-")[0]] * config.batch_size / 128
    need += 4 * len(LOGGED) * config.num_steps
    return need, torch.cuda.mem_get_info(device)[0] if on_gpu(device) else machine_memory()


def release(device: torch.device | str) -> None:
    """Give back the GPU memory that torch keeps of runs that are over, so that it counts as free."""
    if on_gpu(device):
        gc.collect()
        torch.cuda.empty_cache()


def on_gpu(device: torch.device | str) -> bool:
    """Whether a device is a GPU."""
    return torch.device(device).type == "cuda"


def machine_memory() -> float:
    """Bytes that the machine has, in use or not: what is in use may only be a cache. No limit where it is not told."""
    if not hasattr(os, "sysconf"):
        return math.inf
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


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
) -> SideBySide | Abreast:
    """Small networks side by side in one forward pass, ResNets abreast, each with its own."""
    small = SMALL.get(group[0].model)
    if small is None:
        return Abreast(group, data, device, compiled=can_compile(device))
    if group[0].follow:
        return Following(group, data, small, device, results.read())
    return SideBySide(group, data, small, device)


def can_compile(device: torch.device | str) -> bool:
    """Whether torch.compile has what it needs."""
    return torch.device(device).type == "cuda" and importlib.util.find_spec("triton") is not None


def run_group(
    group: Sequence[Config],
    data: Data,
    device: torch.device | str,
    on_steps: Callable[[int], None],
    results: Results,
) -> Iterator[dict[str, Any]]:
    """Train a group and give the record of each run."""
    trainer = make_trainer(group, data, device, results)
    trainer.train(EVALUATIONS, on_steps)
    for config, result in trainer.finish():
        yield rounded(asdict(config) | result | {"data_title": data.title, "layout": LAYOUT, **surroundings(device)})


TRAINERS = ("sidebyside", "following", "abreast")  # what a run's numbers come from, with all that these import


@cache
def source_hash() -> str:
    """A short hash of the source that a run's numbers come from: records with the same one were made by the same code.

    That is the library itself and `TRAINERS`, with what they import; tables and pages are not in it.
    """
    root = Path(emais.__file__).parent
    library = (path for path in root.rglob("*.py") if "experiments" not in path.relative_to(root).parts)
    files = {*library, *imported([root / "experiments" / f"{name}.py" for name in TRAINERS])}
    in_order = sorted(files, key=lambda path: path.relative_to(root).as_posix())
    return hashlib.sha256(b"\0".join(path.read_bytes() for path in in_order)).hexdigest()[:12]


def imported(files: Sequence[Path]) -> set[Path]:
    """These files and all modules of their folder, and of folders in it, that they import, one from the other."""
    found: set[Path] = set()
    waiting = list(files)
    while waiting:
        path = waiting.pop()
        if path in found:
            continue
        found.add(path)
        for name in re.findall(r"^from \.(\w+) import", path.read_text("utf-8"), re.M):
            module, package = path.parent / f"{name}.py", path.parent / name
            waiting += [module] if module.exists() else sorted(package.glob("*.py"))
    return found


def surroundings(device: torch.device | str) -> dict[str, str]:
    """Versions and hardware."""
    cuda = torch.device(device).type == "cuda"
    return {
        "emais": emais.__version__,
        "source": source_hash(),
        "torch": str(torch.__version__),
        "python": platform.python_version(),
        "hardware": torch.cuda.get_device_name() if cuda else processor(),
    }

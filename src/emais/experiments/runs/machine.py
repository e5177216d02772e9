"""What a machine has room for: devices, memory, and how many runs at a time."""

from __future__ import annotations

import gc
import importlib.util
import math
import os

import torch

from ...errors import EmaisError, usable_device
from ..config import Config
from ..train.curves import LOGGED

# runs that share a GPU, if they fit
RUNS_PER_GPU = {"lenet5": 96, "lenet5-relu": 96, "perceptron": 96, "resnet18": 4, "resnet18-gn": 4, "resnet50": 3}
MEMORY = {  # bytes a run with minibatches of 128; on a GPU graphs and compiled code reserve more than a step needs
    "cuda": {"lenet5": 200 << 20, "perceptron": 10 << 20, "resnet18": 6 << 30, "resnet50": 24 << 30},
    "cpu": {"lenet5": 8 << 20, "perceptron": 1 << 20, "resnet18": 768 << 20, "resnet50": 1280 << 20},
}


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


def runs_that_fit(config: Config, device: torch.device | str) -> int:
    """How many such runs are trained together: as many as fit into GPU memory, up to `RUNS_PER_GPU`; on a CPU 1."""
    if not on_gpu(device):
        return 1
    need, free = memory(config, device)
    return max(1, min(RUNS_PER_GPU[config.model], int(free / need)))


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


def can_compile(device: torch.device | str) -> bool:
    """Whether torch.compile has what it needs."""
    return torch.device(device).type == "cuda" and importlib.util.find_spec("triton") is not None

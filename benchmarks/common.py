"""Shared by the benchmarks: side-by-side timing, the machine in words, and result files."""

from __future__ import annotations

import json
import platform
import statistics
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import torch

from emais import Engine

NEVER = 2**62
RESULTS = Path(__file__).parent / "results"


def hardware() -> dict[str, object]:
    info: dict[str, object] = {"torch": torch.__version__, "python": platform.python_version()}
    if torch.cuda.is_available():
        info["gpu"] = torch.cuda.get_device_name()
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    cpu = next((x.split(":")[1].strip() for x in lines if x.startswith("model name")), "?")
    return info | {"cpu": cpu, "threads": torch.get_num_threads()}


def wait() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def block_time(step: Callable[[], object], steps: int) -> float:
    wait()
    start = time.perf_counter()
    for _ in range(steps):
        step()
    wait()
    return (time.perf_counter() - start) / steps


def seldom(imp: Engine, steps_per_block: int = 0) -> Callable[[], float]:
    """Put off what a method does every `period` steps (refit, decide, lay out), and say how many ms a step it takes.

    If it happens in every block, as often as it should, there it stays.
    """
    period = getattr(imp, "period", None)
    if not period or (steps_per_block and steps_per_block % period == 0):
        return float
    imp._due = NEVER  # type: ignore[attr-defined]
    return lambda: 1e3 * statistics.median(block_time(imp.reweigh_all, 1) for _ in range(5)) / period  # type: ignore[attr-defined]


class Step:
    """One training step to be called again and again, and what has to be added to its time."""

    def __init__(self, step: Callable[[], object], extra_ms: Callable[[], float] = float) -> None:
        self.step, self.extra_ms = step, extra_ms

    def __call__(self) -> None:
        self.step()


def side_by_side(steps: Mapping[str, Step], steps_per_block: int, blocks: int) -> dict[str, tuple[float, float]]:
    """Milliseconds a step, and their ratio to plain SGD's (the mean of "sgd" and "sgd again"), in blocks by turns.

    Each round times every entry once, in an order that rotates. The ratio is the median over rounds of the ratio within
    a round, so a drift of the machine's speed favours nobody. The time is the lower quartile over rounds: what other
    work on the machine adds is always an addition. A step's `extra_ms` is added to it: what is due too seldom for every
    block to hold it.
    """
    times: dict[str, list[float]] = {name: [] for name in steps}
    for step in steps.values():
        block_time(step, steps_per_block)
    names = list(steps)
    for k in range(blocks):
        for name in names[k % len(names) :] + names[: k % len(names)]:
            times[name].append(1e3 * block_time(steps[name], steps_per_block))
    for name, step in steps.items():
        extra = step.extra_ms()
        times[name] = [ms + extra for ms in times[name]]
    loops = [times[name] for name in ("sgd", "sgd again") if name in times]
    plain = [statistics.mean(pair) for pair in zip(*loops, strict=True)]
    return {
        name: (
            statistics.quantiles(ms, n=4)[0],
            statistics.median(own / base for own, base in zip(ms, plain, strict=True)),
        )
        for name, ms in times.items()
    }


def save(name: str, rows: list[dict[str, object]], folder: Path | None = None) -> Path:
    path = (folder or RESULTS) / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path

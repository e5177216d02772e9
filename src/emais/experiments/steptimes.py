"""The time of a step, as the benchmarks have measured it: tab:per_iter_time, and seconds for a time axis."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from .cells import Cell, Table
from .paper import NAMES, STEP_SECONDS
from .results import Record
from .rows import empty
from .selection import DASH, HEADS, STAR

FILES = ("step_cpu.jsonl", "step_cuda.jsonl", "single_*.jsonl")
FOLDER = Path("benchmarks/results")
MODELS = {"lenet5": "LeNet5", "resnet18": "ResNet18", "resnet50": "ResNet50"}
PAPER_ROWS = {
    "lenet5": ("fmnist", "paper, FMNIST"),
    "resnet18": ("cinic10", "paper, CINIC-10"),
    "resnet50": ("chestxray14", "paper, ChestX-ray14"),
}


def read_timings(folder: Path = FOLDER) -> list[Record]:
    """The step times that the benchmarks have measured; none if there are none."""
    paths = [path for name in FILES for path in sorted(folder.glob(name))]
    return [json.loads(line) for path in paths for line in path.read_text("utf-8").splitlines()]


class Case(NamedTuple):
    """What was timed, on what, and the timing of each method."""

    name: str
    place: str
    methods: dict[str, Record]


def cases(timings: Sequence[Record], model: str = "") -> list[Case]:
    """The measured cases, or those of a model."""
    found: dict[str, Case] = {}
    for timing in timings:
        first, _, rest = str(timing["case"]).partition(" ")
        if model and first.lower() != model:
            continue
        name = f"{MODELS.get(first.lower(), first)} {rest}{', compiled' if timing.get('compiled') else ''}"
        method = "sgd-scan" if timing["method"] == "sgd" else str(timing["method"])
        found.setdefault(name, Case(name, place(timing["hardware"]), {})).methods[method] = timing
    return list(found.values())


def best_case(timings: Sequence[Record], model: str) -> Case | None:
    """The case of a model that knows most methods; among equals one without a data loader, which all runs here lack."""

    def key(case: Case) -> tuple[int, bool]:
        return len(case.methods.keys() & NAMES.keys()), "worker" not in case.name

    return max(cases(timings, model), key=key, default=None)


def cost_table(timings: Sequence[Record]) -> Table:
    """tab:per_iter_time: step times as ratios to plain SGD, with the paper's ratios of the same model below ours."""
    measured = cases(timings)
    rows = [[Cell(case.name), *(ratio_cell(case.methods.get(m), m) for m in NAMES)] for case in measured]
    for model, (data, title) in PAPER_ROWS.items():
        if cases(timings, model):
            rows.append([Cell(title), *(paper_ratio(data, method) for method in NAMES)])
    caption = (
        f"Time of a step relative to SGD-Scan, on {'; '.join(sorted({case.place for case in measured}))}; the paper's "
        "on a Tesla V100. A number in brackets is milliseconds a step. Ours are from alternating blocks of steps "
        f"(hover: the range), {DASH} is not measured; the paper calls its own not suitable for a detailed "
        f"comparison. {STAR}"
    )
    return Table(["case", *HEADS.values()], rows, caption, "Per-step time as a ratio to SGD")


def ratio_cell(timing: Record | None, method: str) -> Cell:
    """Our ratio, and for SGD itself the milliseconds."""
    if timing is None:
        return empty("not measured")
    ratio = float(timing["ratio"])
    hover = f"{timing['ms']:.2f} ms a step, ratio {ratio:.4f}"
    if "ratio_low" in timing:
        hover += f" ({timing['ratio_low']:.3f} to {timing['ratio_high']:.3f})"
    return Cell(f"{ratio:.2f}" + (f" ({timing['ms']:.2f})" if method == "sgd-scan" else ""), sort=ratio, hover=hover)


def paper_ratio(data: str, method: str) -> Cell:
    """The paper's ratio of the same kind."""
    seconds = STEP_SECONDS[data]
    if method not in seconds:
        return Cell("", hover="not in the paper")
    ratio = seconds[method] / seconds["sgd-scan"]
    base = f" ({1e3 * seconds[method]:.1f})" if method == "sgd-scan" else ""
    return Cell(f"{ratio:.2f}{base}", sort=ratio, hover=f"{1e3 * seconds[method]:.3g} ms a step")


def place(machine: Record) -> str:
    """The hardware of a timing."""
    if "gpu" in machine:
        return str(machine["gpu"])
    return f"{machine['cpu']} with {machine['threads']} threads"

"""The time of a step, as the benchmarks have measured it: tab:per_iter_time, and seconds for a time axis."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from .cells import Cell, Table
from .paper import NAMES, STEP_SECONDS
from .results import Record
from .rows import empty
from .selection import DASH, HEADS

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
    """What was timed, on what, and the timing of each method; SGD-Scan is the plain loop that the others are over."""

    name: str
    place: str
    methods: dict[str, Record]

    @property
    def base(self) -> float:
        """Milliseconds of a step of SGD-Scan; NaN if it was not timed."""
        return float(self.methods["sgd-scan"]["ms"]) if "sgd-scan" in self.methods else math.nan

    def ratio(self, method: str) -> float:
        """Time of a step over SGD-Scan's. That of SGD-Scan in the files is over two plain loops: noise about 1."""
        return 1.0 if method == "sgd-scan" else float(self.methods[method]["ratio"])

    def ms(self, method: str) -> float:
        """Milliseconds of a step, from the ratio: the files' own are medians over processes of unequal speed."""
        return self.base * self.ratio(method)


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
    """The network alone, if that was timed, as all runs here train it; else the case that knows most methods.

    Among equals one without a data loader. None if no case has SGD-Scan, which gives the others their milliseconds.
    """

    def key(case: Case) -> tuple[bool, int, bool]:
        return " alone" in case.name, len(case.methods.keys() & NAMES.keys()), "worker" not in case.name

    return max((c for c in cases(timings, model) if "sgd-scan" in c.methods), key=key, default=None)


def cost_table(timings: Sequence[Record]) -> Table:
    """tab:per_iter_time: step times as ratios to plain SGD, with the paper's ratios of the same model below ours."""
    measured = cases(timings)
    rows = [[Cell(case.name), *(ratio_cell(case, method) for method in NAMES)] for case in measured]
    for model, (data, title) in PAPER_ROWS.items():
        if cases(timings, model):
            rows.append([Cell(title), *(paper_ratio(data, method) for method in NAMES)])
    caption = (
        f"Time of a step relative to SGD-Scan, on {'; '.join(sorted({case.place for case in measured}))}; the paper's "
        "on a Tesla V100. A number in brackets is milliseconds a step. Ours are from alternating blocks of steps "
        f"(hover: more digits, and the range over processes where there were several), {DASH} is not measured; the "
        "paper calls its own not suitable for a detailed comparison. Alone: data, draws and crops on the device, too, "
        f"and over an SGD-Scan that reports its variance; elsewhere SGD-Scan is a plain loop."
    )
    return Table(["case", *HEADS.values()], rows, caption, "Per-step time as a ratio to SGD")


def ratio_cell(case: Case, method: str) -> Cell:
    """Our ratio, and for SGD itself the milliseconds."""
    timing = case.methods.get(method)
    if timing is None:
        return empty("not measured")
    ratio, own = case.ratio(method), method == "sgd-scan"
    hover = f"ratio {ratio:.4f}" if math.isnan(case.base) else f"{case.ms(method):.2f} ms a step, ratio {ratio:.4f}"
    if "ratio_low" in timing:
        low, high = f"{timing['ratio_low']:.3f}", f"{timing['ratio_high']:.3f}"
        hover += f"; {low} to {high} over the mean of two such loops" if own else f" ({low} to {high})"
    return Cell(f"{ratio:.2f}" + (f" ({case.base:.2f})" if own else ""), sort=ratio, hover=hover)


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

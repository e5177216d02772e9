"""The time of a step, as the benchmarks have measured it: tab:per_iter_time, tab:res_time_*, and time axes."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from ...analysis.paper import NAMES, NETWORKS, OURS, RUN_SECONDS, STEP_SECONDS, TITLES, Block
from ...analysis.settings import HEADS
from ...numbers import DASH, with_sd
from ...runs.catalogue import LENGTHS
from ...runs.store import Record
from .cells import Cell, Table
from .rows import empty

FILES = ("step_cpu.jsonl", "step_cuda.jsonl", "single_*.jsonl")
FOLDER = Path("benchmarks/results")
PAPER_ROWS = {
    "lenet5": ("fmnist", "paper, FMNIST"),
    "resnet18": ("cinic10", "paper, CINIC-10"),
    "resnet50": ("chestxray14", "paper, ChestX-ray14"),
}
COST = "tab:per_iter_time"
TIMED_RUNS = {  # the model, the data that give the lengths, and what these are called
    "tab:res_time_fmnist": ("lenet5", "fmnist", "Fashion-MNIST"),
    "tab:res_time_cinic10": ("resnet18", "cifar10", "CIFAR-10 in place of CINIC-10"),
    "tab:res_time_nih": ("resnet50", "chestxray14", "ChestX-ray14 subset"),
}
LABELS = {COST: "Per-step time as a ratio to SGD"} | {
    label: f"Training time in seconds, {title}" for label, (_, _, title) in TIMED_RUNS.items()
}


def measured_beside(results: Path) -> Path:
    """The folder of what the benchmarks found, beside a folder of results, else that of the folder we are in."""
    beside = results.resolve().parent / FOLDER
    return beside if beside.is_dir() else FOLDER


def timings_of(results: Path) -> list[Record]:
    """The step times there."""
    return read_timings(measured_beside(results))


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
        name = f"{NETWORKS.get(first.lower(), first)} {rest}{', compiled' if timing.get('compiled') else ''}"
        method = "sgd-scan" if timing["method"] == "sgd" else str(timing["method"])
        found.setdefault(name, Case(name, hardware_name(timing["hardware"]), {})).methods[method] = timing
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
    return Table(["case", *HEADS.values()], rows, caption, LABELS[COST])


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


# ---- the time of a run


def time_tables(timings: Sequence[Record]) -> dict[str, Table]:
    """All tables of times that there are timings for, by their labels."""
    made = {COST: cost_table(timings)} if timings else {}
    for label, (model, _, _) in TIMED_RUNS.items():
        case = best_case(timings, model)
        if case is not None:
            made[label] = run_table(label, case)
    return made


def run_table(label: str, case: Case) -> Table:
    """tab:res_time_*: the time of a step times the length of each run, with the paper's below ours."""
    _, data, _ = TIMED_RUNS[label]
    blocks = [block for block in RUN_SECONDS if block.label == label]
    methods = [method for method in NAMES if method in (*blocks[0].methods, *OURS)]
    rows = [
        [Cell("ours"), Cell(str(steps), sort=steps), *(seconds_cell(case, m, steps) for m in methods)]
        for steps in LENGTHS[data]
    ]
    rows += [row for block in blocks for row in paper_rows(block, methods, len(blocks) > 1)]
    decays = " (with the weight decay as it prints it)" if len(blocks) > 1 else ""
    caption = (
        f"Seconds a run. Ours: one run alone, the milliseconds of a step as timed apart ({case.name}, on "
        f"{case.place}) times the steps, without tests of the model on the way; runs side by side share the time and "
        f"are quicker. The paper's{decays}: mean ± standard deviation, on a Tesla V100. {DASH} is not measured."
    )
    return Table(["whose", "steps", *(HEADS[m] for m in methods)], rows, caption, LABELS[label])


def seconds_cell(case: Case, method: str, steps: int) -> Cell:
    """The seconds of a run of so many steps."""
    if method not in case.methods:
        return empty("not measured")
    seconds = case.ms(method) * steps / 1e3
    return Cell(f"{seconds:.1f}", sort=seconds, hover=f"{steps} steps of {case.ms(method):.3f} ms")


def paper_rows(block: Block, methods: Sequence[str], many: bool) -> list[list[Cell]]:
    """The paper's rows; many: there are others with another weight decay, so it is told."""
    name = f"paper, {TITLES[block.data]}{f', {block.printed}' if many else ''}"
    made = []
    for steps, row in block.rows.items():
        of = dict(zip(block.methods, row, strict=True))
        blank = Cell("", hover="not in the paper")
        cells = [Cell(with_sd(*of[m], 1), sort=of[m][0]) if m in of else blank for m in methods]
        made.append([Cell(name), Cell(str(steps), sort=steps), *cells])
    return made


def hardware_name(machine: Record) -> str:
    """The hardware of a timing."""
    if "gpu" in machine:
        return str(machine["gpu"])
    return f"{machine['cpu']} with {machine['threads']} threads"

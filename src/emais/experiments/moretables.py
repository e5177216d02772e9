"""Tables beyond the paper's results: tuned learning rates, steps to reach an error, cost of a step, a figure's runs."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Sequence
from pathlib import Path

from .catalogue import Item
from .cells import Cell, Table
from .config import Config
from .paper import NAMES, STEP_SECONDS
from .results import Record
from .selection import DASH, Setting, better, by_row, hardware, method_name, number, of_item, present
from .training import mean_sd

ERRORS = {"fmnist": (12.0, 11.0, 10.0, 9.5), "cifar10": (10.0, 8.0, 7.0, 6.0)}  # percent
MODEL_DATA = {"LeNet5": "fmnist", "ResNet18": "cinic10", "ResNet50": "chestxray14"}
PAPER_TITLES = {"fmnist": "paper, FMNIST", "cinic10": "paper, CINIC-10", "chestxray14": "paper, ChestX-ray14"}
TIMINGS = Path("benchmarks/results")


# ---- the learning rate tuned for each method


def tuned_table(item: Item, records: Sequence[Record]) -> Table:
    """A row for each method, a column for each learning rate; the best of a row in bold."""
    settings = of_item(item, records)
    rates = sorted({s.config.lr for s in settings})
    rows = []
    for method in dict.fromkeys(s.config.method for s in settings):
        own = {s.config.lr: s for s in settings if s.config.method == method}
        best = best_rate(list(own.values()))
        cells = [plain_cell(own[rate], rate == best) if rate in own else Cell(DASH) for rate in rates]
        last = Cell(f"{best:g}", sort=best) if best is not None else Cell(DASH)
        rows.append([Cell(NAMES.get(method, method)), *cells, last])
    ends = [method for method in rows if method[-1].text in (f"{rates[0]:g}", f"{rates[-1]:g}")]
    edge = " A best value at an end of the grid may have a better one beyond it." if ends else ""
    caption = (
        f"Test error in percent. {hardware(settings)} Bold: the best learning rate of each method. A mean near 90 with "
        f"no spread is training that diverged; a spread of tens of points, that some seeds did.{edge}"
    )
    return Table(["method", *(f"lr {rate:g}" for rate in rates), "best lr"], rows, caption, item.title)


def best_rate(settings: Sequence[Setting]) -> float | None:
    """The learning rate with the best mean."""
    best: Setting | None = None
    for setting in settings:
        if math.isfinite(setting.mean) and (best is None or better(setting, setting.mean, best.mean)):
            best = setting
    return None if best is None else best.config.lr


def plain_cell(setting: Setting, strong: bool = False) -> Cell:
    """Mean ± standard deviation."""
    if not math.isfinite(setting.mean):
        return Cell(DASH, hover="no run yet")
    spread = f" ± {setting.sd:.2f}" if math.isfinite(setting.sd) else ""
    each = ", ".join(f"{v:.2f}" for v in setting.values)
    return Cell(f"{setting.mean:.2f}{spread}", strong, setting.mean, f"seeds: {each}")


# ---- steps needed to reach a given test error


def first_step(record: Record, error: float) -> int | None:
    """The first evaluation with a test error of at most `error`.

    >>> first_step({"curves": {"test_step": [10, 20, 30], "test_error": [30.0, 12.0, 14.0]}}, 12.0)
    20
    """
    curves = record["curves"]
    for step, value in zip(curves["test_step"], curves["test_error"], strict=True):
        if value is not None and value <= error:
            return int(step)
    return None


def steps_table(item: Item, records: Sequence[Record]) -> Table:
    """A row for each length and method, a column for each test error; the fewest steps of a length in bold."""
    settings = present(of_item(item, records))
    errors = ERRORS.get(settings[0].config.data, ()) if settings else ()
    reached = {
        (id(s), error): [first_step(record, error) for record in s.records] for s in settings for error in errors
    }
    several = len({s.config.weight_decay for s in settings}) > 1
    rows = []
    for s, peers in ((s, row) for row in by_row(settings) for s in row):
        cells = [steps_cell(reached[id(s), e], [reached[id(p), e] for p in peers]) for e in errors]
        decay = [Cell(f"{s.config.weight_decay:g}", sort=s.config.weight_decay)] if several else []
        rows.append(
            [*decay, Cell(str(s.config.num_steps), sort=s.config.num_steps), Cell(method_name(s.config)), *cells]
        )
    head = [*(["weight decay"] if several else []), "length", "method", *(f"≤ {error:g} %" for error in errors)]
    caption = (
        "Steps until the test error is at most so much for the first time: mean ± sample standard deviation over "
        "seeds; k/n: only k of n seeds get there. The test error is taken 25 times a run, so a step count is known to "
        f"one twenty-fifth of the length. Bold: the fewest steps of a length. {hardware(settings)}"
    )
    return Table(head, rows, caption, "Steps needed to reach a test error")


def steps_cell(steps: Sequence[int | None], peers: Sequence[Sequence[int | None]]) -> Cell:
    """The mean number of steps, or how many seeds got there."""
    own = [step for step in steps if step is not None]
    if len(own) < len(steps):
        return Cell(f"{len(own)}/{len(steps)}" if own else DASH, hover=f"{len(own)} of {len(steps)} seeds get there")
    whole = [statistics.fmean(step for step in p if step is not None) for p in peers if p and None not in p]
    mean, sd = mean_sd([float(step) for step in own])
    text = f"{mean:.0f} ± {sd:.0f}" if math.isfinite(sd) else f"{mean:.0f}"
    return Cell(text, mean <= min(whole), mean, f"seeds: {', '.join(map(str, own))}")


# ---- the cost of a step


def read_timings(folder: Path = TIMINGS) -> list[Record]:
    """The step times that `make bench` has measured; none if there are none."""
    paths = [folder / name for name in ("step_cpu.jsonl", "step_cuda.jsonl")]
    return [json.loads(line) for path in paths if path.exists() for line in path.read_text("utf-8").splitlines()]


def cost_table(timings: Sequence[Record]) -> Table:
    """tab:per_iter_time: step times as ratios to plain SGD, with the paper's ratios of the same model below ours."""
    cases = list(dict.fromkeys(str(t["case"]) for t in timings))
    rows = []
    for case in cases:
        own = {str(t["method"]): t for t in timings if t["case"] == case}
        rows.append([Cell(case), *(ratio_cell(own.get("sgd" if m == "sgd-scan" else m)) for m in NAMES)])
    for data in dict.fromkeys(MODEL_DATA[m] for m in MODEL_DATA if any(case.startswith(m) for case in cases)):
        rows.append([Cell(PAPER_TITLES[data]), *(paper_ratio(data, method) for method in NAMES)])
    places = sorted({place(t["hardware"]) for t in timings})
    caption = (
        f"Time of a step relative to plain SGD (SGD-Scan in the paper), on {'; '.join(places)}; the paper's on a Tesla "
        "V100. A number in brackets is milliseconds a step. Ours are medians over alternating blocks of steps (hover: "
        "the range); the paper calls its own not suitable for a detailed comparison."
    )
    return Table(["case", *NAMES.values()], rows, caption, "Per-step time as a ratio to SGD")


def ratio_cell(timing: Record | None) -> Cell:
    """Our ratio, and for SGD itself the milliseconds."""
    if timing is None:
        return Cell(DASH)
    ratio = float(timing["ratio"])
    hover = f"{timing['ms']:.2f} ms a step, ratio {ratio:.4f}"
    if "ratio_low" in timing:
        hover += f" ({timing['ratio_low']:.3f} to {timing['ratio_high']:.3f})"
    return Cell(
        f"{ratio:.2f}" + (f" ({timing['ms']:.2f})" if timing["method"] == "sgd" else ""), sort=ratio, hover=hover
    )


def paper_ratio(data: str, method: str) -> Cell:
    """The paper's ratio of the same kind."""
    seconds = STEP_SECONDS[data]
    if method not in seconds:
        return Cell(DASH)
    ratio = seconds[method] / seconds["sgd-scan"]
    base = f" ({1e3 * seconds[method]:.1f})" if method == "sgd-scan" else ""
    return Cell(f"{ratio:.2f}{base}", sort=ratio, hover=f"{1e3 * seconds[method]:.3g} ms a step")


def place(machine: Record) -> str:
    """The hardware of a timing."""
    if "gpu" in machine:
        return str(machine["gpu"])
    return f"{machine['cpu']} with {machine['threads']} threads"


# ---- the runs behind a figure


def summary_table(item: Item, records: Sequence[Record]) -> Table:
    """A row for each setting: the final metric, and the middle of N_ems and S(W) over the second half."""
    settings = of_item(item, records)
    rows = []
    for s in settings:
        halves = [middle(s, "n_ems"), middle(s, "score")]
        extra = [Cell(f"{v:.{p}f}" if math.isfinite(v) else DASH, sort=v) for v, p in zip(halves, (0, 2), strict=True)]
        rows.append(
            [Cell(variant(s.config)), Cell(str(s.config.num_steps), sort=s.config.num_steps), plain_cell(s), *extra]
        )
    caption = f"N_ems and S(W): medians over seeds and the second half of the run. {hardware(settings)}"
    return Table(["run", "steps", "test error (%)", "N_ems", "S(W)"], rows, caption, item.title)


def middle(setting: Setting, quantity: str) -> float:
    """The median over all seeds and the second half of the run."""
    halves = [r["curves"][quantity][len(r["curves"][quantity]) // 2 :] for r in setting.records]
    finite = [v for half in halves for v in map(number, half) if math.isfinite(v)]
    return statistics.median(finite) if finite else math.nan


def variant(config: Config) -> str:
    """The method and what sets a run apart from the plain one.

    >>> variant(Config("fmnist", "lenet5", "emais", rule="none", options={"tau": 1000}))
    'EMAIS, τ = 1000, without learning-rate adjustment'
    """
    parts = [method_name(config)]
    parts += [f"{'τ' if name == 'tau' else name} = {value}" for name, value in config.options.items()]
    if config.rule is not None:
        parts.append("without learning-rate adjustment" if config.rule == "none" else f"rule {config.rule}")
    if config.refresh_every:
        parts.append(f"all statistics refreshed every {config.refresh_every} steps")
    return ", ".join(parts)

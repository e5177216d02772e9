"""The demo: SGD-Scan, EMAIS and EMAIS-auto side by side on a small data set, a table, a verdict, and a page."""

from __future__ import annotations

import json
import math
import os
import platform
import statistics
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from torch import nn

import emais

from ..errors import EmaisError, positive_int
from .data import Data, load
from .files import write_whole
from .numbers import mean_sd
from .progress import Progress
from .report.page import LABELS, page
from .runs.provenance import processor
from .runs.store import rounded
from .train.loop import Run, train
from .train.models import LeNet5, perceptron

METHODS = ("sgd-scan", "emais", "emais-auto")
COLUMNS = ("method", "test error (%)", "N_ems", "S(W)", "step time")


@dataclass(frozen=True)
class Setting:
    """How the demo trains on one data set."""

    data: str
    model: Callable[[], nn.Module]
    model_name: str
    steps: int
    batch_size: int
    lr: float
    weight_decay: float
    seeds: int
    note: str


SETTINGS = {
    "digits": Setting(
        "scikit-learn’s handwritten digits", perceptron, "A perceptron with one hidden layer of 64 units",
        steps=4000, batch_size=32, lr=0.1, weight_decay=1e-4, seeds=5,
        note="The learning rate was chosen for SGD-Scan; EMAIS takes it as it is.",
    ),
    "fmnist": Setting(
        "Fashion-MNIST", LeNet5, "LeNet5",
        steps=6250, batch_size=128, lr=0.01, weight_decay=1e-3, seeds=3,
        note="Model, N, learning rate and weight decay are the paper’s; momentum, which it does not state, is ours.",
    ),
}  # fmt: skip


def run_demo(
    data: str = "digits",
    seeds: int | None = None,
    steps: int | None = None,
    out: Path | str = Path("out/demo.html"),
    folder: Path | str | None = None,
) -> list[Run]:
    """Train all methods for each seed, print the table and the verdict, write the page to `out`.

    seeds: how many, by default 5 for digits and 3 for fmnist; steps: T, by default 4000 and 6250; folder: where
    Fashion-MNIST's files are.
    """
    if data not in SETTINGS:
        raise EmaisError(f"unknown data set {data!r}: the demo knows {', '.join(SETTINGS)}")
    setting, out = SETTINGS[data], Path(out)
    seeds = setting.seeds if seeds is None else positive_int("seeds", seeds)
    steps = setting.steps if steps is None else positive_int("steps", steps)
    prepare(out)
    loaded = load(data, folder)
    with one_thread():
        runs = train_all(loaded, setting, seeds, steps)
    rows = summary(runs)
    sentence = verdicts(runs)
    about = describe(loaded, setting, seeds, steps)
    title = f"EMAIS beside SGD-Scan on {setting.data}"
    command = f"emais demo --data {data} --seeds {seeds} --steps {steps}"
    write_whole(out, page(title, about, rows, sentence, runs, command))
    save_runs(runs, data, setting, steps, out.with_suffix(".jsonl"))
    print(f"{format_table(rows)}\n\n{sentence}\nThe curves: {out}")
    return runs


def save_runs(runs: Sequence[Run], data: str, setting: Setting, steps: int, path: Path) -> None:
    """One JSON line a run: the setting, the result, the curves, the hardware."""
    shared = {
        "data": data, "model": setting.model_name, "optimizer": "sgd", "lr": setting.lr, "momentum": 0.9,
        "weight_decay": setting.weight_decay, "batch_size": setting.batch_size, "num_steps": steps,
        "hardware": f"{processor()}, one thread", "torch": torch.__version__, "emais": emais.__version__,
    }  # fmt: skip
    write_whole(path, "".join(json.dumps(shared | rounded(asdict(run))) + "\n" for run in runs))


def prepare(out: Path) -> None:
    """Find out before the training, not after it, that the page cannot be written."""
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise EmaisError(f"cannot make the folder {out.parent} for the page: {error.strerror}") from error
    if out.is_dir() or not os.access(out if out.exists() else out.parent, os.W_OK):
        raise EmaisError(f"cannot write the page to {out}: give another file with --out")


@contextmanager
def one_thread() -> Iterator[None]:
    """Let torch compute on one thread for a while.

    Steps this small gain little from more, and where another program is at work the threads of a step wait for each
    other.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def train_all(data: Data, setting: Setting, seeds: int, steps: int) -> list[Run]:
    """All runs, seed by seed; the methods take turns at going first, so that none gains from a warm machine."""
    runs = []
    with Progress(total_steps=seeds * len(METHODS) * steps, total_runs=seeds * len(METHODS)) as progress:
        for seed in range(seeds):
            for method in METHODS[:: -1 if seed % 2 else 1]:
                progress.begin_run(f"{LABELS[method]} with seed {seed}")
                runs.append(
                    train(
                        data, setting.model, method, num_steps=steps, batch_size=setting.batch_size, lr=setting.lr,
                        weight_decay=setting.weight_decay, seed=seed, on_step=progress.advance,
                    )
                )  # fmt: skip
                progress.finish_run()
    return sorted(runs, key=lambda run: (METHODS.index(run.method), run.seed))


def summary(runs: Sequence[Run]) -> list[tuple[str, ...]]:
    """The table's texts, one row a method."""
    rows: list[tuple[str, ...]] = []
    base = [run.ms_per_step for run in runs if run.method == METHODS[0]]
    for method in METHODS:
        own = [run for run in runs if run.method == method]
        ratio = statistics.median(run.ms_per_step / b for run, b in zip(own, base, strict=True))
        rows.append((
            LABELS[method],
            with_spread([run.test_error for run in own], 2),
            with_spread([run.tail["n_ems"] for run in own], 1),
            with_spread([run.tail["score"] for run in own], 2),
            f"{ratio:.2f}",
        ))  # fmt: skip
    return rows


def with_spread(values: Sequence[float], places: int) -> str:
    """Mean and standard deviation as text; one value has no deviation.

    >>> with_spread([1.0, 2.0], 1), with_spread([1.0], 1)
    ('1.5 ± 0.7', '1.0')
    """
    mean, sd = mean_sd(values)
    return f"{mean:.{places}f} ± {sd:.{places}f}" if sd == sd else f"{mean:.{places}f}"


def format_table(rows: Sequence[Sequence[str]]) -> str:
    """The table in plain text."""
    table = [COLUMNS, *((*row[:-1], f"{row[-1]} x") for row in rows)]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    lines = [
        "  ".join([row[0].ljust(widths[0]), *(v.rjust(w) for v, w in zip(row[1:], widths[1:], strict=True))])
        for row in table
    ]
    return "\n".join([lines[0], "-" * len(lines[0]), *lines[1:]])


def verdicts(runs: Sequence[Run]) -> str:
    """A sentence for each method but the first, which they are compared with."""
    errors = {method: [run.test_error for run in runs if run.method == method] for method in METHODS}
    return " ".join(verdict(errors[METHODS[0]], errors[method], LABELS[method]) for method in METHODS[1:])


def verdict(scan: Sequence[float], ours: Sequence[float], name: str = "EMAIS") -> str:
    """One sentence: who ended at the lower test error, by how much, and whether the seeds differ by more than that."""
    (base, base_sd), (mean, mean_spread) = mean_sd(scan), mean_sd(ours)
    gap = abs(mean - base)
    seeds = f"{len(ours)} seeds" if len(ours) > 1 else "one seed"
    if gap < 0.005:
        return f"{name} and SGD-Scan end at the same test error, {mean:.2f} %, over {seeds}."
    side = "lower" if mean < base else "higher"
    numbers = f"{gap:.2f} points {side} than SGD-Scan’s ({mean:.2f} % against {base:.2f} %)"
    if len(ours) == 1:
        return f"{name}’s test error is {numbers}, but one seed shows no spread: run more before believing it."
    spread = max(base_sd, mean_spread)
    if gap <= spread:
        return f"{name}’s test error is {numbers}, within the spread over {seeds} ({spread:.2f} points): a tie."
    outcome = "wins" if mean < base else "loses"
    return f"{name} {outcome}: its test error is {numbers}, more than the spread over {seeds} ({spread:.2f} points)."


def describe(data: Data, setting: Setting, seeds: int, steps: int) -> str:
    """What was run, on what, in a paragraph."""
    warm_up = math.ceil(2 * len(data.x_train) / setting.batch_size)
    which = f"seeds 0 to {seeds - 1}" if seeds > 1 else "seed 0"
    return (
        f"{setting.model_name} was trained on {setting.data} ({len(data.x_train)} images to train on, "
        f"{len(data.x_test)} to test on) for T = {steps} steps of N = {setting.batch_size} images, by SGD with "
        f"momentum 0.9 and weight decay {setting.weight_decay:g}. The learning rate starts at {setting.lr:g} and falls "
        f"to 0 along a cosine. {setting.note} All methods ran with {which}, from the same initial weights for the "
        f"same seed. EMAIS’s first two epochs ({warm_up} steps) are plain SGD-Scan, to fill its statistics. "
        "EMAIS-auto is this library’s own: it chooses on the way how long to remember. "
        f"Hardware: {processor()}, one thread. Versions: emais {emais.__version__}, "
        f"torch {torch.__version__}, Python {platform.python_version()}."
    )

"""The demo: SGD-Scan, EMAIS and EMAIS-auto on a small data set, by the same runner and report as all other runs."""

from __future__ import annotations

import math
import os
import platform
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch

import emais

from ..errors import EmaisError, positive_int
from .analysis.settings import Setting, settings_of
from .config import Config
from .data import Data, load
from .demo_trainer import PlainLoop
from .files import write_whole
from .report.demo_page import IN_THE_TERMINAL, demo_page, demo_table, verdicts
from .report.tables.cells import to_text
from .runs.provenance import processor
from .runs.runner import run_all
from .runs.store import Record, Results

DEMO_RUNS: tuple[dict[str, str], ...] = (
    {"method": "sgd-scan"},
    {"method": "emais"},
    {"method": "emais-auto", "rule": "steady", "schedule": "progress"},  # as a user of the library has it
    {"method": "sgd-scan", "follow": "progress"},  # its control: plain training cut to as few steps
)


@dataclass(frozen=True)
class Demo:
    """How the demo trains on one data set: the settings of its runs, and what the page says of them."""

    data: str
    data_title: str
    model: str
    model_title: str
    num_steps: int
    batch_size: int
    lr: float
    weight_decay: float
    seeds: int
    note: str

    def configs(self, seeds: int, num_steps: int) -> list[Config]:
        """All runs, seed by seed; the methods take turns at going first, so that none gains from a warm machine."""
        shared = {"lr": self.lr, "weight_decay": self.weight_decay, "batch_size": self.batch_size}
        return [
            Config(self.data, self.model, num_steps=num_steps, seed=seed, **shared, **run)  # type: ignore[arg-type]
            for seed in range(seeds)
            for run in DEMO_RUNS[:: -1 if seed % 2 else 1]
        ]


DEMOS = {
    "digits": Demo(
        "digits", "scikit-learn’s handwritten digits", "perceptron", "A perceptron with one hidden layer of 64 units",
        num_steps=4000, batch_size=32, lr=0.1, weight_decay=1e-4, seeds=5,
        note="The learning rate was chosen for SGD-Scan; EMAIS takes it as it is.",
    ),
    "fmnist": Demo(
        "fmnist", "Fashion-MNIST", "lenet5", "LeNet5",
        num_steps=6250, batch_size=128, lr=0.01, weight_decay=1e-3, seeds=3,
        note="Model, N, learning rate and weight decay are the paper’s; momentum, which it does not state, is ours.",
    ),
}  # fmt: skip


def run_demo(
    data: str = "digits",
    seeds: int | None = None,
    steps: int | None = None,
    out: Path | str = Path("out/demo.html"),
    folder: Path | str | None = None,
) -> list[Setting]:
    """Train all methods for each seed, print the table and the verdicts, write the page to `out`, the runs beside it.

    seeds: how many, by default 5 for digits and 3 for fmnist; steps: T, by default 4000 and 6250; folder: where
    Fashion-MNIST's files are. Returns the methods with their runs.
    """
    if data not in DEMOS:
        raise EmaisError(f"unknown data set {data!r}: the demo knows {', '.join(DEMOS)}")
    demo, out = DEMOS[data], Path(out)
    seeds = demo.seeds if seeds is None else positive_int("seeds", seeds)
    steps = demo.num_steps if steps is None else positive_int("steps", steps)
    prepare(out)
    about = describe(load(data, folder), demo, seeds, steps)
    configs = demo.configs(seeds, steps)
    settings = settings_of(configs, trained(configs, folder, out.with_suffix(".jsonl")))
    command = f"emais demo --data {data} --seeds {seeds} --steps {steps}"
    write_whole(out, demo_page(f"EMAIS beside SGD-Scan on {demo.data_title}", about, settings, command))
    said = "\n".join(verdicts(settings))
    print(f"{to_text(demo_table(settings))}\n{IN_THE_TERMINAL}\n\n{said}\nThe curves: {out}")
    return settings


def trained(configs: Sequence[Config], folder: Path | str | None, path: Path) -> Sequence[Record]:
    """The records of all runs, trained now; they replace what `path` has when the last is done."""
    with tempfile.TemporaryDirectory() as place, one_thread():
        results = Results(Path(place) / path.name)
        run_all(configs, results.path, folder=folder, trainer=PlainLoop)
        write_whole(path, results.path.read_text("utf-8"))
        return results.read()


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


def describe(data: Data, demo: Demo, seeds: int, steps: int) -> str:
    """What was run, on what, in a paragraph."""
    warm_up = math.ceil(2 * len(data.x_train) / demo.batch_size)
    which = f"seeds 0 to {seeds - 1}" if seeds > 1 else "seed 0"
    return (
        f"{demo.model_title} was trained on {demo.data_title} ({len(data.x_train)} images to train on, "
        f"{len(data.x_test)} to test on) for T = {steps} steps of N = {demo.batch_size} images, by SGD with "
        f"momentum 0.9 and weight decay {demo.weight_decay:g}. The learning rate starts at {demo.lr:g} and falls "
        f"to 0 along a cosine. {demo.note} All methods ran with {which}, from the same initial weights for the "
        f"same seed. EMAIS’s first two epochs ({warm_up} steps) are plain SGD-Scan, to fill its statistics. "
        "EMAIS-auto is this library’s own: it chooses on the way how long to remember, and it ends early, when its "
        f"steps are worth {steps} ordinary ones. SGD-Scan cut short is its control: plain SGD with as few steps. "
        f"Hardware: {processor()}, one thread. Versions: emais {emais.__version__}, "
        f"torch {torch.__version__}, Python {platform.python_version()}."
    )

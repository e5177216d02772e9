"""One training run through the library, and what is written down on the way. `train` is the loop to read."""

from __future__ import annotations

import time
from bisect import bisect_right
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torch.optim import SGD
from torch.optim.lr_scheduler import CosineAnnealingLR
from torch.utils.data import TensorDataset

import emais

from ...engine import Engine
from ..data import Data
from ..numbers import mean_sd
from .curves import POINTS, evenly_spaced

CURVES = ("step", "train_loss", "test_error", "n_ems", "score", "lr", "lr_scale")


@dataclass(frozen=True)
class Run:
    """What one run left behind.

    test_error in percent, at the end; ms_per_step of training alone; steps: how many it took; curves by the names in
    `CURVES`, where train_loss, n_ems and score are means over the steps since the point before; tail: means of n_ems
    and score over the second half of the run.
    """

    method: str
    seed: int
    test_error: float
    ms_per_step: float
    steps: int
    curves: dict[str, list[float]]
    tail: dict[str, float]


def train(
    data: Data,
    model: Callable[[], nn.Module],
    method: str,
    *,
    num_steps: int,
    batch_size: int,
    lr: float,
    weight_decay: float,
    seed: int,
    rule: str | None = None,
    equal_progress: bool = False,
    on_step: Callable[[], None] | None = None,
) -> Run:
    """Train `model()` once with a method, on the CPU. The five lines marked are all that the library changes.

    equal_progress: the run ends when its steps are worth num_steps, and the schedule follows.
    """
    net = initialised(model, seed)
    optimizer = SGD(net.parameters(), lr=lr, momentum=0.9, weight_decay=weight_decay)
    schedule: Any = CosineAnnealingLR(optimizer, num_steps)
    dataset = TensorDataset(data.scaled(data.x_train), data.y_train)
    sizes = {"batch_size": batch_size, "num_steps": num_steps, "effective_steps": equal_progress}

    imp = emais.create(method, len(dataset), seed=seed, **sizes)  # 1
    loader = imp.loader(dataset)  # 2: instead of DataLoader(dataset, batch_size, shuffle=True)
    imp.attach(optimizer, rule)  # 3: scales each step's learning rate
    if equal_progress:
        schedule = emais.EffectiveSchedule(schedule, imp)

    log = Recorder(imp, num_steps, lambda: error_rate(net, data), equal_progress)
    for (x, y), draw in loader:  # 4: the draw comes with its minibatch
        logits = net(x)
        losses = cross_entropy(logits, y, reduction="none")
        loss = imp.loss(losses, logits, draw)  # 5: instead of losses.mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        with log.clock_stopped():
            log.record(loss.item(), float(schedule.get_last_lr()[0]))
            if on_step is not None:
                on_step()
        schedule.step()
    return log.run(seed)


def initialised(model: Callable[[], nn.Module], seed: int) -> nn.Module:
    """A new model whose initial weights depend on the seed alone; torch's global random state is left as it was."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return model()


@torch.no_grad()
def error_rate(net: nn.Module, data: Data, chunk: int = 1000) -> float:
    """Percentage of the test set that is classified wrongly."""
    net.eval()
    batches = zip(data.x_test.split(chunk), data.y_test.split(chunk), strict=True)
    wrong = sum(int((net(data.scaled(x)).argmax(1) != y).sum()) for x, y in batches)
    net.train()
    return 100 * wrong / len(data.y_test)


class Recorder:
    """Writes down a run: about 60 points a curve, the means of its second half, and the time of its steps.

    At equal progress the points are at equal distances in effective steps, so that the last is the end of the run.
    """

    def __init__(self, imp: Engine, num_steps: int, evaluate: Callable[[], float], equal_progress: bool) -> None:
        self._imp, self._evaluate, self._equal_progress = imp, evaluate, equal_progress
        self._points = evenly_spaced(num_steps, POINTS)  # those to come
        self._curves: dict[str, list[float]] = {name: [] for name in CURVES}
        self._losses: list[float] = []
        self._n_ems: list[float] = []
        self._scores: list[float] = []
        self._since = 0  # steps before the present stretch of the curves
        self._paused = 0.0
        self._start = time.perf_counter()

    @contextmanager
    def clock_stopped(self) -> Iterator[None]:
        """What happens inside does not count as training time."""
        begin = time.perf_counter()
        yield
        self._paused += time.perf_counter() - begin

    def record(self, loss: float, lr: float) -> None:
        """Take in one step: its loss and the schedule's learning rate; all else is read from the diagnostics."""
        report = self._imp.diagnostics
        self._losses.append(loss)
        self._n_ems.append(report.n_ems)
        self._scores.append(report.score)
        step = len(self._losses)
        passed = bisect_right(self._points, self._imp.effective_steps if self._equal_progress else step)
        if not passed:
            return
        del self._points[:passed]
        loss, n_ems, score = (mean_sd(x[self._since :])[0] for x in (self._losses, self._n_ems, self._scores))
        point = (step, loss, self._evaluate(), n_ems, score, lr, report.lr_scale)
        for name, value in zip(CURVES, point, strict=True):
            self._curves[name].append(value)
        self._since = step

    def run(self, seed: int) -> Run:
        """The finished record."""
        seconds = time.perf_counter() - self._start - self._paused
        steps = len(self._losses)
        half = steps // 2
        tail = {"n_ems": mean_sd(self._n_ems[half:])[0], "score": mean_sd(self._scores[half:])[0]}
        final = self._curves["test_error"][-1]
        return Run(self._imp.name, seed, final, 1e3 * seconds / steps, steps, self._curves, tail)

"""Several ResNets at a time on one GPU, each with its own graph on its own stream: one alone leaves it partly idle."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from .config import Config
from .curves import spread
from .datasets import Data
from .single import Single


class Abreast:
    """Trains configurations of one length at the same time, each as `Single` does; `finish` yields all of them.

    ms_per_step is the time of a step of all runs over their number; how: further settings, as in `Single`.
    """

    def __init__(self, configs: Sequence[Config], data: Data, device: torch.device | str = "cpu", **how: Any) -> None:
        self.runs = [Single(config, data, device, **how) for config in configs]
        self.num_steps = configs[0].num_steps

    def train(self, points: int = 20, on_steps: Callable[[int], None] | None = None) -> None:
        """Train all to the end; test errors, or mAP, at `points` places."""
        for place in spread(self.num_steps, points):
            self.advance(place, on_steps)
            for run in self.runs:
                run.curves.evaluated(place, [run.evaluate()])

    def advance(self, end: int, on_steps: Callable[[int], None] | None = None) -> None:
        """Train all of them up to step `end` by turns: what a turn starts runs beside what the others started."""
        for run in self.runs:
            run.warm_up(end, on_steps)
        self.runs[0].wait()
        start, steps = time.perf_counter(), end - self.runs[0].done
        for _ in range(steps):
            for run in self.runs:
                with torch.cuda.stream(run.stream):  # None: no stream, nothing to do
                    run.tick(on_steps)
        self.runs[0].wait()
        seconds = time.perf_counter() - start
        for run in self.runs:
            run.count(steps, seconds / len(self.runs))

    def finish(self) -> Iterator[tuple[Config, dict[str, Any]]]:
        """(configuration, result) of each run, after `train`."""
        for run in self.runs:
            for config, result in run.finish():
                yield config, result | {"side_by_side": len(self.runs)}

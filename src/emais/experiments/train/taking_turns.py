"""Runs of ResNets that take turns: all start a step on their streams, and the GPU executes them together."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

import torch

from .curves import evenly_spaced

if TYPE_CHECKING:
    from .resnet_run import ResNetRun


def train_together(runs: Sequence[ResNetRun], points: int, on_steps: Callable[[int], None] | None = None) -> None:
    """Train runs to their ends, all at the same time; each is tested at `points` places, and at its end."""
    for run in runs:
        run.heartbeat = partial(on_steps, 0) if on_steps else run.heartbeat
    left = list(runs)
    for place in evenly_spaced(max(run.num_steps for run in runs), points):
        advance_together(left, place, on_steps)
        for run in left:
            run.curves.evaluated(run.done, [run.evaluate()])
        left = [run for run in left if not run.over]
        if not left:
            break
    if on_steps is not None and (unneeded := sum(run.num_steps - run.done for run in runs)):
        on_steps(unneeded)


def advance_together(runs: Sequence[ResNetRun], end: int, on_steps: Callable[[int], None] | None = None) -> None:
    """Train up to step `end`, or to the end of a run that is before it.

    Where steps are captured, the clock counts only those; each run gets its share of the time.
    """
    for run in runs:
        run.warm_up(end, on_steps)
    runs[0].wait()
    start, before = time.perf_counter(), [run.done for run in runs]
    for _ in range(end - min(before)):
        for run in runs:
            if run.done < end and not run.over:
                with torch.cuda.stream(run.stream):  # None: no stream, nothing to do
                    run.tick(on_steps)
    runs[0].wait()
    seconds = time.perf_counter() - start
    steps = [run.done - done for run, done in zip(runs, before, strict=True)]
    for run, own in zip(runs, steps, strict=True):
        run.count(own, seconds * own / max(1, sum(steps)))

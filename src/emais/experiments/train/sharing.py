"""Runs that share a GPU: streams for their small kernels, and steps that they start in turns."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, TypeVar

import torch

from .curves import evenly_spaced

if TYPE_CHECKING:
    from .resnet_run import ResNetRun

Given = TypeVar("Given")
Made = TypeVar("Made")
STREAMS = 16


class StreamPool:
    """Some streams of a GPU, and a `map` whose calls take turns on them, so that small kernels of one run do not wait
    for another's, also inside a graph.

    All streams start after what the current stream holds, and it goes on after all of them. So tensors may be handed
    from one to the other. On a CPU there are no streams, and `map` is a plain loop.

    >>> StreamPool("cpu").map(abs, [-1, 2])
    [1, 2]
    """

    def __init__(self, device: torch.device | str, count: int = STREAMS) -> None:
        self.device = torch.device(device)
        self._streams = [torch.cuda.Stream(self.device) for _ in range(count)] if self.device.type == "cuda" else []

    def map(self, function: Callable[[Given], Made], items: Iterable[Given]) -> list[Made]:
        """function(item) of each item, in their order."""
        if not self._streams:
            return [function(item) for item in items]
        present, found = torch.cuda.current_stream(self.device), []
        items = list(items)
        used = self._streams[: len(items)]
        for stream in used:
            stream.wait_stream(present)
        for k, item in enumerate(items):
            with torch.cuda.stream(used[k % len(used)]):
                found.append(function(item))
        for stream in used:
            present.wait_stream(stream)
        return found


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
    """Train up to step `end`, or to the end of a run that is before it. Each starts its steps on a stream of its own.

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

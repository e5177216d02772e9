"""Several ResNets on one GPU, each with its own graph on its own stream. One alone leaves the GPU partly idle."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from ..config import Config
from ..data import Data
from .resnet_run import ResNetRun
from .sharing import train_together


class ParallelResNets:
    """Trains configurations at the same time, each as a `ResNetRun`; `finish` yields all of them.

    ms_per_step is the time of one step of all runs, divided by their number. lengths: steps of each run, where they are
    not those of its configuration; how: further settings of `ResNetRun`.
    """

    def __init__(
        self,
        configs: Sequence[Config],
        data: Data,
        device: torch.device | str = "cpu",
        lengths: Sequence[int] = (),
        **how: Any,
    ) -> None:
        own = zip(configs, lengths or [config.num_steps for config in configs], strict=True)
        self.runs = [ResNetRun(config, data, device, length=length, **how) for config, length in own]

    def train(self, points: int = 20, on_steps: Callable[[int], None] | None = None) -> None:
        """Train all to the end; test errors, or mAP, at `points` places."""
        train_together(self.runs, points, on_steps)

    def finish(self) -> Iterator[tuple[Config, dict[str, Any]]]:
        """(configuration, result) of each run, after `train`."""
        for run in self.runs:
            for config, result in run.finish():
                yield config, result | {"side_by_side": len(self.runs)}

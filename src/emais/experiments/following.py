"""SGD-Uni whose minibatch size follows the N_ems that EMAIS recorded, with the learning rate to match.

If importance sampling acts like a larger minibatch, both should train alike.

Paper: fig:fmnist_sgd_unif_n_ems
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

import emais

from ..engine import Engine
from ..errors import EmaisError
from .config import Config
from .datasets import Data
from .results import Record, config_of
from .sidebyside import SideBySide


def recorded_sizes(config: Config, records: Sequence[Record]) -> Tensor:
    """Minibatch sizes (num_steps,) int64: N_ems of the same run by EMAIS, its curve interpolated."""
    want = replace(config, method="emais", follow="").key()
    found = next((r for r in records if config_of(r).key() == want), None)
    if found is None:
        raise EmaisError(f"there is no run of emais with seed {config.seed} and {config.num_steps} steps to follow")
    curve = [(s, n) for s, n in zip(found["curves"]["step"], found["curves"]["n_ems"], strict=True) if n is not None]
    steps, sizes = np.array(curve).T
    middle = (np.concatenate(([0], steps[:-1])) + steps) / 2  # a point is a mean over the steps since the one before
    every = np.interp(np.arange(1, config.num_steps + 1), middle, sizes)
    return torch.from_numpy(every).round().long().clamp(min=1)


class Following(SideBySide):
    """Runs of SGD-Uni side by side, each with a minibatch size of its own in every step.

    The largest size is drawn in every step, and the loss is the mean over as many samples as the step may have: shapes
    stay the same, and one CUDA graph serves all steps.
    """

    def __init__(
        self,
        configs: Sequence[Config],
        data: Data,
        model: Callable[[], nn.Module],
        device: torch.device | str,
        records: Sequence[Record],
    ) -> None:
        sizes = torch.stack([recorded_sizes(config, records) for config in configs])
        self.most = int(sizes.max())
        self.sizes = sizes.to(device)
        self._t = torch.zeros(1, dtype=torch.int64, device=device)
        super().__init__(configs, data, model, device)

    def _engine(self, config: Config) -> Engine:
        size = {"batch_size": self.most, "num_steps": self.num_steps, "seed": config.seed}
        return emais.create("sgd-uni", len(self.images), device=self.device, resident=True, **size)

    def step(self) -> None:
        """One step of all runs."""
        index = torch.stack([engine.draw().index for engine in self.engines])
        size = self.sizes.index_select(1, self._t)  # (K, 1)
        z, y = self._outputs(self.net.flat, index)
        losses = cross_entropy(z.flatten(0, 1), y.flatten(), reduction="none").view(y.shape)
        trained = torch.arange(self.most, device=self.device) < size
        total = (losses * trained).sum(1) / size.squeeze(1)
        (gradient,) = torch.autograd.grad(total.sum(), self.net.flat)
        schedule = 0.5 * (1 + torch.cos(math.pi / self.num_steps * self.t_eff)).float()
        factor = size.squeeze(1) / self.batch_size
        self.update(gradient, self.rate * schedule * factor)
        self.t_eff.add_(1)
        self._t.add_(1)
        nothing = torch.zeros(4, dtype=torch.float64, device=self.device)
        self.curves.log(total.detach(), self.rate * schedule, factor, [(nothing[:3], nothing[3])] * len(self.engines))

    def finish(self) -> Iterator[tuple[Config, dict[str, Any]]]:
        """As always, with the sizes in place of N_ems and no variance report."""
        for k, (config, result) in enumerate(super().finish()):
            curves = result["curves"]
            ends = [0, *curves["step"]]
            own = self.sizes[k].double().cpu()
            curves["n_ems"] = [float(own[a:b].mean()) for a, b in itertools.pairwise(ends)]
            for name in ("tr_is", "tr_unif", "tr_opt", "score"):
                curves[name] = [math.nan] * len(curves["step"])
            yield config, result

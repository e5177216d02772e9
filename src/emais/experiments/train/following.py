"""SGD-Uni whose minibatch size follows the learning-rate factor that EMAIS recorded, with the rate to match.

If importance sampling acts like a larger minibatch, both should train alike. The factor of a minibatch is its N_ems/N;
a record has its mean over the steps of each of some 60 points, so a run that follows has EMAIS's rate on average. N_ems
of a point would not do: it is a ratio of sums, which one large gradient brings down for all steps of the point.

Paper: fig:fmnist_sgd_unif_n_ems
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, pad

import emais

from ...engine import Engine
from ..config import Config
from ..data import Data
from .stacked_runs import StackedRuns


class FollowingRuns(StackedRuns):
    """Runs of SGD-Uni side by side, each with a minibatch size of its own in every step: sizes (runs, num_steps).

    A run's largest size is drawn in every step, and the loss is the mean over as many samples as the step may have:
    shapes stay the same, and one CUDA graph serves all steps.
    """

    def __init__(
        self,
        configs: Sequence[Config],
        data: Data,
        model: Callable[[], nn.Module],
        device: torch.device | str,
        sizes: Tensor,
    ) -> None:
        self.sizes = sizes.to(device)
        self.most = {config.key(): int(own.max()) for config, own in zip(configs, self.sizes, strict=True)}
        self.widest = max(self.most.values())
        self._t = torch.zeros(1, dtype=torch.int64, device=device)
        super().__init__(configs, data, model, device)

    def _engine(self, config: Config) -> Engine:
        size = {"batch_size": self.most[config.key()], "num_steps": self.num_steps, "seed": config.seed}
        return emais.create("sgd-uni", len(self.images), device=self.device, resident=True, **size)

    def step(self) -> None:
        """One step of all runs."""
        drawn = [engine.draw().index for engine in self.engines]
        index = torch.stack([pad(own, (0, self.widest - len(own))) for own in drawn])
        size = self.sizes.index_select(1, self._t)  # (K, 1)
        z, y = self._outputs(self.net.flat, index)
        losses = cross_entropy(z.flatten(0, 1), y.flatten(), reduction="none").view(y.shape)
        trained = torch.arange(self.widest, device=self.device) < size
        total = (losses * trained).sum(1) / size.squeeze(1)
        (gradient,) = torch.autograd.grad(total.sum(), self.net.flat)
        rates, factor = self._rates(), size.squeeze(1) / self.batch_size
        self.update(gradient, rates * factor)
        self._move_on(factor)
        self._t.add_(1)
        nothing = torch.zeros(4, dtype=torch.float64, device=self.device)
        self.curves.log(total.detach(), rates, factor, [(nothing[:3], nothing[3])] * len(self.engines))

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

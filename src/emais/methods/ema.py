"""EMAIS, the paper's method: importance from moving statistics of gradient norms (Algorithms 1 and 2)."""

from __future__ import annotations

import math
from typing import Any

from torch import Tensor

from ..engine import Engine
from ..errors import EmaisError
from ..sampling import ExactSampler
from ..scores import EMAScores

UNSEEN = 1.0  # weight of a sample with no statistics yet: all equal before the first observation


class EMAIS(Engine):
    """Importance sampling with w = moving mean + moving standard deviation of each sample's gradient norm.

    tau: time constant, "linear" (tau = t, the paper's Linear-tau) or a number of steps; kappa: most copies of one
    sample to expect in a minibatch; warmup_epochs: epochs without replacement that fill the statistics first
    (0: none; samples not seen yet then have weight 1); start: "zero" as in the paper, or "first".
    Further options: see `Engine`. 16 bytes a sample and a little.

    >>> imp = EMAIS(num_samples=1000, batch_size=10, tau=500.0)
    >>> imp.draw().step
    1

    Paper: alg:ema_is, alg:train_emais
    """

    name = "emais"

    def __init__(
        self,
        num_samples: int,
        batch_size: int = 128,
        num_steps: int | None = None,
        tau: float | str = "linear",
        kappa: float = 1.0,
        warmup_epochs: float = 2,
        seed: int = 0,
        *,
        start: str = "zero",
        **options: Any,
    ) -> None:
        if isinstance(warmup_epochs, bool) or not 0 <= warmup_epochs < math.inf:
            raise EmaisError(f"warmup_epochs must be a number of at least 0, got {warmup_epochs!r}")
        # made first: they refuse bad settings before anything large is laid out
        device, resident = options.get("device", "cpu"), options.get("resident")
        scores = EMAScores(num_samples, tau, start=start, unseen=UNSEEN, device=device)
        sampler = ExactSampler(num_samples, batch_size, kappa, device=device, resident=resident)
        scan_steps = math.ceil(warmup_epochs * scores.num_samples / batch_size)
        super().__init__(num_samples, batch_size, num_steps, seed, scan_steps=scan_steps, **options)
        self._scores, self._sampler = scores, sampler
        self._source.sampler = sampler
        self.kappa, self.warmup_epochs = kappa, warmup_epochs

    @property
    def scores(self) -> EMAScores:
        """The statistics, with every minibatch observed so far in them."""
        self._drain()
        return self._scores

    @property
    def sampler(self) -> ExactSampler:
        """The sampler, with every minibatch observed so far in it."""
        self._drain()
        return self._sampler

    def _learn(self, step: Any, index: Any, norms: Any) -> None:
        if isinstance(index, Tensor):
            self._sampler.update(index, self._scores.update(step, index, norms))
        else:
            self._sampler.update_host(*self._scores.update_host(step, index, norms))

    def _settings(self) -> dict[str, Any]:
        ours = {"tau": self._scores.tau, "kappa": self.kappa, "warmup_epochs": self.warmup_epochs}
        return super()._settings() | ours | {"start": self._scores.start}

    def _state(self) -> dict[str, Tensor]:
        return self._scores.state_dict()

    def _load_state(self, state: dict[str, Tensor]) -> None:
        self._scores.load_state_dict(state)
        self._sampler.fill(self._scores.weights())

"""EMAIS, the paper's method: importance from moving statistics of gradient norms (Algorithms 1 and 2)."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from ..errors import EmaisError, positive_float
from ..observing.observation import Observation
from ..statistics.arrays import Array
from ..statistics.limits import Limit
from ..statistics.scores import EMAScores
from .weighted import Weighted

UNSEEN = 1.0  # weight of a sample with no statistics yet: all equal before the first observation


class EMAIS(Weighted):
    """Importance sampling with w = moving mean + moving standard deviation of each sample's gradient norm.

    tau: time constant, "linear" (tau = t, the paper's Linear-tau) or a number of steps; kappa: most copies of one
    sample to expect in a minibatch; warmup_epochs: epochs without replacement that fill the statistics first
    (0: none; samples not seen yet then have weight 1); start: "zero" as in the paper, or "first".
    Further options: see `Engine`. 20.75 bytes per sample.

    >>> imp = EMAIS(num_samples=1000, batch_size=10, tau=500.0)
    >>> imp.draw().step
    1

    Paper: alg:ema_is, alg:train_emais
    """

    name = "emais"
    rule = None  # by the optimizer's class: linear or sqrt

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
        if isinstance(tau, str) and tau == "auto":
            raise EmaisError('tau="auto" is a method of its own: emais.create("emais-auto", ...)')
        self.refuse_unknown(options)
        # made first: they refuse bad settings before anything large is laid out
        where = {name: options[name] for name in ("device", "resident") if name in options}
        self._scores = EMAScores(num_samples, tau, start=start, unseen=UNSEEN, **where)
        self.kappa = positive_float("kappa", kappa)
        super().__init__(num_samples, batch_size, num_steps, seed, warmup_epochs=warmup_epochs, **options)

    @property
    def scores(self) -> EMAScores:
        """The statistics, with every minibatch observed so far in them."""
        self._settle()
        return self._scores

    def weigh(self, observed: Observation) -> tuple[Array, Array]:
        """UpdateStats and ComputeImportance."""
        return self._scores.learn(observed.step, observed.index, observed.norms)

    def all_weights(self) -> Tensor:
        """ComputeImportance for all samples."""
        return self._scores.weights()

    def saved_settings(self) -> dict[str, Any]:
        """With tau, kappa and the start."""
        return super().saved_settings() | {"kappa": self.kappa, "tau": self._scores.tau, "start": self._scores.start}

    def state(self) -> dict[str, Tensor]:
        """Algorithm 1's state."""
        return self._scores.state_dict()

    def limits(self, step: int) -> dict[str, Limit]:
        """Those of Algorithm 1's state."""
        return self._scores.limits(step)

    def load_state(self, state: dict[str, Tensor]) -> None:
        """Take over what `state` gave."""
        self._scores.load_state_dict(state)
        super().load_state(state)

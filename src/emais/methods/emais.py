"""EMAIS, the paper's method: importance from moving statistics of gradient norms (Algorithms 1 and 2)."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from ..errors import EmaisError, number_above, positive_float, truth
from ..observing.observation import Observation
from ..statistics.arrays import Array, Number
from ..statistics.fallback import Fallback
from ..statistics.limits import Limit
from ..statistics.per_sample import SampleStatistics
from ..statistics.scores import EMAScores
from .weighted import Weighted

UNSEEN = 1.0  # weight of a sample with no statistics yet: all equal before the first observation


class EMAIS(Weighted):
    """Importance sampling with w = moving mean + moving standard deviation of each sample's gradient norm.

    tau: time constant, "linear" (tau = t, the paper's Linear-tau) or a number of steps; kappa: most copies of one
    sample to expect in a minibatch; warmup_epochs: epochs without replacement that fill the statistics first
    (0: none; samples not seen yet then have weight 1); start: "zero" as in the paper, or "first". bound: the largest r,
    kept by a share 1/bound of uniform draws; fallback: draw uniformly while the sampler is worse than that, best with a
    bound, which keeps every sample in view. Both are off, as in the paper.
    Further options: see `Engine`. 16.75 bytes per sample.

    >>> imp = EMAIS(num_samples=1000, batch_size=10, tau=500.0)
    >>> imp.draw().step
    1

    Paper: alg:ema_is, alg:train_emais
    """

    name = "emais"
    rule = "linear"
    sample_columns = ("mean", "var", "last_step")

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
        bound: float | None = None,
        fallback: bool = False,
        **options: Any,
    ) -> None:
        if isinstance(tau, str) and tau == "auto":
            raise EmaisError('tau="auto" is a method of its own: emais.create("emais-auto", ...)')
        self.refuse_unknown(options)
        # made first: they refuse bad settings before anything large is laid out
        where = {name: options[name] for name in ("device", "resident") if name in options}
        self._scores = EMAScores(num_samples, tau, start=start, unseen=UNSEEN, **where)
        self.kappa = positive_float("kappa", kappa)
        self.bound = None if bound is None else number_above("bound", bound, 1)
        super().__init__(num_samples, batch_size, num_steps, seed, warmup_epochs=warmup_epochs, **options)
        self._fallback = Fallback(self.arrays) if truth("fallback", fallback) else None
        if fallback or self.bound is not None:
            self.source.uniform = self._uniform_share

    @property
    def scores(self) -> EMAScores:
        """The statistics, with every minibatch observed so far in them."""
        with self._settled:
            return self._scores

    def weigh(self, observed: Observation) -> tuple[Array, Array]:
        """UpdateStats and ComputeImportance."""
        if self._fallback is not None and observed.r is not None:
            share = 0.0 if self.bound is None else 1 / self.bound
            own = 1 / ((1 - share) / self._sampler.tree.coefficients(observed.index) + share)  # with the bound's draws
            sampled = observed.step > (self.epoch_steps or 0)  # the warm-up's sampler is half empty
            self._fallback.add(observed.r, own, observed.norms, sampled)
        return self._scores.learn(observed.step, observed.index, observed.norms)

    def _uniform_share(self) -> Number:
        """Of the draws: what bounds r, or all of them."""
        share = 0.0 if self.bound is None else 1 / self.bound
        return share if self._fallback is None else share + (1 - share) * self._fallback.active()

    def probabilities(self) -> Tensor:
        """With the uniform draws in it."""
        with self._settled:
            share = float(self._uniform_share())
            return (1 - share) * self._sampler.probabilities() + share / self.num_samples

    def report(self) -> dict[str, Any]:
        """fallback_steps: steps so far that were drawn uniformly because the sampler was worse."""
        return {} if self._fallback is None else {"fallback_steps": self._fallback.steps()}

    def sample_statistics(self) -> SampleStatistics:
        """Algorithm 1's mean, and the root of its variance."""
        s = self._scores
        return SampleStatistics(s.mean, s.var.sqrt(), s.last_step, self.all_weights(), self.probabilities())

    def all_weights(self) -> Tensor:
        """ComputeImportance for all samples."""
        return self._scores.weights()

    def saved_settings(self) -> dict[str, Any]:
        """With tau, kappa, the start, and what makes draws uniform."""
        ours = {"kappa": self.kappa, "tau": self._scores.tau, "start": self._scores.start, "bound": self.bound}
        return super().saved_settings() | ours | {"fallback": self._fallback is not None}

    def nbytes(self) -> int:
        """Bytes of statistics and sampler."""
        return self._scores.nbytes() + self._sampler.nbytes()

    def state(self) -> dict[str, Tensor]:
        """Algorithm 1's state, and the fall-back's."""
        own = {} if self._fallback is None else {"fallback": self._fallback.saved.cpu().clone()}
        return self._scores.state_dict() | own

    def limits(self, step: int) -> dict[str, Limit]:
        """Those of Algorithm 1's state."""
        return self._scores.limits(step) | ({} if self._fallback is None else self._fallback.limits())

    def load_state(self, state: dict[str, Tensor]) -> None:
        """Take over what `state` gave."""
        self._scores.load_state_dict({name: state[name] for name in ("mean", "var", "last_step")})
        if self._fallback is not None:
            self._fallback.saved.copy_(state["fallback"])
        super().load_state(state)

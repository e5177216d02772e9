"""EMAIS-auto: EMAIS with several time constants, compared on the minibatches it trains on; the best one draws."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from ..errors import number_from_0, positive_float, positive_int
from ..observing.observation import Observation
from ..statistics.arrays import Array
from ..statistics.candidates import CandidateScores
from ..statistics.limits import FROM_0, Limit
from ..statistics.per_sample import SampleStatistics
from .emais import UNSEEN
from .weighted import Weighted

FACTORS = (1.0, 0.3, 0.1, 0.03)
POWERS = (1.0, 0.5, 0.25, 0.0)  # 0: uniform
PERIOD, PER_EPOCH = 50, 20  # steps between two decisions, and at most so many decisions an epoch: each takes O(M)


class EMAISAuto(Weighted):
    """EMAIS with tau = c t for several factors c and several powers a: p proportional to (w_c + l mean(w_c))^a, where
    w_c is the moving mean of the gradient norm alone, and l makes all importance coefficients r at most `bound` when a
    decision is made. One candidate (c, a) draws; all learn from every minibatch, and all are compared on it:
    mean(r r' |g|^2) is unbiased for the candidate whose r' it is, whoever drew.

    factors, powers: the first of each draws at the beginning; window: minibatches that the comparison looks back on;
    period: steps between two decisions (None: 50, or a twentieth of an epoch where that is more, because a decision
    takes O(M)); hysteresis: by how much of its trace another candidate must be better.
    Further settings as in `EMAIS`, but for tau and start. 8.75 bytes per sample, and 4 a factor.

    >>> imp = EMAISAuto(num_samples=1000, batch_size=10)
    >>> imp.diagnostics.tau_factor
    1.0
    """

    name = "emais-auto"
    rule = "steady"
    sample_columns = ("means", "last_step")

    def __init__(
        self,
        num_samples: int,
        batch_size: int = 128,
        num_steps: int | None = None,
        kappa: float = 1.0,
        warmup_epochs: float = 2,
        seed: int = 0,
        *,
        factors: tuple[float, ...] | float = FACTORS,
        powers: tuple[float, ...] | float = POWERS,
        bound: float = 10.0,
        window: float = 100.0,
        period: int | None = None,
        hysteresis: float = 0.02,
        **options: Any,
    ) -> None:
        self.kappa = positive_float("kappa", kappa)
        self.hysteresis = number_from_0("hysteresis", hysteresis, below=1)
        given = None if period is None else positive_int("period", period)
        super().__init__(num_samples, batch_size, num_steps, seed, warmup_epochs=warmup_epochs, **options)
        self.period = given or max(PERIOD, self.total_samples // (PER_EPOCH * self.global_batch_size))
        self._scores = CandidateScores(
            num_samples,
            tuple(factors) if isinstance(factors, Iterable) else (factors,),
            tuple(powers) if isinstance(powers, Iterable) else (powers,),
            bound=bound,
            most=kappa / self.draw_size,
            window=window,
            unseen=UNSEEN,
            arrays=self.arrays,
        )
        self._active = torch.zeros(1, dtype=torch.int64, device=self.device)
        self._switches = torch.zeros(1, dtype=torch.int64, device=self.device)
        self._due = self.period
        self.refill()

    @property
    def scores(self) -> CandidateScores:
        """The statistics of all candidates, with every minibatch observed so far in them."""
        with self._settled:
            return self._scores

    def weigh(self, observed: Observation) -> tuple[Array, Array]:
        """Compare the candidates, let all of them learn, and weigh by the active one."""
        index, w = self._scores.update(observed.step, observed.index, observed.norms, observed.r, observed.grad)
        if not observed.trained:  # a refresh may change all norms, and with them what bounds r: decide at once
            self._due = 0
        return index, self.arrays.row(w, self._active)

    def reweigh_all(self) -> None:
        """Hand over to the best candidate if it is better by more than the hysteresis."""
        traces = self._scores.traces()
        best = traces.argmin().view(1)
        active = traces.index_select(0, self._active)
        better = traces.index_select(0, best) < active - self.hysteresis * active.abs()  # it may be negative
        self._switches += better
        self._active.copy_(torch.where(better, best, self._active))
        self._scores.lay_out()
        self.refill()

    def all_weights(self) -> Tensor:
        """The weights of all samples under the active candidate."""
        return self._scores.weights(self._active)

    def sample_statistics(self) -> SampleStatistics:
        """The moving mean with the longest memory, and how far those with shorter ones lie apart."""
        s = self._scores
        mean = s.means[s.factors.index(max(s.factors))]
        deviation = s.means.std(0, correction=0)  # 0 with one factor
        return SampleStatistics(mean, deviation, s.last_step, self.all_weights(), self.probabilities())

    def report(self) -> dict[str, Any]:
        """tau_factor and power of who draws; switches so far; trace_C_A: of each candidate, over the active one's."""
        traces, candidates, active = self._scores.traces(), self._scores.candidates, int(self._active)
        ratios = (traces / traces[active]).tolist()  # all at once: a sync each would add up
        factor, power = candidates[active]
        named = {f"trace_{c:g}_{a:g}": ratio for (c, a), ratio in zip(candidates, ratios, strict=True)}
        return {"tau_factor": factor, "power": power, "switches": self._switches, **named}

    def saved_settings(self) -> dict[str, Any]:
        """With all settings of the comparison."""
        scores = self._scores
        ours = {"factors": list(scores.factors), "powers": list(scores.powers), "bound": scores.bound}
        ours |= {"window": scores.window, "period": self.period, "hysteresis": self.hysteresis}
        return super().saved_settings() | ours | {"kappa": self.kappa}

    def nbytes(self) -> int:
        """Bytes of statistics and sampler."""
        return self._scores.nbytes() + self._sampler.nbytes()

    def state(self) -> dict[str, Tensor]:
        """Statistics, comparison, and who draws."""
        own = {"active": self._active.cpu().clone(), "switches": self._switches.cpu().clone()}
        return self._scores.state_dict() | own | {"due": torch.tensor(self._due, device="cpu")}

    def limits(self, step: int) -> dict[str, Limit]:
        """Those of the statistics, and which candidates there are."""
        own = {"active": Limit(0, len(self._scores.candidates) - 1), "switches": FROM_0, "due": FROM_0}
        return self._scores.limits(step) | own

    def load_state(self, state: dict[str, Tensor]) -> None:
        """Take over what `state` gave."""
        self._scores.load_state_dict(state)
        for name in ("active", "switches"):
            getattr(self, f"_{name}").copy_(state[name])
        super().load_state(state)

"""RAIS: importance from a regression of gradient norms on their history, made robust against its own errors."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from ..errors import EmaisError, number_from_0, positive_int
from ..functional.rais_fit import fit_uncertainty, minimax_coefficients
from ..observing.observation import Observation
from ..statistics.arrays import Array, Number
from ..statistics.limits import FROM_0, NORM_MAX, Limit
from ..statistics.table import SampleTable
from .weighted import Weighted

# what is known of a sample: its latest norm, the one before, and moving averages with these decays
REMEMBERED = ("last", "before", "ema5", "ema9")
NUM_FEATURES = 1 + len(REMEMBERED)  # and the mean of all latest norms, the same for all samples
BUFFER = 50_000
_LOST = 1e6  # a change of the sum of all norms by so many times itself takes digits from it


class RAIS(Weighted):
    """p proportional to v_i = <c, s_i> + k <d, s_i>: predicted norm plus k times its uncertainty, from features s_i.

    s_i = [mean of all latest norms, latest norm, the one before, EMA(0.5), EMA(0.9)]. c and d are fitted to the latest
    `buffer` observations (default: min(50000, M)) each time as many have come, beginning after the warm-up; k is set
    with them. `emais.functional.rais_fit` has the mathematics. The learning rate follows the rule "rais"; to let the
    schedule follow, too, wrap it in `emais.EffectiveSchedule`.

    warmup_epochs: at least 1; with 1 the first fit has nothing to learn from. Further options: see `Engine`. 20.8 bytes
    a sample and 28 an observation in the buffer.

    >>> imp = RAIS(num_samples=1000, batch_size=10)
    >>> imp.diagnostics.refits
    0.0
    """

    name = "rais"
    rule = "rais"
    sample_columns = REMEMBERED

    def __init__(
        self,
        num_samples: int,
        batch_size: int = 128,
        num_steps: int | None = None,
        seed: int = 0,
        *,
        buffer: int | None = None,
        warmup_epochs: float = 2,
        **options: Any,
    ) -> None:
        if number_from_0("warmup_epochs", warmup_epochs) < 1:
            raise EmaisError(f"warmup_epochs must be at least 1 for rais, got {warmup_epochs!r}")
        super().__init__(num_samples, batch_size, num_steps, seed, warmup_epochs=warmup_epochs, **options)
        self.buffer = max(positive_int("buffer", buffer or min(BUFFER, self.total_samples)), self.draw_size)
        self.period = math.ceil(self.buffer / self.draw_size)
        device = self.device
        self._table = SampleTable(num_samples, REMEMBERED, self.arrays)
        self._table["last"].fill_(-1.0)  # not seen yet
        self._total = torch.zeros((), dtype=torch.float64, device=device)  # of all latest norms
        # features, norm, r (0: no observation)
        self._observed = torch.zeros(self.buffer, NUM_FEATURES + 2, dtype=torch.float32, device=device)
        self._lanes = torch.arange(self.draw_size, device=device)
        # rows: c, d, and theta = c + k d. Until the first fit all samples are equal
        self._fit = torch.zeros(3, NUM_FEATURES, dtype=torch.float64, device=device)
        self._fit[:, 0] = 1.0
        self._fits = torch.zeros(2, dtype=torch.int64, device=device)  # refits, and how many of them came to nothing
        self._theta: list[Any] = []
        self._due = self.epoch_steps or 0  # the first fit comes with the end of the warm-up
        self._set_theta()

    # ---- learning

    def weigh(self, observed: Observation) -> tuple[Array, Array]:
        """Record the minibatch, move the features of its samples on, and compute their weights again."""
        if observed.r is not None:
            self._record(observed, observed.r)
        change = self._table.update(observed.index, observed.norms, self._move)
        new, old, once = map(self.arrays.tensor, (change.new[0], change.old[0], change.once()))
        gained = new.double() - old.clamp(min=0)
        self._total.add_(torch.dot(gained, once)).clamp_(min=0)  # rounding may leave less
        if self.arrays.known(lambda: gained.abs().sum() > _LOST * self._total, otherwise=False):
            self._add_up()  # a norm so large that the others were rounded away beside it has gone
        return change.index, self._own_part(change.new)

    def _move(self, norm: Array, last: Array, before: Array, ema5: Array, ema9: Array) -> tuple[Array, ...]:
        new = last < 0  # the first norm of a sample stands for all of its history
        moved = (last, ema5 + 0.5 * (norm - ema5), ema9 + 0.1 * (norm - ema9))
        return (norm, *(self.arrays.where(new, norm, x) for x in moved))

    def _add_up(self) -> None:
        self._total.copy_(self._table["last"].clamp(min=0).sum(dtype=torch.float64))

    def _record(self, observed: Observation, drawn_with: Array) -> None:
        """Keep features before the observation, norm and r; r = 0 where one of them is missing."""
        own = [self.arrays.tensor(x) for x in self._table.rows(observed.index)]
        norms, r = self.arrays.tensor(observed.norms), self.arrays.tensor(drawn_with)
        valid = (norms <= NORM_MAX) & (own[0] >= 0)
        row = [self._mean().float().expand_as(r), *own, torch.where(valid, norms, 0.0), r * valid]
        place = ((observed.step - 1) * self.draw_size + self._lanes).remainder_(self.buffer)
        self._observed.index_copy_(0, place, torch.stack(row, 1))

    def reweigh_all(self) -> None:
        """Refit."""
        self.refit()

    def refit(self) -> None:
        """Fit c and d to the buffer, and compute all weights again: O(M). A fit that fails leaves all as it was."""
        self._add_up()  # and no rounding adds up
        features, norms, r = self._observed.split((NUM_FEATURES, 1, 1), 1)
        means = [self.arrays.tensor(x).clamp(min=0).mean(dtype=torch.float64) for x in self._table.all()]
        mean = torch.stack((self._mean(), *means))
        c, d = fit_uncertainty(features, norms.squeeze(1), r.squeeze(1), mean)
        new = torch.stack((c, d, minimax_coefficients(c, d, mean)))
        good = new.isfinite().all() & ((r > 0).sum() >= 2 * NUM_FEATURES)
        self._fit.copy_(torch.where(good, new, self._fit))
        self._fits += torch.stack((torch.ones_like(good), ~good))
        self._set_theta()
        self.refill()

    # ---- weights

    def _set_theta(self) -> None:
        # on a device these are views, which change with the fit under a CUDA graph
        self._theta = [self.arrays.number(x) for x in self._fit[2].unbind()]

    def _mean(self) -> Tensor:
        return self._total / self.num_samples

    def offset(self) -> Number:
        """The part of v that all samples share."""
        shared: Number = self._theta[0] * self.arrays.number(self._mean().clamp(min=0))
        return shared

    def _own_part(self, columns: tuple[Any, ...]) -> Array:
        """The rest of v."""
        t1, t2, t3, t4 = self._theta[1:]
        last, before, ema5, ema9 = columns
        weights: Array = t1 * last + t2 * before + t3 * ema5 + t4 * ema9
        return weights

    def all_weights(self) -> Array:
        """v of all samples, without the part that they share."""
        return self._own_part(self._table.all())

    # ---- reporting and saving

    @property
    def coefficients(self) -> tuple[Tensor, Tensor]:
        """c and d of the latest fit, (5,) float64 each."""
        with self._settled:
            return self._fit[0].clone(), self._fit[1].clone()

    def report(self) -> dict[str, Any]:
        """refits so far, and how many of them failed (too few observations, or no finite optimum)."""
        return {"refits": self._fits[0], "failed_refits": self._fits[1]}

    def saved_settings(self) -> dict[str, Any]:
        """With the size of the buffer."""
        return super().saved_settings() | {"buffer": self.buffer}

    def state(self) -> dict[str, Tensor]:
        """Features, buffer and fit."""
        ours = {"total": self._total, "observed": self._observed, "fit": self._fit, "fits": self._fits}
        due = {"due": torch.tensor(self._due, device="cpu")}
        return self._table.state_dict() | due | {k: v.cpu().clone() for k, v in ours.items()}

    def limits(self, step: int) -> dict[str, Limit]:
        """Norms from 0, or -1 for a sample not seen yet; a buffer of finite numbers; their sum and a fit from 0."""
        found = {"last": Limit(-1.0, NORM_MAX), "total": Limit(0.0, self.num_samples * NORM_MAX)}
        found |= dict.fromkeys(("fit", "fits", "due"), FROM_0)
        return found | dict.fromkeys(REMEMBERED[1:], Limit(0.0, NORM_MAX)) | {"observed": Limit(-1.0)}

    def load_state(self, state: dict[str, Tensor]) -> None:
        """Take over what `state` gave."""
        self._table.load_state_dict(state)
        for name in ("total", "observed", "fit", "fits"):
            getattr(self, f"_{name}").copy_(state[name])
        self._set_theta()
        super().load_state(state)

"""Algorithm 1's statistics for several time constants at once, and what sampling by each of them would cost."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from .columns import first_places
from .errors import EmaisError, number_above, positive_float, positive_int
from .sampling import WEIGHT_MIN
from .scores import NORM_MAX

BLOCK = 2**20  # samples to lay out at a time
STATE = ("means", "last_step", "shifts", "totals", "moments")


class CandidateScores:
    """Moving statistics with tau = c t for each factor c, and a running comparison of the distributions they give.

    Each factor has w_c, the moving mean of `EMAScores`; a candidate is a factor with a power a, and has the weights
    (w_c + l mean(w_c))^a, where l makes r at most `bound`. A minibatch drawn with r, whoever drew it, tells what the
    second moment of r' g would be under a candidate: mean(r r' |g|^2), with r' = 1/(M p') from statistics that have not
    seen the minibatch. Averaged over about `window` minibatches, less the average of |mean r g|^2, these are the
    candidates' `traces`.

    means: (M, C) float32, `unseen` where there is none; last_step: (M,) int32; 4 bytes a sample and factor, and 4.

    >>> s = CandidateScores(4, factors=(1.0, 0.1), powers=(1.0, 0.6))
    >>> norms = np.array([2.0, 1.0], np.float32)
    >>> index, w = s.update(1, np.array([0, 1]), norms, np.ones(2, np.float32), np.zeros(1))
    >>> w.shape
    (2, 4)

    Paper: alg:ema_is; the comparison is beyond it
    """

    def __init__(
        self,
        num_samples: int,
        factors: tuple[float, ...],
        powers: tuple[float, ...] = (1.0,),
        *,
        bound: float = float("inf"),
        window: float = 100.0,
        unseen: float = 1.0,
        device: torch.device | str = "cpu",
        resident: bool = False,
    ) -> None:
        self.num_samples = positive_int("num_samples", num_samples)
        self.factors = tuple(positive_float("factors", c) for c in factors)
        if not self.factors:
            raise EmaisError("factors must name at least one time constant")
        self.powers = tuple(positive_float("powers", a) for a in powers)
        if not self.powers or max(self.powers) > 1:
            raise EmaisError(f"powers must name at least one number from above 0 to 1, got {powers!r}")
        self.bound = number_above("bound", bound, 1)
        self.candidates = [(c, a) for c in self.factors for a in self.powers]
        if not positive_float("window", window) >= 1:
            raise EmaisError(f"window must be at least 1 minibatch, got {window!r}")
        self.window, self.unseen, self.resident = float(window), unseen, resident
        shape = len(self.factors), len(self.powers)
        self.means = torch.full((num_samples, shape[0]), unseen, device=device)
        self.last_step = torch.zeros(num_samples, dtype=torch.int32, device=device)
        self.shifts = torch.zeros(shape, device=device)  # l mean(w_c), since the latest `lay_out`
        self.totals = torch.zeros(shape, dtype=torch.float64, device=device)  # of the weights
        count = len(self.candidates) + 1  # the last is of |mean r g|^2
        self.moments = torch.zeros(count, dtype=torch.float64, device=device)
        shrinks = [1 / (self.bound ** (1 / a) - 1) for a in self.powers]
        self._shrinks = torch.tensor(shrinks, dtype=torch.float64, device=device)
        self._powers: Any = torch.tensor(self.powers, device=device)
        self._inverse: Any = 1 / torch.tensor(self.factors, device=device)
        self._xp: Any = torch
        if not resident:
            self._xp, self._powers, self._inverse = np, self._powers.numpy(), self._inverse.numpy()
            self._views = [x.numpy() for x in (self.means, self.last_step, self.shifts, self.totals, self.moments)]
        self.lay_out()

    # ---- one minibatch

    def update(self, step: Any, index: Any, norms: Any, r: Any = None, grad: Any = None) -> tuple[Any, Any]:
        """Compare the candidates on a minibatch, then let their statistics take it in.

        norms and r (n,) of the drawn samples, grad (D,) their sum r g. r None: a look at samples that were not drawn,
        which compares nothing. Returns the samples and their new weights (n, candidates), in numpy or, if resident, in
        torch; on the CPU without repeats.
        """
        update = self._on_device if self.resident else self._on_host
        return update(step, index, norms, r, grad)

    def _advance(self, step: Any, last: Any, age: Any, g: Any, means: Any) -> Any:
        """Algorithm 1's recurrence for all factors, from 0 on: means (n, C) -> means."""
        alpha = self._xp.exp(age[:, None] * (self._inverse * (-1.0 / step)))
        means = means * (last > 0)[:, None]
        return means + (1 - alpha) * (g[:, None] - means)

    def _weigh(self, means: Any, shifts: Any) -> Any:
        """The weights of all candidates, (n, C, A)."""
        return ((means[:, :, None] + shifts) ** self._powers).clip(WEIGHT_MIN)

    def _on_host(self, step: int, index: Any, g: Any, r: Any, grad: Any) -> tuple[Any, Any]:
        means, lasts, shifts, totals, moments = self._views
        usable = g <= NORM_MAX  # false for NaN
        if not usable.all():
            index, g, r = index[usable], g[usable], r if r is None else r[usable]
        rows, last = means.take(index, 0), lasts.take(index)
        before = self._weigh(rows, shifts)
        if r is not None:
            self._compare(moments, totals, before, r, g, grad)
        _, first = np.unique(index, return_index=True)
        index, g, rows, last, before = (x.take(first, 0) for x in (index, g, rows, last, before))
        age = np.maximum(step - last, 0)
        means[index] = rows = self._advance(step, last, age.astype(np.float32), g, rows)
        lasts[index] = last + age
        after = self._weigh(rows, shifts)
        totals += (after.astype(np.float64) - before).sum(0)
        return index, after.reshape(len(index), -1)

    def _on_device(self, step: Any, index: Tensor, norms: Tensor, r: Any, grad: Any) -> tuple[Tensor, Tensor]:
        rows, last = self.means.index_select(0, index), self.last_step.index_select(0, index)
        before = self._weigh(rows, self.shifts)
        usable = norms <= NORM_MAX
        g = torch.where(usable, norms, 0.0)
        if r is not None:
            self._compare(self.moments, self.totals, before, r, g, grad)
        first, known, once = first_places(index, usable)
        age = (step - last).clamp_(min=0) * known
        moved = self._advance(step, last, age.float(), g.index_select(0, first), rows)
        rows = torch.where(known.unsqueeze(1), moved, rows)
        self.means.index_copy_(0, index, rows)
        self.last_step.index_copy_(0, index, (last + age).int())
        after = self._weigh(rows, self.shifts)
        self.totals.add_(((after.double() - before) * once.view(-1, 1, 1)).sum(0))
        return index, after.flatten(1)

    def _compare(self, moments: Any, totals: Any, before: Any, r: Any, g: Any, grad: Any) -> None:
        """Take mean(r r' |g|^2) of every candidate, and |mean r g|^2, into the averages."""
        xp, n = self._xp, len(g)
        each = ((r * g * g)[:, None, None] / before).sum(0) / n * (totals / self.num_samples)  # r' = mean(w')/w'
        new = xp.concatenate((each.reshape(-1), ((grad @ grad) / n**2).reshape(1)))
        moments += xp.where(xp.isfinite(new).all(), (new - moments) / self.window, 0.0)

    def traces(self) -> Tensor:
        """Estimated variance traces of all candidates, float64: averages that start at 0, so compare their ratios."""
        return self.moments[:-1] - self.moments[-1]

    # ---- all samples

    def lay_out(self) -> None:
        """Take the shifts anew from the means as they are now, and add up the weights of all candidates."""
        mean = self.means.sum(0, dtype=torch.float64) / self.num_samples
        self.shifts.copy_(mean[:, None] * self._shrinks)
        blocks = self.means.split(BLOCK)
        for k, power in enumerate(self.powers):
            parts = ((block + self.shifts[:, k]).pow_(power).clip_(WEIGHT_MIN) for block in blocks)
            self.totals[:, k].copy_(torch.stack([part.sum(0, dtype=torch.float64) for part in parts]).sum(0))

    def weights(self, candidate: Tensor) -> Tensor:
        """The weights of all samples under one candidate, (M,); candidate (1,)."""
        column, k = candidate.div(len(self.powers), rounding_mode="floor"), candidate % len(self.powers)
        power, shift = torch.as_tensor(self._powers)[k], self.shifts.view(-1)[candidate]
        return (self.means.index_select(1, column).squeeze(1) + shift).pow_(power).clip_(WEIGHT_MIN)

    def state_dict(self) -> dict[str, Tensor]:
        """All state, copied to the CPU."""
        return {name: getattr(self, name).cpu().clone() for name in STATE}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Take over what `state_dict` gave."""
        for name in STATE:
            getattr(self, name).copy_(state[name])

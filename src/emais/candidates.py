"""Algorithm 1's statistics for several time constants at once, and what sampling by each of them would cost."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from .columns import first_places
from .errors import EmaisError, number_from_0, positive_float, positive_int
from .sampling import WEIGHT_MIN
from .scores import NORM_MAX


class CandidateScores:
    """Moving statistics with tau = c t for each factor c, and a running comparison of the distributions they give.

    Each factor has w_c, the moving mean of `EMAScores`; a candidate is a factor with a shrinkage l, and has the
    weights w_c + l mean(w_c). A minibatch drawn with r, whoever drew it, tells what the second moment of r' g would
    be under a candidate: mean(r r' |g|^2), with r' = 1/(M p') from statistics that have not seen the minibatch.
    Averaged over about `window` minibatches, less the average of |mean r g|^2, these are the candidates' `traces`.

    means: (M, C) float32; last_step: (M,) int32; 4 bytes a sample and factor, and 4.

    >>> s = CandidateScores(4, factors=(1.0, 0.1))
    >>> norms = np.array([2.0, 1.0], np.float32)
    >>> index, w = s.update(1, np.array([0, 1]), norms, np.ones(2, np.float32), np.zeros(1))
    >>> w.shape
    (2, 2)

    Paper: alg:ema_is; the comparison is beyond it
    """

    def __init__(
        self,
        num_samples: int,
        factors: tuple[float, ...],
        shrinks: tuple[float, ...] = (0.0,),
        *,
        window: float = 100.0,
        unseen: float = 1.0,
        device: torch.device | str = "cpu",
        resident: bool = False,
    ) -> None:
        self.num_samples = positive_int("num_samples", num_samples)
        self.factors = tuple(positive_float("factors", c) for c in factors)
        if not self.factors:
            raise EmaisError("factors must name at least one time constant")
        self.shrinks = tuple(number_from_0("shrinks", shrink) for shrink in shrinks)
        if not self.shrinks:
            raise EmaisError("shrinks must name at least one number, e.g. 0.1")
        self.candidates = [(c, shrink) for c in self.factors for shrink in self.shrinks]
        if not positive_float("window", window) >= 1:
            raise EmaisError(f"window must be at least 1 minibatch, got {window!r}")
        self.window, self.unseen = float(window), unseen
        count = len(self.factors)
        self.means = torch.zeros(num_samples, count, device=device)
        self.last_step = torch.zeros(num_samples, dtype=torch.int32, device=device)
        self.totals = torch.full((count,), unseen * num_samples, dtype=torch.float64, device=device)
        self.moments = torch.zeros(
            len(self.candidates) + 1, dtype=torch.float64, device=device
        )  # the last is of |mean r g|^2
        self.resident = resident
        self._xp: Any = torch if resident else np
        if resident:
            self._inverse: Any = 1 / torch.tensor(self.factors, device=device)
            self._shrinks: Any = torch.tensor(self.shrinks, dtype=torch.float64, device=device)
        else:
            self._inverse = (1 / np.array(self.factors)).astype(np.float32)
            self._shrinks = np.array(self.shrinks)
            self._views = [x.numpy() for x in (self.means, self.last_step, self.totals, self.moments)]

    # ---- one minibatch

    def update(self, step: Any, index: Any, norms: Any, r: Any = None, grad: Any = None) -> tuple[Any, Any]:
        """Compare the candidates on a minibatch, then let their statistics take it in.

        norms and r (n,) of the drawn samples, grad (D,) their sum r g. r None: a look at samples that were not drawn,
        which compares nothing. Returns the samples and their new weights (n, C), in numpy or, if resident, in torch;
        on the CPU without repeats.
        """
        update = self._on_device if self.resident else self._on_host
        return update(step, index, norms, r, grad)

    def _advance(self, step: Any, age: Any, g: Any, means: Any) -> Any:
        """Algorithm 1's recurrence for all factors: means (n, C) -> means."""
        alpha = self._xp.exp(age[:, None] * (self._inverse * (-1.0 / step)))
        return means + (1 - alpha) * (g[:, None] - means)

    def _weigh(self, means: Any, last: Any) -> Any:
        """w, (n, C): the mean, where there is one."""
        return self._xp.where((last > 0)[:, None], means, self.unseen)

    def _on_host(self, step: int, index: Any, g: Any, r: Any, grad: Any) -> tuple[Any, Any]:
        means, lasts, totals, moments = self._views
        usable = g <= NORM_MAX  # false for NaN
        if not usable.all():
            index, g, r = index[usable], g[usable], r if r is None else r[usable]
        rows, last = means.take(index, 0), lasts.take(index)
        before = self._weigh(rows, last)
        if r is not None:
            self._compare(moments, totals, before, r, g, grad)
        _, first = np.unique(index, return_index=True)
        index, g, rows, last, before = (x.take(first, 0) for x in (index, g, rows, last, before))
        age = np.maximum(step - last, 0)
        rows = self._advance(step, age.astype(np.float32), g, rows)
        means[index] = rows
        lasts[index] = last = last + age
        after = self._weigh(rows, last)
        totals += (after.astype(np.float64) - before).sum(0)
        return index, after

    def _on_device(self, step: Any, index: Tensor, norms: Tensor, r: Any, grad: Any) -> tuple[Tensor, Tensor]:
        rows, last = self.means.index_select(0, index), self.last_step.index_select(0, index)
        before = self._weigh(rows, last)
        usable = norms <= NORM_MAX
        g = torch.where(usable, norms, 0.0)
        if r is not None:
            self._compare(self.moments, self.totals, before, r, g, grad)
        first, known, once = first_places(index, usable)
        age = (step - last).clamp_(min=0) * known
        moved = self._advance(step, age.float(), g.index_select(0, first), rows)
        rows = torch.where(known.unsqueeze(1), moved, rows)
        last = (last + age).int()
        self.means.index_copy_(0, index, rows)
        self.last_step.index_copy_(0, index, last)
        after = self._weigh(rows, last)
        self.totals.add_(((after.double() - before) * once.unsqueeze(1)).sum(0))
        return index, after

    def _compare(self, moments: Any, totals: Any, before: Any, r: Any, g: Any, grad: Any) -> None:
        """Take mean(r r' |g|^2) of every candidate, and |mean r g|^2, into the averages."""
        xp, n = self._xp, len(g)
        mean = (totals / self.num_samples)[:, None]
        # r' = mean(w')/w' of w' = w + shrink mean(w), (n, C, L)
        other = (1 + self._shrinks) * mean / (before.clip(WEIGHT_MIN)[:, :, None] + self._shrinks * mean)
        each = ((r * g * g)[:, None, None] * other).sum(0) / n
        new = xp.concatenate((each.reshape(-1), ((grad @ grad) / n**2).reshape(1)))
        moments += xp.where(xp.isfinite(new).all(), (new - moments) / self.window, 0.0)

    def traces(self) -> Tensor:
        """Estimated variance traces of all candidates, float64: averages that start at 0, so compare their ratios."""
        return self.moments[:-1] - self.moments[-1]

    # ---- all samples

    def place(self, candidate: Tensor) -> tuple[Tensor, Tensor]:
        """The factor of a candidate (1,), as a column, and what it adds to the weights now, shrink mean(w), (1,)."""
        column = candidate.div(len(self.shrinks), rounding_mode="floor")
        shrink = torch.as_tensor(self._shrinks).index_select(0, candidate % len(self.shrinks))
        return column, shrink * self.totals.index_select(0, column) / self.num_samples

    def weights(self, column: Tensor) -> Tensor:
        """w of all samples under one factor, (M,); column (1,)."""
        means = self.means.index_select(1, column).squeeze(1)
        return torch.where(self.last_step > 0, means, self.unseen)

    def state_dict(self) -> dict[str, Tensor]:
        """All state, copied to the CPU."""
        return {k: getattr(self, k).cpu().clone() for k in ("means", "last_step", "totals", "moments")}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Take over what `state_dict` gave."""
        for name in ("means", "last_step", "totals", "moments"):
            getattr(self, name).copy_(state[name])

"""Algorithm 1's statistics for several time constants at once, and what sampling by each of them would cost."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..draws.tree import WEIGHT_MIN, num_levels
from ..errors import EmaisError, number_above, number_from_0, positive_float, positive_int
from ..functional.probabilities import BOUND_SLACK
from .limits import ABOVE_0, ANY, FROM_0, Limit
from .scores import NORM_MAX
from .table import first_places

BLOCK = 2**20  # samples to lay out at a time
STATE = ("means", "last_step", "shifts", "totals", "moments", "exponents")


class CandidateScores:
    """Moving statistics with tau = c t for each factor c, and a running comparison of the distributions they give.

    Each factor has w_c, the moving mean of `EMAScores`; a candidate is a factor with a power a, and has the weights
    (w_c + l mean(w_c))^a, where l makes r at most `bound`; a = 0 is uniform sampling. a is halved until no sample has
    a probability above `most`, as flattening would do, so that what is compared is what would be drawn from. A
    minibatch drawn with r, whoever drew it, tells what the second moment of r' g would be under a candidate:
    mean(r r' |g|^2), with r' = 1/(M p') from statistics that have not seen the minibatch. Averaged over about `window`
    minibatches, less the average of |mean r g|^2, these are the candidates' `traces`.

    means: (C, M) float32, `unseen` where there is none; last_step: (M,) int64; 4 bytes per sample and factor, and 8.

    >>> s = CandidateScores(4, factors=(1.0, 0.1), powers=(1.0, 0.5))
    >>> norms = np.array([2.0, 1.0], np.float32)
    >>> index, w = s.update(1, np.array([0, 1]), norms, np.ones(2, np.float32), np.zeros(1))
    >>> w.shape
    (4, 2)

    Paper: alg:ema_is; the comparison is beyond it
    """

    def __init__(
        self,
        num_samples: int,
        factors: tuple[float, ...],
        powers: tuple[float, ...] = (1.0,),
        *,
        bound: float = float("inf"),
        most: float = 1.0,
        window: float = 100.0,
        unseen: float = 1.0,
        device: torch.device | str = "cpu",
        resident: bool = False,
    ) -> None:
        self.num_samples = positive_int("num_samples", num_samples)
        self.factors = tuple(positive_float("factors", c) for c in factors)
        if not self.factors:
            raise EmaisError("factors must name at least one time constant")
        check_different("factors", self.factors)
        self.powers = tuple(number_from_0("powers", a) for a in powers)
        if not self.powers or max(self.powers) > 1:
            raise EmaisError(f"powers must name at least one number from 0 to 1, got {powers!r}")
        check_different("powers", self.powers)
        self.bound, self.most = number_above("bound", bound, 1), most
        self.candidates = [(c, a) for a in self.powers for c in self.factors]
        if not positive_float("window", window) >= 1:
            raise EmaisError(f"window must be at least 1 minibatch, got {window!r}")
        self.window, self.unseen, self.resident = float(window), unseen, resident
        shape = len(self.powers), len(self.factors)
        self.means = torch.full((shape[1], num_samples), unseen, dtype=torch.float32, device=device)
        self.last_step = torch.zeros(num_samples, dtype=torch.int64, device=device)
        self.shifts = torch.zeros(shape, dtype=torch.float32, device=device)  # l mean(w_c), since `lay_out`
        self.totals = torch.zeros(shape, dtype=torch.float64, device=device)  # of the weights
        self.exponents = torch.ones_like(self.shifts)  # powers, halved as often as needed at the latest `lay_out`
        count = len(self.candidates) + 1  # the last is of |mean r g|^2
        self.moments = torch.zeros(count, dtype=torch.float64, device=device)
        self._powers = torch.tensor(self.powers, dtype=torch.float32, device=device).unsqueeze(1)
        self._shrinks = 1 / torch.expm1(math.log(self.bound) / self._powers.double())  # l, (A, 1); 0 where a = 0
        spread = self._powers.double() * torch.log1p(num_samples / self._shrinks)  # of log(w/w) of two samples
        widest = torch.where(self._powers > 0, spread, 0.0).max()
        self._halvings = num_levels(num_samples, 1, most, float(widest)) - 1
        self._inverse: Any = 1 / torch.tensor(self.factors, dtype=torch.float32, device=device).unsqueeze(1)
        if not resident:
            self._inverse = self._inverse.numpy()
            self._views = [getattr(self, name).numpy() for name in STATE]
        self.lay_out()

    # ---- one minibatch

    def update(self, step: Any, index: Any, norms: Any, r: Any = None, grad: Any = None) -> tuple[Any, Any]:
        """Compare the candidates on a minibatch, then let their statistics take it in.

        norms and r (n,) of the drawn samples, grad (D,) their sum r g. r None: a look at samples that were not drawn,
        which compares nothing. Returns the samples and their new weights (candidates, n), in numpy or, if resident, in
        torch; on the CPU without repeats.
        """
        update = self._on_device if self.resident else self._on_host
        return update(step, index, norms, r, grad)

    def _advance(self, xp: Any, step: Any, last: Any, age: Any, g: Any, means: Any) -> Any:
        """Algorithm 1's recurrence for all factors, from 0 on: means (C, n) -> means."""
        fresh = -xp.expm1(age / -step * self._inverse)  # 1 - alpha, to its last digit
        means = means * (last > 0)
        return means + fresh * (g - means)

    def _on_host(self, step: int, index: Any, g: Any, r: Any, grad: Any) -> tuple[Any, Any]:
        means, lasts, shifts, totals, moments, _ = self._views
        usable = g <= NORM_MAX  # false for NaN
        if not usable.all():
            index, g, r = index[usable], g[usable], r if r is None else r[usable]
        rows, last = means.take(index, 1), lasts.take(index)
        before = self._weigh_host(rows, shifts)
        if r is not None and len(index):
            new = self._second_moments(totals, before, r, g, grad)
            if math.isfinite(np.add.reduce(new)):
                moments += (new - moments) / self.window
        index, first = np.unique(index, return_index=True)
        g, last, rows, before = g.take(first), last.take(first), rows.take(first, 1), before.take(first, 2)
        age = np.maximum(step - last, 0)
        means[:, index] = rows = self._advance(np, step, last, age.astype(np.float32), g, rows)
        lasts[index] = last + age
        after = self._weigh_host(rows, shifts)
        totals += np.add.reduce(after - before, 2, np.float64)
        return index, after.reshape(len(self.candidates), -1)

    def _weigh_host(self, means: Any, shifts: Any) -> Any:
        """The weights of all candidates, (A, C, n)."""
        w = means + shifts[:, :, None]
        for place, power in self._raises:
            _raise_host(w[place], power)
        return np.maximum(w, WEIGHT_MIN, out=w)

    def _on_device(self, step: Any, index: Tensor, norms: Tensor, r: Any, grad: Any) -> tuple[Tensor, Tensor]:
        rows, last = self.means.index_select(1, index), self.last_step.index_select(0, index)
        before = self._weigh_device(rows)
        usable = norms <= NORM_MAX
        g = torch.where(usable, norms, 0.0)
        if r is not None:
            new = self._second_moments(self.totals, before, r, g, grad)
            self.moments.add_(torch.where(new.isfinite().all(), (new - self.moments) / self.window, 0.0))
        first, known, once = first_places(index, usable)
        age = (step - last).clamp_(min=0) * known
        moved = self._advance(torch, step, last, age.float(), g.index_select(0, first), rows)
        rows = torch.where(known, moved, rows)
        self.means.index_copy_(1, index, rows)
        self.last_step.index_copy_(0, index, last + age)
        after = self._weigh_device(rows)
        self.totals.add_(((after.double() - before) * once).sum(2))
        return index, after.flatten(0, 1)

    def _weigh_device(self, means: Tensor) -> Tensor:
        """The weights of all candidates, (A, C, n)."""
        return _raise_device(means + self.shifts.unsqueeze(2), self.exponents.unsqueeze(2))

    def _second_moments(self, totals: Any, before: Any, r: Any, g: Any, grad: Any) -> Any:
        """mean(r r' |g|^2) of every candidate, with r' = mean(w')/w', and |mean r g|^2, in a row."""
        xp, n = torch if self.resident else np, len(g)
        if not self.resident:
            grad = grad.astype(np.float64)  # in float32 its square may be too large
        each = (r * g * g / before).sum(2) * (totals / (self.num_samples * n))
        return xp.concatenate((each.reshape(-1), ((grad @ grad) / n**2).reshape(1)))

    def traces(self) -> Tensor:
        """Estimated variance traces of all candidates, float64: averages that start at 0, so compare their ratios."""
        return self.moments[:-1] - self.moments[-1]

    # ---- all samples

    def lay_out(self) -> None:
        """Recompute shifts and exponents from the means as they are now, and add up the weights of all candidates."""
        mean = self.means.sum(1, dtype=torch.float64) / self.num_samples
        self.shifts.copy_(mean * self._shrinks)
        self.exponents.copy_(self._powers.expand_as(self.exponents))
        largest = self.means.amax(1) + self.shifts
        self._add_up()
        for _ in range(self._halvings):
            high = largest.pow(self.exponents) > self.most * BOUND_SLACK * self.totals
            if not self.resident and not high.any():
                break
            self.exponents.div_(1 + high)
            self._add_up()

    def _add_up(self) -> None:
        self._keep_on_host()
        self.totals.zero_()
        for block in self.means.split(BLOCK, 1):
            if self.resident:
                self.totals.add_(self._weigh_device(block).sum(2, dtype=torch.float64))
                continue
            for (k, c), power in self._raises:  # torch is quick at 1 and 0.5, too, if it knows them as numbers
                w = _raise_device(block[c] + self.shifts[k, c].unsqueeze(-1), power)
                self.totals[k, c].add_(w.sum(-1, dtype=torch.float64))

    def _keep_on_host(self) -> None:
        if self.resident:
            return
        rows: list[list[float]] = self.exponents.tolist()
        self._exponents = [power for row in rows for power in row]
        self._raises: list[tuple[Any, float]] = []  # which weights to what power; a row at once, where it agrees
        for k, row in enumerate(rows):
            whole = [((k, slice(None)), row[0])]
            self._raises += whole if len(set(row)) == 1 else [((k, c), power) for c, power in enumerate(row)]

    def weights(self, candidate: Tensor) -> Tensor:
        """The weights of all samples under one candidate, (M,); candidate (1,)."""
        w = self.means.index_select(0, candidate % len(self.factors)).squeeze(0).add_(self.shifts.view(-1)[candidate])
        if self.resident:
            return _raise_device(w, self.exponents.view(-1)[candidate])
        _raise_host(w.numpy(), self._exponents[int(candidate)])  # to the bit as in `update`, for an exact resume
        return w.clip_(WEIGHT_MIN)

    def state_dict(self) -> dict[str, Tensor]:
        """All state, copied to the CPU."""
        return {name: getattr(self, name).cpu().clone() for name in STATE}

    def limits(self, step: int) -> dict[str, Limit]:
        """What the saved values may be; step: the latest."""
        found = {"means": Limit(0.0, NORM_MAX), "last_step": Limit(0, max(1, step)), "shifts": FROM_0}
        return found | {"totals": ABOVE_0, "moments": ANY, "exponents": Limit(0.0, 1.0)}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Take over what `state_dict` gave."""
        for name in STATE:
            getattr(self, name).copy_(state[name])
        self._keep_on_host()


def _raise_host(w: np.ndarray, power: float) -> None:
    if power in (0.5, 0.25):
        for _ in range(round(-math.log2(power))):
            np.sqrt(w, out=w)
    elif power == 0:
        w.fill(1)
    elif power != 1:  # in float64: the last bit of numpy's power in float32 depends on the place in the array
        w[...] = np.power(w, power, dtype=np.float64)


def _raise_device(w: Tensor, power: float | Tensor) -> Tensor:
    return w.pow_(power).clip_(WEIGHT_MIN)


def check_different(name: str, numbers: tuple[float, ...]) -> None:
    """Refuse numbers that the report could not tell apart.

    >>> check_different("factors", (0.1, 0.1000001))
    Traceback (most recent call last):
    emais.errors.EmaisError: factors must differ in their first six digits, got (0.1, 0.1000001)
    """
    if len({f"{x:g}" for x in numbers}) < len(numbers):
        raise EmaisError(f"{name} must differ in their first six digits, got {numbers!r}")

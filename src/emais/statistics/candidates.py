"""Algorithm 1's statistics for several time constants at once, and what sampling by each of them would cost."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ..draws.tree import num_levels
from ..errors import EmaisError, number_above, number_from_0, positive_float, positive_int
from ..functional.probabilities import BOUND_SLACK
from .arrays import Array, Arrays, arrays_on
from .limits import ABOVE_0, ANY, FROM_0, NORM_MAX, Limit
from .powers import powers_with
from .table import outgrown, step_dtype

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

    means: (C, M) float32, `unseen` where there is none; last_step: (M,) as in `EMAScores`; 4 bytes per sample and
    factor, and 4, or 8.

    >>> import numpy as np
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
        arrays: Arrays | None = None,
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
        self.window, self.unseen = float(window), unseen
        self._arrays: Arrays = arrays or arrays_on()
        device, shape = self._arrays.device, (len(self.powers), len(self.factors))
        self.means = torch.full((shape[1], num_samples), unseen, dtype=torch.float32, device=device)
        self.last_step = torch.zeros(num_samples, dtype=step_dtype(self._arrays), device=device)
        self.shifts = torch.zeros(shape, dtype=torch.float32, device=device)  # l mean(w_c), since `lay_out`
        self.totals = torch.zeros(shape, dtype=torch.float64, device=device)  # of the weights
        self.exponents = torch.ones_like(self.shifts)  # powers, halved as often as needed at the latest `lay_out`
        count = len(self.candidates) + 1  # the last is of |mean r g|^2
        self.moments = torch.zeros(count, dtype=torch.float64, device=device)
        self._state = [self._arrays.array(getattr(self, name)) for name in STATE]
        self._raised = powers_with(self._arrays, self.exponents)
        self._powers = torch.tensor(self.powers, dtype=torch.float32, device=device).unsqueeze(1)
        self._shrinks = 1 / torch.expm1(math.log(self.bound) / self._powers.double())  # l, (A, 1); 0 where a = 0
        spread = self._powers.double() * torch.log1p(num_samples / self._shrinks)  # of log(w/w) of two samples
        widest = torch.where(self._powers > 0, spread, 0.0).max()
        self._halvings = num_levels(num_samples, 1, most, float(widest)) - 1
        rates = -1 / torch.tensor(self.factors, dtype=torch.float32, device=device).unsqueeze(1)
        self._rates = self._arrays.array(rates)  # -1/c, (C, 1)
        self.lay_out()

    # ---- one minibatch

    def update(
        self, step: int | Tensor, index: Array, norms: Array, r: Array | None = None, grad: Array | None = None
    ) -> tuple[Array, Array]:
        """Compare the candidates on a minibatch, then let their statistics take it in.

        norms and r (n,) of the drawn samples, grad (D,) their sum r g. r None: a look at samples that were not drawn,
        which compares nothing. Returns samples and their new weights (candidates, n); of a sample that is listed twice
        the last entry counts.
        """
        if outgrown(self.last_step, step):
            self._keep_steps_as(torch.int64)
        arrays, (means, lasts, shifts, totals, _, _) = self._arrays, self._state
        drawn = arrays.take((means, lasts), index)
        before = self._weigh(drawn[0], shifts)
        usable = norms <= NORM_MAX  # false for NaN
        g = arrays.where(usable, norms, math.nan)  # where one is not usable, nothing can be compared
        if r is not None and grad is not None:
            self._compare(before, r, g, grad)
        rows = arrays.rows(index, usable)
        old = rows.old(drawn[0]), rows.old(drawn[1])
        new = rows.keep(self._move(step, rows.values(g), *old), old)
        arrays.put((means, lasts), rows.index, new)
        after = self._weigh(new[0], shifts)
        totals += arrays.double(after - rows.old(before)) @ rows.once()
        return rows.index, after.reshape(len(self.candidates), -1)

    def _weigh(self, means: Array, shifts: Array) -> Array:
        """The weights of all candidates, (A, C, n), of means (C, n)."""
        w: Array = self._raised.of_all(means + shifts[:, :, None])
        return w

    def _move(self, step: int | Tensor, g: Array, means: Array, last: Array) -> tuple[Array, Array]:
        """Algorithm 1's recurrence for all factors, from 0 on: means (C, n) and the latest step (n,)."""
        age = self._arrays.at_least(step - last, 0)
        stale = self._arrays.expm1(self._arrays.single(age) / step * self._rates)  # alpha - 1, to its last digit
        means = means * (last > 0)
        return means - stale * (g - means), last + age

    def _compare(self, before: Array, r: Array, g: Array, grad: Array) -> None:
        """Average mean(r r' |g|^2) of every candidate, with r' = mean(w')/w', and |mean r g|^2."""
        arrays, n, (_, _, _, totals, moments, _) = self._arrays, len(g), self._state
        each = (r * g * g / before).sum(2) * (totals / (self.num_samples * n))
        grad = arrays.double(grad)  # in float32 its square may be too large
        new = arrays.concatenate((each.reshape(-1), ((grad @ grad) / n**2).reshape(1)))
        arrays.blend(moments, new, 1 / self.window, arrays.finite(new))

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
            if not self._arrays.known(high.any, otherwise=True):
                break
            self.exponents.div_(1 + high)
            self._add_up()

    def _add_up(self) -> None:
        self._raised.read()
        self.totals.zero_()
        for block in self.means.split(BLOCK, 1):
            self.totals.add_(self._raised.sums(block, self.shifts))

    def weights(self, candidate: Tensor) -> Tensor:
        """The weights of all samples under one candidate, (M,); candidate (1,)."""
        w = self.means.index_select(0, candidate % len(self.factors)).squeeze(0).add_(self.shifts.view(-1)[candidate])
        return self._raised.of_one(w, candidate)

    def state_dict(self) -> dict[str, Tensor]:
        """All state, copied to the CPU; steps as int64."""
        found = {name: getattr(self, name).cpu().clone() for name in STATE}
        return found | {"last_step": found["last_step"].long()}

    def nbytes(self) -> int:
        """Bytes of all state."""
        return sum(getattr(self, name).nbytes for name in STATE)

    def _keep_steps_as(self, dtype: torch.dtype) -> None:
        self.last_step = self.last_step.to(dtype)
        self._state[STATE.index("last_step")] = self._arrays.array(self.last_step)

    def limits(self, step: int) -> dict[str, Limit]:
        """What the saved values may be; step: the latest."""
        found = {"means": Limit(0.0, NORM_MAX), "last_step": Limit(0, max(1, step)), "shifts": FROM_0}
        return found | {"totals": ABOVE_0, "moments": ANY, "exponents": Limit(0.0, 1.0)}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Take over what `state_dict` gave."""
        self._keep_steps_as(step_dtype(self._arrays, int(state["last_step"].max())))
        for name in STATE:
            getattr(self, name).copy_(state[name])
        self._raised.read()


def check_different(name: str, numbers: tuple[float, ...]) -> None:
    """Refuse numbers that the report could not tell apart.

    >>> check_different("factors", (0.1, 0.1000001))
    Traceback (most recent call last):
    emais.errors.EmaisError: factors must differ in their first six digits, got (0.1, 0.1000001)
    """
    if len({f"{x:g}" for x in numbers}) < len(numbers):
        raise EmaisError(f"{name} must differ in their first six digits, got {numbers!r}")

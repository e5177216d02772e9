"""Whether a sampler is worse than uniform draws at present, from the minibatches of a run."""

from __future__ import annotations

import torch
from torch import Tensor

from .arrays import Array, Arrays, Number
from .limits import FROM_0, Limit

WEIGHT = 0.01  # of a new minibatch in the averages
HYSTERESIS = 0.05  # by how much E r^2|g|^2 must be above E|g|^2 to fall back, and below it to return
ENOUGH_SEEN = 0.2  # of the averages must be filled before anything is decided: 23 minibatches


class Fallback:
    """Compares the second moment of r g under a sampler with the uniform one, whoever drew the minibatch.

    r' = 1/(M p') are the sampler's coefficients of the samples, before it has learnt from them; r those that they were
    drawn with. Then mean(r r' |g|^2) is unbiased for the sampler, and mean(r |g|^2) for uniform draws. `state` holds
    the moving averages of the two, whether the sampler is out of use (1 or 0), for how many steps it was, and how far
    the averages are filled. Samples that are hardly ever drawn cannot show that they are neglected: bound r, too.

    >>> import numpy as np
    >>> from emais.statistics.arrays import arrays_on
    >>> watch = Fallback(arrays_on("cpu"))
    >>> for _ in range(23):
    ...     watch.add(np.ones(2), np.array([0.5, 9.0]), np.ones(2))
    >>> watch.active()
    1.0
    """

    def __init__(self, arrays: Arrays) -> None:
        self._arrays = arrays
        self.saved = torch.zeros(5, dtype=torch.float64, device=arrays.device)
        self._state = arrays.array(self.saved)  # the same memory

    def add(self, r: Array, own: Array, norms: Array, counts: bool | Tensor = True) -> None:
        """Take in a minibatch: r (N,), the sampler's r' (N,) and the gradient norms (N,); counts: whether it does."""
        arrays, state = self._arrays, self._state
        uniform = arrays.double(r) * arrays.double(norms) ** 2
        new = arrays.stack(((uniform * own).mean(), uniform.mean()))
        known = arrays.finite(new) & counts
        means = state[:2] + arrays.where(known, WEIGHT * (new - state[:2]), 0.0)
        state[4] += WEIGHT * known * (1 - state[4])
        limit = 1 + HYSTERESIS * (1 - 2 * state[2])
        worse = (means[0] > limit * means[1]) & (state[4] > ENOUGH_SEEN)
        state[:2], state[2] = means, worse  # type: ignore[assignment]
        state[3] += worse

    def active(self) -> Number:
        """1 while the sampler is out of use, else 0."""
        found: Number = self._arrays.number(self._state[2])
        return found

    def steps(self) -> Tensor:
        """Steps for which it was out of use."""
        return self.saved[3]

    def limits(self) -> dict[str, Limit]:
        """What the saved values may be."""
        return {"fallback": FROM_0}

"""Weights to powers: one exponent for each candidate, (A, C).

Two classes, because the fast way differs. numpy wants exponents as numbers, a row at a time; a device has them in a
tensor that nobody reads.
"""

from __future__ import annotations

import math
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from ..draws.tree import WEIGHT_MIN
from .arrays import Arrays


class Powers(Protocol):
    """Raises weights to the exponents of all candidates, or of one; no weight comes out below `WEIGHT_MIN`."""

    def read(self) -> None:
        """Take the exponents over: they have changed."""

    def of_all(self, w: Any) -> Any:
        """(A, C, n) to the exponents of all candidates; may overwrite w."""

    def of_one(self, w: Tensor, candidate: Tensor) -> Tensor:
        """(M,) to the exponent of one candidate, to the bit as in `of_all`; may overwrite w. candidate (1,)."""

    def sums(self, means: Tensor, shifts: Tensor) -> Tensor:
        """The sums of all weights, (A, C) float64, of means (C, n) and shifts (A, C)."""


class HostPowers:
    """numpy for a minibatch, torch with exponents as numbers for all samples: it is quick at 1 and 0.5 then."""

    def __init__(self, exponents: Tensor) -> None:
        self._exponents = exponents
        self.read()

    def read(self) -> None:
        """As a list of (which weights, to what power): a row at once, where it agrees."""
        rows: list[list[float]] = self._exponents.tolist()
        self._each = [power for row in rows for power in row]
        self._raises: list[tuple[Any, float]] = []
        for k, row in enumerate(rows):
            whole = [((k, slice(None)), row[0])]
            self._raises += whole if len(set(row)) == 1 else [((k, c), power) for c, power in enumerate(row)]

    def of_all(self, w: np.ndarray) -> np.ndarray:
        """In place."""
        for place, power in self._raises:
            in_numpy(w[place], power)
        np.maximum(w, WEIGHT_MIN, out=w)
        return w

    def of_one(self, w: Tensor, candidate: Tensor) -> Tensor:
        """In place."""
        in_numpy(w.numpy(), self._each[int(candidate)])
        return w.clip_(WEIGHT_MIN)

    def sums(self, means: Tensor, shifts: Tensor) -> Tensor:
        """One power at a time."""
        found = torch.zeros(shifts.shape, dtype=torch.float64, device="cpu")
        for (k, c), power in self._raises:
            w = in_torch(means[c] + shifts[k, c].unsqueeze(-1), power)
            found[k, c] = w.sum(-1, dtype=torch.float64)
        return found


class DevicePowers:
    """torch with exponents in a tensor: no host sync."""

    def __init__(self, exponents: Tensor) -> None:
        self._exponents = exponents

    def read(self) -> None:
        """Nothing: the tensor is read in every call."""

    def of_all(self, w: Tensor) -> Tensor:
        """In place."""
        return in_torch(w, self._exponents.unsqueeze(2))

    def of_one(self, w: Tensor, candidate: Tensor) -> Tensor:
        """In place."""
        return in_torch(w, self._exponents.view(-1)[candidate])

    def sums(self, means: Tensor, shifts: Tensor) -> Tensor:
        """All at once."""
        return self.of_all(means + shifts.unsqueeze(2)).sum(2, dtype=torch.float64)


def in_numpy(w: np.ndarray, power: float) -> None:
    """w to a power, in place; roots are quicker than powers."""
    if power in (0.5, 0.25):
        for _ in range(round(-math.log2(power))):
            np.sqrt(w, out=w)
    elif power == 0:
        w.fill(1)
    elif power != 1:  # in float64: the last bit of numpy's power in float32 depends on the place in the array
        w[...] = np.power(w, power, dtype=np.float64)


def in_torch(w: Tensor, power: float | Tensor) -> Tensor:
    """w to a power, in place."""
    return w.pow_(power).clip_(WEIGHT_MIN)


def powers_with(arrays: Arrays, exponents: Tensor) -> Powers:
    """The powers that suit these arrays."""
    return DevicePowers(exponents) if arrays.resident else HostPowers(exponents)

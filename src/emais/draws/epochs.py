"""Epochs without replacement, at any data set size."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from .permutation import Permutation
from .uniforms import mix

LISTED = 2**22  # samples up to which an order is a shuffled list, of 4 bytes a sample; a larger one is computed
PLACES = 2**13  # places of it to compute at a time


class Epochs:
    """Epochs without replacement, each reshuffled, as one endless stream cut into minibatches of exactly N.

    A minibatch may reach over the end of an epoch into the next. Order is a function of (seed, epoch) alone.

    >>> epochs = Epochs(4, batch_size=2, seed=0)
    >>> sorted(torch.cat([epochs(1), epochs(2)]).tolist())
    [0, 1, 2, 3]
    """

    def __init__(self, num_samples: int, batch_size: int, seed: int) -> None:
        self.num_samples, self.batch_size, self.seed = num_samples, batch_size, seed
        self._step = -1  # of the minibatch that is here
        self._minibatch = torch.empty(0, dtype=torch.int64, device="cpu")
        self._epoch, self._first = -1, 0  # where the part of an order that is here belongs
        self._part = self._minibatch

    def __call__(self, step: int) -> Tensor:
        """Indices (N,) int64 of this step, from 1."""
        if step != self._step:  # else it is made again, and an epoch that it has finished is no longer here
            self._minibatch, self._step = self._cut(step), step
        return self._minibatch.clone()

    def _cut(self, step: int) -> Tensor:
        start, pieces = (step - 1) * self.batch_size, []
        stop = start + self.batch_size
        while start < stop:
            epoch, place = divmod(start, self.num_samples)
            self._fetch(epoch, place)
            place -= self._first
            # copied: a view would keep the whole order of a finished epoch beside that of the next
            pieces.append(self._part[place : place + stop - start].to(torch.int64, copy=True))
            start += len(pieces[-1])
        return torch.cat(pieces)

    def table(self, num_steps: int) -> Tensor:
        """The first `num_steps` minibatches, (num_steps, N) int32, for draws that never leave the device."""
        return torch.stack([self(step).int() for step in range(1, num_steps + 1)])

    def _fetch(self, epoch: int, place: int) -> None:
        """Have the part of an order here that this place is in: all of it, or a block."""
        if epoch == self._epoch and 0 <= place - self._first < len(self._part):
            return
        self.forget()  # first, so that there are never two
        key = mix(self.seed, epoch, 0) >> 1
        if self.num_samples <= LISTED:
            generator = torch.Generator("cpu").manual_seed(key)
            self._part = torch.randperm(self.num_samples, generator=generator, dtype=torch.int32, device="cpu")
        else:
            self._first = place - place % PLACES
            places = np.arange(self._first, min(self._first + PLACES, self.num_samples))
            self._part = torch.from_numpy(Permutation(self.num_samples, key)(places))
        self._epoch = epoch

    def forget(self) -> None:
        """Free what is here of an order; it can be made again."""
        self._epoch, self._first, self._part = -1, 0, self._part[:0].clone()

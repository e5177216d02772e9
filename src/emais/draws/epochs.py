"""Epochs without replacement, at any data set size."""

from __future__ import annotations

import torch
from torch import Tensor

from .uniforms import mix


class Epochs:
    """Epochs without replacement, each reshuffled, as one endless stream cut into minibatches of exactly N.

    A minibatch may reach over the end of an epoch into the next. Order is a function of (seed, epoch) alone.

    >>> epochs = Epochs(4, batch_size=2, seed=0)
    >>> sorted(torch.cat([epochs(1), epochs(2)]).tolist())
    [0, 1, 2, 3]
    """

    def __init__(self, num_samples: int, batch_size: int, seed: int) -> None:
        self.num_samples, self.batch_size, self.seed = num_samples, batch_size, seed
        self._epoch = self._step = -1  # those of the order and of the minibatch that are here
        self._order = self._minibatch = torch.empty(0, dtype=torch.int64, device="cpu")

    def __call__(self, step: int) -> Tensor:
        """Indices (N,) int64 of this step, from 1."""
        if step != self._step:  # else it is made again, and an epoch that it has finished is no longer here
            self._minibatch, self._step = self._cut(step), step
        return self._minibatch.clone()

    def _cut(self, step: int) -> Tensor:
        start, parts = (step - 1) * self.batch_size, []
        stop = start + self.batch_size
        while start < stop:
            epoch, offset = divmod(start, self.num_samples)
            # copied: a view would keep the whole order of a finished epoch beside that of the next
            parts.append(self._order_of(epoch)[offset : offset + stop - start].to(torch.int64, copy=True))
            start += len(parts[-1])
        return torch.cat(parts)

    def table(self, num_steps: int) -> Tensor:
        """The first `num_steps` minibatches, (num_steps, N) int32, for draws that never leave the device."""
        return torch.stack([self(step).int() for step in range(1, num_steps + 1)])

    def _order_of(self, epoch: int) -> Tensor:
        if epoch != self._epoch:
            self.forget()  # first, so that there are never two
            generator = torch.Generator("cpu").manual_seed(mix(self.seed, epoch, 0) >> 1)
            dtype = torch.int32 if self.num_samples < 2**31 else torch.int64
            self._order = torch.randperm(self.num_samples, generator=generator, dtype=dtype, device="cpu")
            self._epoch = epoch
        return self._order

    def forget(self) -> None:
        """Free the shuffled order, which can be made again."""
        self._epoch, self._order = -1, self._order[:0].clone()

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
        self._orders: dict[int, Tensor] = {}

    def __call__(self, step: int) -> Tensor:
        """Indices (N,) int64 of this step, from 1."""
        start, parts = (step - 1) * self.batch_size, []
        stop = start + self.batch_size
        while start < stop:
            epoch, offset = divmod(start, self.num_samples)
            part = self._order(epoch)[offset : offset + stop - start]
            parts.append(part)
            start += len(part)
        return torch.cat(parts).long()

    def table(self, num_steps: int) -> Tensor:
        """The first `num_steps` minibatches, (num_steps, N) int32, for draws that never leave the device."""
        return torch.stack([self(step).int() for step in range(1, num_steps + 1)])

    def _order(self, epoch: int) -> Tensor:
        if epoch not in self._orders:
            self._orders = {e: o for e, o in self._orders.items() if e >= epoch - 1}
            generator = torch.Generator("cpu").manual_seed(mix(self.seed, epoch, 0) >> 1)
            dtype = torch.int32 if self.num_samples < 2**31 else torch.int64
            self._orders[epoch] = torch.randperm(self.num_samples, generator=generator, dtype=dtype, device="cpu")
        return self._orders[epoch]

    def forget(self) -> None:
        """Free the shuffled orders, which can be made again."""
        self._orders.clear()

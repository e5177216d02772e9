"""Where draws come from: a warm-up in epochs, then a sampler. One source on the CPU, one that stays on a device."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

import numpy as np
import torch
from torch import Tensor

from ..errors import EmaisError
from .epochs import Epochs
from .sampler import ExactSampler
from .uniforms import Uniforms

if TYPE_CHECKING:
    from ..statistics.arrays import Array, Number


class DrawSource(Protocol):
    """The next draw is prepared from the present statistics, and made again when they change, until it is taken."""

    batch_size: int  # samples a step
    sampler: ExactSampler | None  # None: uniform with replacement
    offset: Callable[[], Number | None] | None  # gives what is added to every weight at the time of a draw
    uniform: Callable[[], Number] | None  # gives the share of uniform draws; None: there are none
    ready: bool  # whether the prepared draw is up to date

    @property
    def step(self) -> int | Tensor:
        """Steps taken so far, an int or a 0-d tensor."""

    def prepare(self) -> None:
        """Make the draw of the next step."""

    def take(self) -> tuple[int | Tensor, Array, Array]:
        """(step, index, r) of the next step."""

    def restore(self, step: int) -> None:
        """Go on after this step."""


class HostSource:
    """Draws on the CPU. `epoch_steps` steps (None: all) come from epochs without replacement, with r = 1."""

    def __init__(self, num_samples: int, batch_size: int, seed: int, epoch_steps: int | None) -> None:
        self.num_samples, self.batch_size, self.epoch_steps = num_samples, batch_size, epoch_steps
        self.sampler: ExactSampler | None = None
        self.offset: Callable[[], Number | None] | None = None
        self.uniform: Callable[[], Number] | None = None
        self.step, self.ready = 0, False
        self._epochs = Epochs(num_samples, batch_size, seed)
        self._uniforms = Uniforms(seed, 3, batch_size)
        self._ones = np.ones(batch_size, dtype=np.float32)

    def prepare(self) -> None:
        """Make the draw of the next step."""
        self._next = self._draw(self.step + 1)
        self.ready = True

    def _draw(self, step: int) -> tuple[np.ndarray, np.ndarray]:
        if self.epoch_steps is None or step <= self.epoch_steps:
            return self._epochs(step).numpy(), self._ones.copy()
        if step - 1 == self.epoch_steps:
            self._epochs.forget()
        u = self._uniforms.host(step)
        if self.sampler is not None:
            if self.uniform is not None:
                return self.sampler.tree.draw_mixed(u, self.uniform())
            return self.sampler.tree.draw(u, self.offset and self.offset())
        return (u[0] * self.num_samples).astype(np.int64), self._ones.copy()

    def take(self) -> tuple[int, np.ndarray, np.ndarray]:
        """Step, indices (N,) int64 and r (N,) float32."""
        if not self.ready:
            self.prepare()
        self.step, self.ready = self.step + 1, False
        return self.step, *self._next

    def restore(self, step: int) -> None:
        """Go on after this step."""
        self.step, self.ready = step, False
        self._epochs.forget()  # the warm-up may be over by then


class DeviceSource:
    """Draws on another device, with no host sync: the step is a tensor, the warm-up order a table on the device.

    The prepared draw lies in buffers that are written in place, so that a CUDA graph reads what its last replay left.
    """

    def __init__(
        self,
        num_samples: int,
        batch_size: int,
        seed: int,
        epoch_steps: int | None,
        num_steps: int | None,
        device: torch.device,
    ) -> None:
        self.num_samples, self.batch_size, self.epoch_steps = num_samples, batch_size, epoch_steps
        self.sampler: ExactSampler | None = None
        self.offset: Callable[[], Number | None] | None = None
        self.uniform: Callable[[], Number] | None = None
        self.ready = False
        self.step = torch.zeros((), dtype=torch.int64, device=device)
        steps = num_steps if epoch_steps is None else epoch_steps
        if steps is None:
            raise EmaisError(f"epochs on {device} need num_steps: their order is laid out there beforehand")
        self._order = Epochs(num_samples, batch_size, seed).table(steps).to(device) if steps else None
        self._uniforms = Uniforms(seed, 3, batch_size, device)
        self._index = torch.empty(batch_size, dtype=torch.int64, device=device)
        self._r = torch.ones(batch_size, dtype=torch.float32, device=device)
        self._one = torch.ones((), dtype=torch.float32, device=device)

    def prepare(self) -> None:
        """Make the draw of the next step."""
        index, r = self._draw(self.step)
        self._index.copy_(index)
        self._r.copy_(r)
        self.ready = True

    def _draw(self, done: Tensor) -> tuple[Tensor, Tensor]:
        """The draw that comes after so many steps."""
        if self._order is None:
            return self._sample(done + 1)
        row = done.clamp(max=len(self._order) - 1).view(1)
        scanned = self._order.index_select(0, row).view(-1).long()
        if self.epoch_steps is None:
            return scanned, self._r
        index, r = self._sample(done + 1)
        scanning = done < self.epoch_steps
        return torch.where(scanning, scanned, index), torch.where(scanning, self._one, r)

    def _sample(self, step: Tensor) -> tuple[Tensor, Tensor]:
        u = self._uniforms(step)
        if self.sampler is not None:
            if self.uniform is not None:
                return self.sampler.tree.draw_mixed(u, self.uniform())
            return self.sampler.tree.draw(u, self.offset and self.offset())
        return (u[0] * self.num_samples).long(), self._r

    def take(self) -> tuple[Tensor, Tensor, Tensor]:
        """Step (0-d), indices (N,) int64 and r (N,) float32."""
        if not self.ready:
            self.prepare()
        self.ready = False
        return self.step.add_(1).clone(), self._index.clone(), self._r.clone()

    def restore(self, step: int) -> None:
        """Go on after this step."""
        self.step.fill_(step)
        self.ready = False

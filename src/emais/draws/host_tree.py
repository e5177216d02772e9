"""The tree of weights on the CPU: small arrays, in numpy, whose calls cost a fraction of torch's."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

from ..functional.probabilities import BOUND_SLACK
from .tree import FLAT, WeightTree


class HostTree(WeightTree):
    """Keeps only the exponents that were ever needed: the first draw that needs another one adds it, at O(M)."""

    def __init__(self, num_samples: int, batch_size: int, kappa: float) -> None:
        super().__init__(num_samples, batch_size, kappa, "cpu")
        self._kept = 1
        self._starts = np.arange(batch_size) * self.width

    def recompute(self) -> None:
        """All sums from the leaves: O(M)."""
        sums = [self._level_sums(self.table.clone() if self._kept > 1 else self.table)]
        tops = [self.table.amax(1)]
        for _ in range(1, self.tiers):
            short = -tops[-1].numel() % self.width
            sums[-1], tops[-1] = pad(sums[-1], (0, short)), pad(tops[-1], (0, short))
            rows = sums[-1].unflatten(1, (-1, self.width))
            sums.append(torch.from_numpy(np.add.reduce(rows.numpy(), 2)))
            tops.append(tops[-1].view(-1, self.width).amax(1))
        self.sums, self.tops = sums, tops
        self._views = self.table.numpy(), [t.numpy() for t in tops], [s.numpy() for s in sums]

    def put(self, index: np.ndarray, weights: np.ndarray) -> None:
        """Set w[index] = weights, and recompute the nodes above them. Of a repeated index the last weight stays."""
        table, all_tops, all_sums = self._views
        table.reshape(-1)[index] = np.minimum(np.maximum(weights, self.low), self.high)
        nodes = index // self.width
        block = table.take(nodes, 0)
        # ufunc methods: array methods go through Python code, which costs as much again at this size
        tops, sums = np.maximum.reduce(block, 1), np.add.reduce(block, 1, np.float64)
        if self._kept > 1:
            sums = self._level_sums(torch.from_numpy(block)).numpy()
        for tier in range(self.tiers):
            if tier:
                nodes = nodes // self.width
                tops = all_tops[tier - 1].reshape(-1, self.width)[nodes].max(1)
                sums = all_sums[tier - 1].reshape(self._kept, -1, self.width)[:, nodes]
                sums = np.add.reduce(sums, 2)
            all_tops[tier][nodes] = tops
            all_sums[tier][:, nodes] = sums

    def _level_sums(self, block: Tensor) -> Tensor:
        """Row sums of block^e for every exponent kept, (levels, rows) float64; may overwrite block."""
        # in numpy, as in `put`: torch adds up in another order, and a loaded state must have the same sums
        sums = [np.add.reduce(block.numpy(), 1, np.float64)]
        for level in range(1, self._kept):
            block = self._raise(block, level, level - 1)
            sums.append(np.add.reduce(block.numpy(), 1, np.float64))
        return torch.from_numpy(np.stack(sums))

    def _raise(self, block: Tensor, level: int, done: int = 0) -> Tensor:
        """Entries of block, already at level `done`, taken to `level` in place (chained roots beat pow)."""
        if level == len(self.exponents) - 1:
            return block.pow_(FLAT)
        for _ in range(level - done):
            block.sqrt_()
        return block

    def draw(self, u: np.ndarray, offset: float | None = None) -> tuple[np.ndarray, np.ndarray]:
        """Indices (N,) int64 and r = 1/(M p) (N,) float32 from uniforms u (3, N)."""
        level, ends = self._choose_level()
        table, _, all_sums = self._views
        total = ends[-1]
        mass = total if offset is None else total + offset * self.num_samples
        place = u[0] * mass
        node = ends.searchsorted(place, side="right")
        if offset is not None:
            node = np.minimum(node, len(ends) - 1)  # the others are replaced below
        for tier in reversed(range(self.tiers - 1)):
            block = all_sums[tier][level].reshape(-1, self.width).take(node, 0)
            node = node * self.width + _pick_host(block, u[tier + 1])
        block = table.take(node, 0)
        if level:
            self._raise(torch.from_numpy(block), level)
        col = _pick_host(block, u[-1])
        if offset is None:
            index, value = node * self.width + col, block.reshape(-1).take(self._starts + col)
        else:
            beyond = np.maximum(place - total, 0.0) / (offset or 1.0)
            spread = np.minimum(beyond, self.num_samples - 1).astype(np.int64)
            index = np.where(place < total, node * self.width + col, spread)
            value = table.reshape(-1).take(index) + offset
        return index, (mass / self.num_samples / value.astype(np.float64)).astype(np.float32)

    def coefficients(self, index: np.ndarray) -> np.ndarray:
        """r = 1/(M p) (N,) float64 that `draw` would give these samples now."""
        level, ends = self._choose_level()
        value = self._views[0].reshape(-1).take(index)
        if level:
            self._raise(torch.from_numpy(value), level)
        found: np.ndarray = ends[-1] / self.num_samples / value.astype(np.float64)
        return found

    def draw_mixed(self, u: np.ndarray, uniform: float) -> tuple[np.ndarray, np.ndarray]:
        """`draw` with a share of uniform draws; u[0] says which, and what is left of it is uniform again."""
        if not uniform:
            return self.draw(u)
        among = u[0] < uniform
        rest = np.where(among, 0.0, (u[0] - uniform) / (1 - uniform or 1.0))
        index, _ = self.draw(np.stack((rest, *u[1:])))
        spread = np.minimum(u[0] * (self.num_samples / uniform), self.num_samples - 1).astype(np.int64)
        index = np.where(among, spread, index)
        return index, (1 / ((1 - uniform) / self.coefficients(index) + uniform)).astype(np.float32)

    def put_tensors(self, index: Tensor, weights: Tensor) -> None:
        """`put`, of tensors; of a repeated index the first weight stays."""
        self.put(index.numpy()[::-1], weights.numpy()[::-1])

    def draw_tensors(self, u: Tensor, offset: float | Tensor | None = None) -> tuple[Tensor, Tensor]:
        """`draw`, of tensors."""
        index, r = self.draw(u.numpy(), None if offset is None else float(offset))
        return torch.from_numpy(index), torch.from_numpy(r)

    def _choose_level(self) -> tuple[int, np.ndarray]:
        """The smallest exponent that meets max(p) N <= kappa, and the running sums of the top tier."""
        peak = float(np.maximum.reduce(self._views[1][-1]))
        for level, exponent in enumerate(self.exponents):
            if level == self._kept:
                self._kept += 1
                self.recompute()  # O(M), once for each exponent that is ever needed
            ends = _running_sums(self._views[2][-1][level])
            if peak**exponent * self.batch_size <= self.kappa * ends[-1] * BOUND_SLACK:
                break
        return level, ends

    def total(self) -> float:
        """The sum of the weights."""
        return float(np.add.reduce(self._views[2][-1][0]))

    def __setstate__(self, state: dict[str, Any]) -> None:
        """A copy: its views must be of its own leaves."""
        self.__dict__.update(state)
        self.recompute()


class WideTree(HostTree):
    """Leaves in float64, at most `high`, and 0 for a sample that is never drawn. It never flattens.

    >>> tree = WideTree(3, batch_size=2)
    >>> tree.fill(torch.tensor([0.0, 1e-100, 0.0], dtype=torch.float64))
    >>> tree.draw(np.full((3, 2), 0.5))[0].tolist()
    [1, 1]
    """

    dtype = torch.float64
    low, high = 0.0, 1e150  # sums and ratios of weights stay finite

    def __init__(self, num_samples: int, batch_size: int) -> None:
        super().__init__(num_samples, batch_size, math.inf)

    def put(self, index: np.ndarray, weights: np.ndarray) -> None:
        """Set w[index] = weights, of a repeated index the last; recompute the nodes above, or all if that is less."""
        if len(index) * self.width < self.num_samples:
            return super().put(index, weights)
        self.weights.numpy()[index] = weights
        self.recompute()


def _running_sums(x: np.ndarray) -> np.ndarray:
    """Along the last axis, in float64. Torch is three times as fast as numpy, where that outweighs a dearer call."""
    if x.size < 4000:
        return np.add.accumulate(x, -1, np.float64)
    return torch.from_numpy(x).cumsum(-1, dtype=torch.float64).numpy()


def _pick_host(block: np.ndarray, u: np.ndarray) -> np.ndarray:
    """A column (N,) for each row of block (N, width), with probability proportional to its entry."""
    inner = _running_sums(block)
    column: np.ndarray = (inner > (u * inner[:, -1])[:, None]).argmax(1)
    return column

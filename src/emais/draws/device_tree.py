"""The tree of weights on a device: fixed shapes and no host sync, so that a step can be captured in a CUDA graph."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn.functional import pad

from ..functional.probabilities import BOUND_SLACK
from .tree import WEIGHT_MAX, WEIGHT_MIN, WeightTree


class DeviceTree(WeightTree):
    """Keeps all exponents that can be needed, and chooses one without a host sync."""

    def __init__(self, num_samples: int, batch_size: int, kappa: float, device: torch.device | str) -> None:
        super().__init__(num_samples, batch_size, kappa, device)
        self._e = torch.tensor(self.exponents, dtype=torch.float32, device=device)
        # the last level is uniform and always taken: its bound is infinite
        self._bound = torch.full_like(self._e, kappa / batch_size * BOUND_SLACK, dtype=torch.float64)
        self._bound[-1] = math.inf

    def recompute(self) -> None:
        """All sums from the leaves: O(M). In place once they are there: a CUDA graph knows where they lie."""
        sums, tops = [self._level_sums(self.table)], [self.table.amax(1)]
        for _ in range(1, self.tiers):
            short = -tops[-1].numel() % self.width
            sums[-1], tops[-1] = pad(sums[-1], (0, short)), pad(tops[-1], (0, short))
            sums.append(sums[-1].unflatten(1, (-1, self.width)).sum(2))
            tops.append(tops[-1].view(-1, self.width).amax(1))
        if not self.sums:
            self.sums, self.tops = sums, tops
        for old, new in zip(self.sums + self.tops, sums + tops, strict=True):
            old.copy_(new)

    def put(self, index: Tensor, weights: Tensor) -> None:
        """Set w[index] = weights, and recompute the nodes above them. The weights of a repeated index must agree."""
        self.table.view(-1).index_copy_(0, index, weights.clamp(WEIGHT_MIN, WEIGHT_MAX))
        self._climb(index.div(self.width, rounding_mode="floor"))

    def _climb(self, nodes: Tensor) -> None:
        """Recompute these nodes above the leaves, and all above them."""
        block = self.table.index_select(0, nodes)
        tops, sums = block.amax(1), self._level_sums(block)
        for tier in range(self.tiers):
            if tier:
                nodes = nodes.div(self.width, rounding_mode="floor")
                tops = self.tops[tier - 1].view(-1, self.width).index_select(0, nodes).amax(1)
                sums = self.sums[tier - 1].unflatten(1, (-1, self.width)).index_select(1, nodes).sum(2)
            self.tops[tier].index_copy_(0, nodes, tops)
            self.sums[tier].index_copy_(1, nodes, sums)

    def _level_sums(self, block: Tensor) -> Tensor:
        """Row sums of block^e for every exponent, (levels, rows) float64."""
        return block.pow(self._e.view(-1, 1, 1)).sum(2, dtype=torch.float64)

    def draw(self, u: Tensor, offset: float | Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Indices (N,) int64 and r = 1/(M p) (N,) float32 from uniforms u (3, N)."""
        level = self._choose_level()
        ends = self.sums[-1].index_select(0, level).view(-1).cumsum(0)
        total = ends[-1:]
        mass = total if offset is None else total + offset * self.num_samples
        place = u[0] * mass
        node = torch.searchsorted(ends, place, right=True)
        if offset is not None:
            node = node.clamp(max=len(ends) - 1)  # the others are replaced below
        for tier in reversed(range(self.tiers - 1)):
            rows = self.sums[tier].view(-1, self.width)
            block = rows.index_select(0, node + level * (len(rows) // len(self.exponents)))
            node = _pick(block, u[tier + 1]).squeeze(1).add(node, alpha=self.width)
        block = self.table.index_select(0, node).pow_(self._e.index_select(0, level))
        col = _pick(block, u[-1])
        index, value = col.squeeze(1).add(node, alpha=self.width), block.gather(1, col).squeeze(1)
        if offset is not None:
            spread = ((place - total) / offset).clamp(0, self.num_samples - 1).nan_to_num_(0).long()
            index = torch.where(place < total, index, spread)
            value = self.table.view(-1).index_select(0, index).double() + offset
        return index, (mass / self.num_samples / value).float()

    def _choose_level(self) -> Tensor:
        """The smallest exponent that meets max(p) N <= kappa, (1,)."""
        peaks = self.tops[-1].max().pow(self._e)
        fits = peaks <= self._bound * self.sums[-1].sum(1)
        return fits.to(torch.uint8).argmax(keepdim=True)

    def coefficients(self, index: Tensor) -> Tensor:
        """r = 1/(M p) (N,) float64 that `draw` would give these samples now."""
        level = self._choose_level()
        value = self.table.view(-1).index_select(0, index).pow(self._e.index_select(0, level))
        return self.sums[-1].index_select(0, level).sum() / self.num_samples / value.double()

    def draw_mixed(self, u: Tensor, uniform: float | Tensor) -> tuple[Tensor, Tensor]:
        """`draw` with a share of uniform draws; u[0] says which, and what is left of it is uniform again."""
        if not isinstance(uniform, Tensor) and not uniform:
            return self.draw(u)
        among = u[0] < uniform
        rest = torch.where(among, 0.0, (u[0] - uniform) / (1 - torch.as_tensor(uniform))).nan_to_num_(0.0)
        index, _ = self.draw(torch.cat((rest.unsqueeze(0), u[1:])))
        spread = (u[0] * (self.num_samples / uniform)).nan_to_num_(0.0).clamp(0, self.num_samples - 1).long()
        index = torch.where(among, spread, index)
        return index, (1 / ((1 - uniform) / self.coefficients(index) + uniform)).float()

    def put_tensors(self, index: Tensor, weights: Tensor) -> None:
        """`put`: it has tensors."""
        self.put(index, weights)

    def draw_tensors(self, u: Tensor, offset: float | Tensor | None = None) -> tuple[Tensor, Tensor]:
        """`draw`: it has tensors."""
        return self.draw(u, offset)

    def total(self) -> Tensor:
        """The sum of the weights."""
        return self.sums[-1][0].sum()


def _pick(block: Tensor, u: Tensor) -> Tensor:
    """A column (N, 1) for each row of block (N, width), with probability proportional to its entry."""
    inner = block.cumsum(1, dtype=torch.float64)
    return torch.searchsorted(inner, u.unsqueeze(1) * inner[:, -1:], right=True)

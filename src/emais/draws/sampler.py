"""Exact draws with replacement from changing weights, at any data set size."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

from ..errors import EmaisError, positive_float, positive_int
from ..functional.probabilities import BOUND_SLACK, adjusted_probabilities, check_flattening

WEIGHT_MIN, WEIGHT_MAX = 2.0**-63, 2.0**63  # w is kept in this range: positive, and p never degenerates
_FLAT = 2.0**-30  # w ** _FLAT rounds to 1 over the whole range (and a padding 0 stays 0): the uniform level
_MIN_WIDTH = 16
_DEEP = 5_000  # samples per two draws from which a second tier of nodes pays


def num_levels(num_samples: int, batch_size: int, kappa: float, spread: float = math.inf) -> int:
    """How many exponents 1, 1/2, 1/4, ... flattening can need for weights in range, before uniform.

    p_max <= kappa/N holds as soon as (w_max/w_min)^e <= (M - 1)/(N/kappa - 1). spread: log(w_max/w_min), if known.

    >>> num_levels(60_000, 128, 1.0), num_levels(60_000, 128, 1.0, math.log(1e6))
    (5, 3)
    """
    rivals = batch_size / kappa - 1
    if rivals <= 0:
        return 1
    room = math.log(max((num_samples - 1) / rivals, 1 + 2.0**-22))
    return 1 + math.ceil(math.log2(max(1.0, min(spread, math.log(WEIGHT_MAX / WEIGHT_MIN)) / room)))


class ExactSampler:
    """Draws N samples with replacement from ComputeAdjustedProbabilities(w), while w changes N entries a step.

    The weights are the leaves of a shallow tree. A node keeps, in float64, the sum of w^e over its leaves for
    e = 1, 1/2, 1/4, ..., and their maximum. An update recomputes the touched nodes from their children, so the sums
    have no drift; a draw walks down from the top. With the two tiers of nodes that a large M gets, a step costs
    O(N (M/N)^(1/3)), where recomputing p costs O(M). `kappa=None` never flattens: p is proportional to w.

    On the CPU only the exponents in use are kept, and small arrays are handled in numpy, whose calls cost less.
    A `resident` sampler (the default on other devices) keeps all exponents that can be needed and chooses one
    without a host sync, so that a step can be captured in a CUDA graph.

    >>> s = ExactSampler(4, batch_size=2)
    >>> s.update(torch.tensor([0]), torch.tensor([3.0]))
    >>> s.probabilities()
    tensor([0.5000, 0.1667, 0.1667, 0.1667], dtype=torch.float64)

    Paper: alg:ema_is (ComputeAdjustedProbabilities), alg:train_emais
    """

    def __init__(
        self,
        num_samples: int,
        batch_size: int,
        kappa: float | None = 1.0,
        *,
        device: torch.device | str = "cpu",
        resident: bool | None = None,
    ) -> None:
        self.num_samples = num_samples = positive_int("num_samples", num_samples)
        self.batch_size = batch_size = positive_int("batch_size", batch_size)
        self.kappa = math.inf if kappa is None else positive_float("kappa", kappa)
        check_flattening(num_samples, batch_size, self.kappa)
        per_draw = num_samples / (2 * batch_size)
        self.tiers = 1 if per_draw < _DEEP else 2
        self.width = max(_MIN_WIDTH, round(per_draw ** (1 / (self.tiers + 1))))
        self._table = torch.zeros(-(-num_samples // self.width), self.width, dtype=torch.float32, device=device)
        self._on_host = self._table.is_cpu if resident is None else not resident
        levels = num_levels(num_samples, batch_size, self.kappa)
        self._exponents = [1.0] if kappa is None else [2.0**-k for k in range(levels)] + [_FLAT]
        self._kept = 1 if self._on_host else len(self._exponents)
        self._starts = np.arange(batch_size) * self.width
        if not self._on_host:
            self._e = torch.tensor(self._exponents, dtype=torch.float32, device=device)
            # the last level is uniform and always taken: its bound is infinite
            self._bound = torch.full_like(self._e, self.kappa / batch_size * BOUND_SLACK, dtype=torch.float64)
            self._bound[-1] = math.inf
        self._sums: list[Tensor] = []
        self._tops: list[Tensor] = []
        self.fill(torch.ones(1, dtype=torch.float32, device=device))

    @property
    def weights(self) -> Tensor:
        """The weights in use, (M,): a view, not to be written to."""
        return self._table.view(-1)[: self.num_samples]

    def fill(self, weights: Tensor) -> None:
        """Set all weights, (M,) or one for all, and recompute every sum: O(M)."""
        self.weights.copy_(weights.clamp(WEIGHT_MIN, WEIGHT_MAX).expand(self.num_samples))
        self._recompute()

    def _recompute(self) -> None:
        sums = [self._level_sums(self._table.clone() if self._kept > 1 else self._table)]
        tops = [self._table.amax(1)]  # by tier, from the leaves upwards
        for _ in range(1, self.tiers):
            short = -tops[-1].numel() % self.width
            sums[-1], tops[-1] = pad(sums[-1], (0, short)), pad(tops[-1], (0, short))
            rows = sums[-1].unflatten(1, (-1, self.width))
            sums.append(torch.from_numpy(np.add.reduce(rows.numpy(), 2)) if self._on_host else rows.sum(2))
            tops.append(tops[-1].view(-1, self.width).amax(1))
        if not self._on_host and self._sums:  # in place: a CUDA graph knows where they lie
            for old, new in zip(self._sums + self._tops, sums + tops, strict=True):
                old.copy_(new)
        else:
            self._sums, self._tops = sums, tops
        if self._on_host:
            self._views = self._table.numpy(), [t.numpy() for t in self._tops], [s.numpy() for s in self._sums]

    def update(self, index: Tensor, weights: Tensor) -> None:
        """Set w[index] = weights, of a repeated index the first (if resident they must agree)."""
        if self._on_host:
            self.update_host(index.numpy()[::-1], weights.numpy()[::-1])
        else:
            self._table.view(-1).index_copy_(0, index, weights.clamp(WEIGHT_MIN, WEIGHT_MAX))
            self._climb(index.div(self.width, rounding_mode="floor"))

    def _climb(self, nodes: Tensor) -> None:
        """Recompute these nodes above the leaves, and all above them."""
        block = self._table.index_select(0, nodes)
        tops, sums = block.amax(1), self._level_sums(block)
        for tier in range(self.tiers):
            if tier:
                nodes = nodes.div(self.width, rounding_mode="floor")
                tops = self._tops[tier - 1].view(-1, self.width).index_select(0, nodes).amax(1)
                sums = self._sums[tier - 1].unflatten(1, (-1, self.width)).index_select(1, nodes).sum(2)
            self._tops[tier].index_copy_(0, nodes, tops)
            self._sums[tier].index_copy_(1, nodes, sums)

    def update_host(self, index: np.ndarray, weights: np.ndarray) -> None:
        """`update` on the CPU, in numpy; of a repeated index the last weight stays."""
        table, all_tops, all_sums = self._views
        table.reshape(-1)[index] = np.minimum(np.maximum(weights, WEIGHT_MIN), WEIGHT_MAX)
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
        if not self._on_host:
            return block.pow(self._e.view(-1, 1, 1)).sum(2, dtype=torch.float64)
        # in numpy, as in update_host: torch adds up in another order, and a loaded state must have the same sums
        sums = [np.add.reduce(block.numpy(), 1, np.float64)]
        for level in range(1, self._kept):
            block = self._raise(block, level, level - 1)
            sums.append(np.add.reduce(block.numpy(), 1, np.float64))
        return torch.from_numpy(np.stack(sums))

    def _raise(self, block: Tensor, level: int, done: int = 0) -> Tensor:
        """Entries of block, already at level `done`, taken to `level` in place (chained roots beat pow)."""
        if level == len(self._exponents) - 1:
            return block.pow_(_FLAT)
        for _ in range(level - done):
            block.sqrt_()
        return block

    def draw(self, u: Tensor, offset: Any = None) -> tuple[Tensor, Tensor]:
        """Indices (N,) int64 and their r = 1/(M p) (N,) float32, from uniforms u (3, N) float64 in [0, 1).

        With an offset a >= 0 (0-d; needs kappa=None), p is proportional to w + a: some draws come from w, the
        others are uniform.

        Paper: alg:train_emais
        """
        if offset is not None and self.kappa != math.inf:
            raise EmaisError("an offset needs kappa=None: flattening is defined for p proportional to w alone")
        if not self._on_host:
            return self._draw_device(u, offset)
        index, r = self.draw_host(u.numpy(), None if offset is None else float(offset))
        return torch.from_numpy(index), torch.from_numpy(r)

    def draw_host(self, u: np.ndarray, offset: float | None = None) -> tuple[np.ndarray, np.ndarray]:
        """`draw` on the CPU, in numpy."""
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

    def _choose_level(self) -> tuple[int, np.ndarray]:
        """The smallest exponent that meets max(p) N <= kappa, and the running sums of the top tier."""
        peak = float(np.maximum.reduce(self._views[1][-1]))
        for level, exponent in enumerate(self._exponents):
            if level == self._kept:
                self._kept += 1
                self._recompute()  # O(M), once for each exponent that is ever needed
            ends = _running_sums(self._views[2][-1][level])
            if peak**exponent * self.batch_size <= self.kappa * ends[-1] * BOUND_SLACK:
                break
        return level, ends

    def _draw_device(self, u: Tensor, offset: Tensor | None) -> tuple[Tensor, Tensor]:
        peaks = self._tops[-1].max().pow(self._e)
        fits = peaks <= self._bound * self._sums[-1].sum(1)
        level = fits.to(torch.uint8).argmax(keepdim=True)
        ends = self._sums[-1].index_select(0, level).view(-1).cumsum(0)
        total = ends[-1:]
        mass = total if offset is None else total + offset * self.num_samples
        place = u[0] * mass
        node = torch.searchsorted(ends, place, right=True)
        if offset is not None:
            node = node.clamp(max=len(ends) - 1)  # the others are replaced below
        for tier in reversed(range(self.tiers - 1)):
            rows = self._sums[tier].view(-1, self.width)
            block = rows.index_select(0, node + level * (len(rows) // len(self._exponents)))
            node = node * self.width + _pick(block, u[tier + 1]).squeeze(1)
        block = self._table.index_select(0, node).pow_(self._e.index_select(0, level))
        col = _pick(block, u[-1])
        index, value = node * self.width + col.squeeze(1), block.gather(1, col).squeeze(1)
        if offset is not None:
            spread = ((place - total) / offset).clamp(0, self.num_samples - 1).nan_to_num_(0).long()
            index = torch.where(place < total, index, spread)
            value = self._table.view(-1).index_select(0, index).double() + offset
        return index, (mass / self.num_samples / value).float()

    def total(self) -> Any:
        """The sum of the weights: a float on the CPU, else a 0-d tensor."""
        return float(np.add.reduce(self._views[2][-1][0])) if self._on_host else self._sums[-1][0].sum()

    def probabilities(self, offset: Any = None) -> Tensor:
        """The distribution that `draw` samples from now, (M,) float64: O(M), for analysis."""
        w = self.weights.double()
        if self.kappa == math.inf:
            w = w if offset is None else w + offset
            return w / w.sum()
        return adjusted_probabilities(w, self.batch_size, self.kappa)

    def nbytes(self) -> int:
        """Bytes of all state."""
        return sum(t.numel() * t.element_size() for t in (self._table, *self._tops, *self._sums))


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


def _pick(block: Tensor, u: Tensor) -> Tensor:
    """A column (N, 1) for each row of block (N, width), with probability proportional to its entry."""
    inner = block.cumsum(1, dtype=torch.float64)
    return torch.searchsorted(inner, u.unsqueeze(1) * inner[:, -1:], right=True)

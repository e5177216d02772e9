"""The tree of weights that draws walk down: its shape, and what trees on the host and on a device have in common."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

if TYPE_CHECKING:
    from ..statistics.arrays import Number

WEIGHT_MIN, WEIGHT_MAX = 2.0**-63, 2.0**63  # w is kept in this range: positive, and p never degenerates
FLAT = 2.0**-30  # w ** FLAT rounds to 1 over the whole range (and a padding 0 stays 0): the uniform level
MIN_WIDTH = 16
DEEP = 5_000  # samples per two draws from which a second tier of nodes pays


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


class WeightTree(ABC):
    """Weights as leaves of a shallow tree. Its nodes keep sums of w^e, for e = 1, 1/2, 1/4, ..., and the largest w.

    table: the leaves, a row for each node above them. tiers of nodes above the leaves; each node has `width` children.
    kappa: most copies of a sample to expect among `batch_size` draws; infinite: p is proportional to w.
    """

    dtype = torch.float32  # of the leaves
    low, high = WEIGHT_MIN, WEIGHT_MAX  # the range that weights are kept in

    def __init__(self, num_samples: int, batch_size: int, kappa: float, device: torch.device | str) -> None:
        self.num_samples, self.batch_size, self.kappa = num_samples, batch_size, kappa
        per_draw = num_samples / (2 * batch_size)
        self.tiers = 1 if per_draw < DEEP else 2
        self.width = max(MIN_WIDTH, round(per_draw ** (1 / (self.tiers + 1))))
        self.table = torch.zeros(-(-num_samples // self.width), self.width, dtype=self.dtype, device=device)
        levels = num_levels(num_samples, batch_size, kappa)
        self.exponents = [1.0] if kappa == math.inf else [2.0**-k for k in range(levels)] + [FLAT]
        self.sums: list[Tensor] = []  # by tier, from the leaves upwards: (levels, nodes) float64
        self.tops: list[Tensor] = []  # by tier: (nodes,), of the dtype of the leaves

    @property
    def weights(self) -> Tensor:
        """The weights in use, (M,): a view, not to be written to."""
        return self.table.view(-1)[: self.num_samples]

    def fill(self, weights: Tensor) -> None:
        """Set all weights, (M,) or one for all, and recompute every sum: O(M)."""
        self.weights.copy_(weights.expand(self.num_samples)).clamp_(self.low, self.high)
        self.recompute()

    def nbytes(self) -> int:
        """Bytes of all state."""
        return sum(t.numel() * t.element_size() for t in (self.table, *self.tops, *self.sums))

    @abstractmethod
    def recompute(self) -> None:
        """All sums from the leaves: O(M)."""

    @abstractmethod
    def put(self, index: Any, weights: Any) -> None:
        """Set w[index] = weights, and recompute the nodes above them. Of a repeated index the last weight stays."""

    @abstractmethod
    def draw(self, u: Any, offset: Any = None) -> tuple[Any, Any]:
        """Indices (N,) int64 and r = 1/(M p) (N,) float32 from uniforms u (3, N); offset: added to every weight."""

    @abstractmethod
    def coefficients(self, index: Any) -> Any:
        """r = 1/(M p) (N,) float64 that `draw` would give these samples now, without an offset."""

    @abstractmethod
    def draw_mixed(self, u: Any, uniform: Any) -> tuple[Any, Any]:
        """`draw` with a share `uniform` from 0 to 1 of uniform draws among them, so that r is at most 1/uniform."""

    @abstractmethod
    def put_tensors(self, index: Tensor, weights: Tensor) -> None:
        """`put`, of tensors; of a repeated index the first weight stays (on a device they must agree)."""

    @abstractmethod
    def draw_tensors(self, u: Tensor, offset: Number | None = None) -> tuple[Tensor, Tensor]:
        """`draw`, of tensors."""

    @abstractmethod
    def total(self) -> Number:
        """The sum of the weights."""

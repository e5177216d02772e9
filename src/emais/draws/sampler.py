"""Exact draws with replacement from changing weights, at any data set size."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ..errors import EmaisError, positive_float, positive_int
from ..functional.probabilities import adjusted_probabilities, check_flattening
from .device_tree import DeviceTree
from .host_tree import HostTree
from .tree import WeightTree

if TYPE_CHECKING:
    from ..statistics.arrays import Number


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
        if resident is None:
            resident = torch.device(device).type != "cpu"
        self.tree: WeightTree = (
            DeviceTree(num_samples, batch_size, self.kappa, device)
            if resident
            else HostTree(num_samples, batch_size, self.kappa)
        )
        self.fill(torch.ones(1, dtype=torch.float32, device=device))

    @property
    def weights(self) -> Tensor:
        """The weights in use, (M,): a view, not to be written to."""
        return self.tree.weights

    def fill(self, weights: Tensor) -> None:
        """Set all weights, (M,) or one for all, and recompute every sum: O(M)."""
        self.tree.fill(weights)

    def total(self) -> Number:
        """The sum of the weights: a float on the CPU, else a 0-d tensor."""
        return self.tree.total()

    def nbytes(self) -> int:
        """Bytes of all state."""
        return self.tree.nbytes()

    def update(self, index: Tensor, weights: Tensor) -> None:
        """Set w[index] = weights, of a repeated index the first (if resident they must agree)."""
        self.tree.put_tensors(index, weights)

    def draw(self, u: Tensor, offset: Number | None = None) -> tuple[Tensor, Tensor]:
        """Indices (N,) int64 and their r = 1/(M p) (N,) float32, from uniforms u (3, N) float64 in [0, 1).

        With an offset a >= 0 (0-d; needs kappa=None), p is proportional to w + a: some draws come from w, the
        others are uniform.

        Paper: alg:train_emais
        """
        if offset is not None and self.kappa != math.inf:
            raise EmaisError("an offset needs kappa=None: flattening is defined for p proportional to w alone")
        return self.tree.draw_tensors(u, offset)

    def probabilities(self, offset: Number | None = None) -> Tensor:
        """The distribution that `draw` samples from now, (M,) float64: O(M), for analysis."""
        w = self.weights.double()
        if self.kappa == math.inf:
            w = w if offset is None else w + offset
            return w / w.sum()
        return adjusted_probabilities(w, self.batch_size, self.kappa)

"""What a process of the sharded form tells the others: five sums over its part of a minibatch; and the traces of all.

The processes draw from different parts, so the minibatch is a stratified one. With a_k = mean |r g|^2 on process k,
q_k the mean of r r'<g, g'> over pairs of its samples (unbiased for |mu_k|^2) and G = mean over k of mean r g:

    tr_is = mean over k of (a_k - q_k),  |mu|^2 = |G|^2 - tr_is/N,  E|G|^2 = |mu|^2 + tr_is/N,

where N counts the samples of all processes, and r holds the process's coefficient K M_k/M. docs/math.md has the proof.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..functional.traces import GradientSums, in_order
from ..observing.observation import Observation
from ..statistics.arrays import Arrays
from .group import gradient_length, own_sums
from .parcels import LONGEST_GRADIENT, layout


class PartSums:
    """Packs 64 bytes and sum r g, and makes the sums of the whole minibatch from those of all processes.

    width: D, if sum r g travels, else 0; its square then comes from pairs of samples of one process, as if the means of
    all parts were alike. coefficient: K M_k/M.
    """

    def __init__(self, width: int, coefficient: float, arrays: Arrays) -> None:
        self.width, self._coefficient, self._arrays = width, coefficient, arrays
        self._vectors = width > 0  # whether sum r g of all processes has arrived so far
        self._layout, self._scale = layout(width), np.array([coefficient**k for k in (2, 1, 1, 2, 0)])

    def pack(self, observed: Observation) -> Tensor:
        """The sums of one process as bytes. In place of N: whether it has drawn uniformly."""
        assert observed.r is not None
        length, part = gradient_length(observed), np.zeros((), self._layout)
        part["length"], part["num"] = min(length, LONGEST_GRADIENT), (observed.r == 1).all()
        part["sums"] = own_sums(observed, self._arrays) * self._scale
        if length == self.width:
            part["grad"] = self._coefficient * observed.grad  # type: ignore[operator]
        return torch.from_numpy(part[None].view(np.uint8))

    def together(self, rows: Tensor, observed: Observation) -> Observation:
        """What this process has observed, with the sums of all."""
        assert observed.r is not None
        known, r = self.sums(rows, len(observed.index)), observed.r
        return replace(observed, r=r if self._coefficient == 1 else r * self._coefficient, known=known)

    def sums(self, rows: Tensor, batch_size: int) -> GradientSums:
        """The sums behind the traces: of draws from parts, in the form that independent draws would have."""
        parts = rows.numpy().view(self._layout)[:, 0]
        sums, num = parts["sums"], float(len(rows) * batch_size)
        total = in_order(sums)
        moments, uniform = total[:3], parts["num"].all()
        if uniform:  # as in the warm-up: reported as uniform sampling
            moments[0] = moments[1]
        self._vectors = self._vectors and bool((parts["length"] == self.width).all())
        if not self._vectors:
            return GradientSums(num, moments, total[:0], None, total[3:4], float(total[4]))
        grad = in_order(parts["grad"].astype(np.float64))
        if not uniform and batch_size > 1 and len(rows) > 1:
            moments[0], moments[2] = as_if_independent(sums, total, grad, batch_size)
        return GradientSums(num, moments, grad)


def as_if_independent(sums: np.ndarray, total: np.ndarray, grad: Any, batch_size: int) -> tuple[float, float]:
    """Sums of |r g|^2 and of r|g| that give, as of N independent draws, the traces of draws from parts.

    sums (K, 5): of each process; total: of all. Then mean |r g|^2 - |G|^2 is (1 - 1/N) tr_is, and (mean r|g|)^2 - |G|^2
    is (1 - 1/N) tr_opt, both with unbiased estimates, as for independent draws.
    """
    n, processes = batch_size, len(sums)
    num = n * processes
    keep = 1 - 1 / num
    square = in_order(grad * grad) / num**2
    trace = (total[0] / n - total[3] / (n * (n - 1))) / processes  # of r g, within parts
    mean_square = square - trace / num
    # the same for the norms: their variance within parts, and the square of their mean
    pairs = in_order(sums[:, 2] ** 2 - sums[:, 0]) / (n * (n - 1))
    spread = (total[0] / n - pairs) / processes
    norm_square = (total[2] / num) ** 2 - spread / num
    best = np.maximum(square + keep * (norm_square - mean_square), 0.0)
    return num * (square + keep * trace), num * np.sqrt(best)

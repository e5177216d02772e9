"""What a process tells the others of its part of a minibatch, as bytes, and the whole minibatch from all parts."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..functional.traces import GradientSums, in_order
from ..observing.observation import Observation
from ..statistics.arrays import Arrays
from .group import gradient_length, own_sums

HEADER = 64  # bytes: the terms (step and codes), D, N, and five sums (three moments, pairs, the number of pairs)
LONGEST_GRADIENT = 2**31 - 1  # of what D can be in it; beyond `WIDEST` it matters to nobody


class Parcels:
    """Packs what a process has observed: 16 bytes a sample, 4 more if the method has a signal, a header, and sum r g.

    width: D, if sum r g travels, else 0: its square then comes from pairs of samples of one process, whose mean stands
    for pairs of two processes. All parcels have one size. Indices travel as int64, never as floats.
    """

    def __init__(self, width: int, arrays: Arrays) -> None:
        self._arrays, self.width = arrays, width
        self._vectors = self.width > 0  # whether sum r g of all processes has arrived so far
        self._layout = np.dtype([])

    def pack(self, observed: Observation) -> Tensor:
        """One minibatch as bytes."""
        n, length, signal = len(observed.index), gradient_length(observed), observed.signal
        if not self._layout.itemsize:
            self._layout = layout(self.width, n, 0 if signal is None else n)
        parcel: Any = np.zeros((), self._layout)
        parcel["length"], parcel["num"] = min(length, LONGEST_GRADIENT), n
        parcel["sums"] = own_sums(observed, self._arrays)
        parcel["index"], parcel["r"], parcel["norms"] = observed.index, observed.r, observed.norms
        if signal is not None:
            parcel["signal"] = signal
        if length == self.width:
            parcel["grad"] = observed.grad
        return torch.from_numpy(parcel[None].view(np.uint8))

    def together(self, rows: Tensor, observed: Observation) -> Observation:
        """The minibatch of all processes. Sums are added up in one order, number by number: the same bits anywhere."""
        parcels = rows.numpy().view(self._layout)[:, 0]
        index, r, norms = (parcels[name].reshape(-1) for name in ("index", "r", "norms"))
        signal = None if observed.signal is None else parcels["signal"].reshape(-1)
        sums = in_order(parcels["sums"])
        self._vectors = self._vectors and bool((parcels["length"] == self.width).all())
        if self._vectors:
            grad = in_order(parcels["grad"].astype(np.float64))
            known = GradientSums(len(norms), sums[:3], grad)
            return Observation(observed.step, index, r, norms, grad, signal, known=known)
        pairs, num = sums[3:4], float(sums[4])
        known = GradientSums(len(norms), sums[:3], sums[:0], None, pairs, num)
        square = self._arrays.sqrt(self._arrays.at_least(known.square()[None], 0.0))
        return Observation(observed.step, index, r, norms, square, signal, pairs, num, known)


def layout(width: int, samples: int = 0, signals: int = 0) -> np.dtype[Any]:
    """How the bytes of one process lie: a header of 64, then what it tells of each sample, then sum r g.

    >>> layout(10, samples=32).itemsize
    616
    """
    header = [("terms", "i8", (2,)), ("length", "i4"), ("num", "i4"), ("sums", "f8", (5,))]
    each = [
        ("index", "i8", (samples,)),
        ("r", "f4", (samples,)),
        ("norms", "f4", (samples,)),
        ("signal", "f4", (signals,)),
    ]
    return np.dtype([*header, *each, ("grad", "f4", (width,))])

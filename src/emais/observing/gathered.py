"""What a process tells the others of its part of a minibatch, as bytes, and the whole minibatch from all parts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..functional.traces import GradientSums
from ..statistics.arrays import Array, Arrays
from .observation import Observation

HEADER = 64  # bytes: three whole numbers (step, D, N) and five sums (three moments, pairs, the number of pairs)
WIDEST = 1 << 16  # numbers: a sum of gradients that is longer stays at home


@dataclass(frozen=True, eq=False)
class Parcel:
    """What one process has observed: its samples, five sums over them, and sum r g if it travels."""

    step: int
    length: int  # D, of sum r g; 0 where only norms are known
    sums: Array
    index: Array
    r: Array
    norms: Array
    signal: Array | None
    grad: Array


class Parcels:
    """Packs what a process has observed: 16 bytes a sample, 4 more if the method has a signal, a header, and sum r g.

    lengths: D on each process, at the first minibatch. All parcels have one size from then on. Where D differs between
    processes, or is above `WIDEST`, sum r g stays at home: its square then comes from pairs of samples of one process,
    whose mean stands for pairs of two processes. Indices travel as int64, never as floats.
    """

    def __init__(self, lengths: Sequence[int], arrays: Arrays) -> None:
        self._arrays = arrays
        self.width = lengths[0] if len(set(lengths)) == 1 and lengths[0] <= WIDEST else 0
        self._vectors = self.width > 0  # whether sum r g of all processes has arrived so far

    @staticmethod
    def length(observed: Observation) -> int:
        """D, of sum r g; 0 where only norms are known."""
        return 0 if observed.pairs is not None or observed.grad is None else len(observed.grad)

    def pack(self, observed: Observation) -> Tensor:
        """One minibatch as bytes."""
        assert observed.r is not None
        n, length = len(observed.index), self.length(observed)
        size = HEADER + (16 if observed.signal is None else 20) * n + 4 * self.width
        packed = torch.zeros(size, dtype=torch.uint8, device="cpu")
        raw = packed.numpy()
        raw[:24].view("int64")[:] = int(observed.step), length, n
        raw[24:HEADER].view("float64")[:] = self._sums(observed)
        for part, value in zip(_parts(raw, n, self.width), _values(observed), strict=True):
            if value is not None and len(value) == len(part):
                part[:] = value
        return packed

    def _sums(self, observed: Observation) -> Array:
        """The three moments; the sum of r r'<g, g'> over pairs of different samples, and how many there are."""
        assert observed.r is not None
        assert observed.grad is not None
        arrays, n = self._arrays, len(observed.index)
        moments, grad = arrays.moments(observed.r, observed.norms), arrays.double(observed.grad)
        pairs, num = observed.pairs, observed.num_pairs
        if pairs is None:
            pairs, num = (grad @ grad - moments[0])[None], float(n * (n - 1))
        return arrays.concatenate((moments, pairs, arrays.pair(num, 0.0)[:1]))

    def unpack(self, packed: Tensor) -> Parcel:
        """What `pack` put together."""
        raw = packed.numpy()
        step, length, n = raw[:24].view("int64").tolist()
        index, r, norms, signal, grad = _parts(raw, n, self.width)
        sums = raw[24:HEADER].view("float64")
        return Parcel(step, length, sums, index, r, norms, signal if len(signal) else None, grad)

    def together(self, parcels: Sequence[Parcel]) -> Observation:
        """The minibatch of all processes. Sums are added up in one order, number by number: the same bits anywhere."""
        arrays, first = self._arrays, parcels[0]
        index, r, norms = (arrays.concatenate([getattr(p, x) for p in parcels]) for x in ("index", "r", "norms"))
        signals = [p.signal for p in parcels if p.signal is not None]
        signal = arrays.concatenate(signals) if signals else None
        sums = _added([p.sums for p in parcels])
        self._vectors = self._vectors and all(p.length == self.width for p in parcels)
        if self._vectors:
            grad = _added([arrays.double(p.grad) for p in parcels])
            known = GradientSums(len(norms), sums[:3], grad)
            return Observation(first.step, index, r, norms, grad, signal, known=known)
        pairs, num = sums[3:4], float(sums[4])
        known = GradientSums(len(norms), sums[:3], sums[:0], None, pairs, num)
        grad = arrays.sqrt(arrays.at_least(known.square()[None], 0.0))
        return Observation(first.step, index, r, norms, grad, signal, pairs, num, known)


def _values(observed: Observation) -> tuple[Array | None, ...]:
    return observed.index, observed.r, observed.norms, observed.signal, observed.grad


def _parts(raw: Any, n: int, width: int) -> tuple[Any, ...]:
    """Where index, r, norms, signal (empty if there is none) and sum r g lie."""
    cuts = [HEADER, HEADER + 8 * n, HEADER + 12 * n, HEADER + 16 * n, len(raw) - 4 * width, len(raw)]
    kinds = ("int64", "float32", "float32", "float32", "float32")
    return tuple(raw[a:b].view(kind) for a, b, kind in zip(cuts[:-1], cuts[1:], kinds, strict=True))


def _added(rows: Sequence[Array]) -> Array:
    total = rows[0] * 1
    for row in rows[1:]:
        total = total + row
    return total

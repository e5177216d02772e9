"""Counter-based random numbers: a pure function of (seed, step), the same on every device.

Nothing sequential exists, so nothing has to be saved for an exact resume, the global generators are never
touched, and a CUDA graph that reads the step from a tensor draws fresh numbers on every replay.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

_GOLDEN = 0x9E3779B97F4A7C15  # increments and multipliers of SplitMix64 (Steele, Lea and Flood 2014)
_MUL1, _MUL2 = 0xBF58476D1CE4E5B9, 0x94D049BB133111EB
_WORD = 1 << 64
_BLOCK = 64


def as_int64(x: int) -> int:
    """The number with the bits of x modulo 2^64: torch has no unsigned 64-bit arithmetic."""
    x %= _WORD
    return x - _WORD if x >= _WORD >> 1 else x


def mix(*words: int) -> int:
    """Hash integers to 64 bits: the key of a stream, or a seed for torch.Generator.

    >>> mix(0, 1) != mix(1, 0)
    True
    """
    x = 0
    for word in words:
        x = (x + word + 1) * _GOLDEN % _WORD
        x = (x ^ (x >> 30)) * _MUL1 % _WORD
        x = (x ^ (x >> 27)) * _MUL2 % _WORD
        x ^= x >> 31
    return x


def mix_words(x: np.ndarray) -> np.ndarray:
    """SplitMix64's hash of many words at once, uint64.

    >>> int(mix_words(np.array([1 * _GOLDEN], np.uint64))[0]) == mix(0)
    True
    """
    x = (x ^ (x >> np.uint64(30))) * np.uint64(_MUL1)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(_MUL2)
    found: np.ndarray = x ^ (x >> np.uint64(31))
    return found


def seed_of_rank(seed: int, rank: int) -> int:
    """The seed of what each process does in its own way, as augmentation; of rank 0 the seed that was given.

    >>> seed_of_rank(5, 0), seed_of_rank(5, 1) == seed_of_rank(5, 2)
    (5, False)
    """
    return seed if rank == 0 else mix(seed, rank, 2) >> 1


class Uniforms:
    """`rows` x `n` uniform numbers in [0, 1 - 2^-52], float64, for each step.

    >>> u = Uniforms(seed=0, rows=2, n=3)
    >>> torch.equal(u(5), u(torch.tensor(5))), torch.equal(u(5), u(6))
    (True, False)
    """

    def __init__(self, seed: int, rows: int, n: int, device: torch.device | str = "cpu") -> None:
        self._shape = (rows, n)
        self._key = as_int64(mix(seed))
        self._stride = as_int64(rows * n * _GOLDEN)
        self._lanes = torch.arange(rows * n, device=device) * as_int64(_GOLDEN) + self._key
        self._ahead = torch.arange(_BLOCK, device=device).unsqueeze(1) * self._stride
        self._half = torch.full((), 0.5, dtype=torch.float64, device=device)
        self._block, self._numbers = -1, np.empty(0)

    def __call__(self, step: int | Tensor) -> Tensor:
        """Numbers of this step, (rows, n); a tensor step stays on its device."""
        if not isinstance(step, int):
            return self._to_unit(_mix_tensor(self._lanes.add(step, alpha=self._stride))).view(self._shape)
        return torch.from_numpy(self.host(step))

    def host(self, step: int) -> np.ndarray:
        """Numbers of this step, (rows, n), as a numpy array; made for many steps at once, as each is little work."""
        block, place = divmod(step, _BLOCK)
        if block != self._block:
            start = as_int64(block * _BLOCK * self._stride)
            numbers = self._to_unit(_mix_tensor(self._lanes + self._ahead + start))
            self._block, self._numbers = block, numbers.view(-1, *self._shape).cpu().numpy()
        found: np.ndarray = self._numbers[place]
        return found

    def _to_unit(self, x: Tensor) -> Tensor:
        """The upper 52 bits, as a signed number in [-2^51, 2^51), moved to [0, 1 - 2^-52].

        With 52 bits, not 53, u * total < total holds in float64 for every total.
        """
        return self._half.add((x >> 12).double(), alpha=2.0**-52)


def _mix_tensor(x: Tensor) -> Tensor:
    x = _xor_shift(x, 30).mul_(as_int64(_MUL1))
    x = _xor_shift(x, 27).mul_(as_int64(_MUL2))
    return _xor_shift(x, 31)


def _xor_shift(x: Tensor, bits: int) -> Tensor:
    return x ^ ((x >> bits) & ((1 << (64 - bits)) - 1))  # the mask makes the arithmetic shift a logical one

"""A shuffled order that is computed, place by place, and takes no memory: for data sets too large to shuffle a list."""

from __future__ import annotations

import numpy as np

from .uniforms import mix, mix_words

ROUND_PAIRS = 4  # from two on an order looks shuffled


class Permutation:
    """A permutation of 0 .. M-1 that follows from a key.

    A Feistel network (Luby and Rackoff 1988) permutes the numbers of b bits, the fewest that hold M - 1: each round
    adds to one half of the bits, modulo 2, a hash of the other half. What it sends beyond M goes through it again,
    until it is below M (Black and Rogaway 2002): less than twice on average.

    >>> order = Permutation(5, key=7)
    >>> sorted(order(np.arange(5)).tolist())
    [0, 1, 2, 3, 4]
    """

    def __init__(self, num_samples: int, key: int) -> None:
        self.num_samples = num_samples
        bits = max(2, (num_samples - 1).bit_length())
        self._low = np.uint64(bits // 2)  # bits of the lower half
        self._masks = [np.uint64((1 << n) - 1) for n in (bits - bits // 2, bits // 2)]
        self._keys = [np.uint64(mix(key, k, 3)) for k in range(2 * ROUND_PAIRS)]

    def __call__(self, places: np.ndarray) -> np.ndarray:
        """What stands at these places (n,), int64."""
        found = self._round_trip(places.astype(np.uint64))
        while (beyond := np.flatnonzero(found >= self.num_samples)).size:
            found[beyond] = self._round_trip(found[beyond])
        return found.astype(np.int64)

    def _round_trip(self, x: np.ndarray) -> np.ndarray:
        """Through the network once: a permutation of all numbers of b bits."""
        high, low = x >> self._low, x & self._masks[1]
        for k in range(0, 2 * ROUND_PAIRS, 2):
            high ^= mix_words(low + self._keys[k]) & self._masks[0]
            low ^= mix_words(high + self._keys[k + 1]) & self._masks[1]
        return (high << self._low) | low

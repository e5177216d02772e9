"""Draws without replacement within a minibatch, exactly, from the tree that draws with replacement."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ..errors import EmaisError
from .host_tree import WideTree


def draw_distinct(tree: WideTree, numbers: Callable[[int], np.ndarray]) -> np.ndarray:
    """N different samples (N,) int64, in the order in which they were drawn, by successive draws.

    Each is drawn in proportion to its weight from those that are left, so the chance of i_1, ..., i_N in this order is
    the product over k of w_{i_k} / (W - w_{i_1} - ... - w_{i_{k-1}}). Draws with replacement whose repetitions are
    skipped have exactly this distribution. So each turn draws N with replacement and keeps what is new. If that is too
    little, weights of samples that were found are 0 during the next turn. All weights are put back at the end.

    numbers(turn): uniforms (3, N) for each turn, from 0.

    >>> import torch
    >>> tree = WideTree(3, batch_size=3)
    >>> tree.fill(torch.tensor([1.0, 1e9, 1e-9]))
    >>> draw_distinct(tree, lambda turn: np.full((3, 3), 0.5)).tolist()
    [1, 0, 2]
    """
    kept: list[tuple[np.ndarray, np.ndarray]] = []  # samples that were found, and their weights
    weights = tree.weights.numpy()
    try:
        for turn in range(tree.batch_size):  # each finds at least one
            found = _first_occurrences(tree.draw(numbers(turn))[0])
            kept.append((found, weights[found]))
            count = sum(len(index) for index, _ in kept)
            if count >= tree.batch_size:
                break
            tree.put(found, np.zeros(len(found)))
            if not tree.total():
                raise EmaisError(
                    f"a minibatch needs batch_size={tree.batch_size} different samples, and {count} have a weight "
                    "above 0: lower batch_size, raise weights, or draw with replacement=True"
                )
    finally:
        for index, before in kept:
            tree.put(index, before)
    return np.concatenate([index for index, _ in kept])[: tree.batch_size]


def _first_occurrences(index: np.ndarray) -> np.ndarray:
    """The different entries, in the order in which they first occur."""
    places = np.unique(index, return_index=True)[1]
    places.sort()
    found: np.ndarray = index[places]
    return found

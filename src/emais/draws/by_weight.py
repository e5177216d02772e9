"""Minibatches drawn in proportion to weights that a user gives: a function of seed, step and weights."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from ..errors import EmaisError
from .distinct import draw_distinct
from .host_tree import WideTree
from .uniforms import Uniforms, as_int64, mix

TURNS = 2**32  # random numbers of a step without replacement come in turns; their counter is step * TURNS + turn


class DrawsByWeight:
    """Weights (M,) and the draws of N samples that follow from them.

    replacement: False draws N different samples, each in proportion to the weights of those that are left.

    >>> draws = DrawsByWeight(np.array([0.0, 1.0]), batch_size=3, seed=0, replacement=True)
    >>> draws.draw(step=1)
    (array([1, 1, 1]), array([0.5, 0.5, 0.5], dtype=float32))
    """

    def __init__(self, weights: np.ndarray, batch_size: int, seed: int, replacement: bool) -> None:
        self.replacement = replacement
        self.tree = WideTree(len(weights), batch_size)
        self.fill(torch.from_numpy(weights))
        self._uniforms = Uniforms(seed, 3, batch_size)
        self._more = Uniforms(mix(seed, 1), 3, batch_size)

    @property
    def weights(self) -> Tensor:
        """The weights, (M,) float64: a view, not to be written to."""
        return self.tree.weights

    def fill(self, weights: Tensor) -> None:
        """Set all weights, (M,) float64."""
        self.tree.fill(weights)

    def put(self, samples: np.ndarray, values: np.ndarray) -> None:
        """Set the weights of some samples; refuse what would make all weights 0, and change nothing then."""
        before = self.weights.numpy()[samples]
        self.tree.put(samples, values)
        if not self.tree.total():
            self.tree.put(samples, before)
            raise EmaisError("this would make all weights 0: give at least one sample a weight above 0")

    def draw(self, step: int) -> tuple[np.ndarray, np.ndarray]:
        """Indices (N,) int64 and r (N,) float32 of a step: a pure function of it, the seed and the present weights."""
        u = self._uniforms.host(step)
        if self.replacement:
            return self.tree.draw(u)
        index = draw_distinct(self.tree, lambda turn: self._turn(step, turn) if turn else u)
        return index, np.full(len(index), np.nan, dtype=np.float32)

    def _turn(self, step: int, turn: int) -> np.ndarray:
        counter = torch.tensor(as_int64(step * TURNS + turn), dtype=torch.int64, device="cpu")
        return self._more(counter).numpy()

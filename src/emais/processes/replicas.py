"""The replicated form: every process keeps the statistics of all samples, and trains its lanes of one minibatch."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING
from weakref import WeakSet

from torch import Tensor

from ..distributed import Connection
from .group import Group, common_width
from .parcels import Parcels

if TYPE_CHECKING:
    from ..engine import Engine
    from ..loading.loader import Loader

STALE = (
    "the loader draws {} minibatches ahead, which is {:.0%} of an epoch: statistics are that much behind at a draw. "
    "Lower num_workers or prefetch_factor (the largest of all processes counts)"
)


class Replicas(Group):
    """Processes that each train their lanes of one minibatch, and all keep the statistics of all samples.

    Each sends what it has observed of its own samples. All learn from the parcels of all, in the order of ranks, so
    their statistics stay equal, whatever each of them drew. The draw of step t knows the observations of steps up to
    t - 1 - lag on every process, however many minibatches its own workers fetch ahead.
    """

    first, coefficient = 0, 1.0

    def __init__(self, engine: Engine, connection: Connection) -> None:
        super().__init__(engine, connection)
        n = engine.batch_size
        self.total_samples, self.draw_size, self.draw_seed = engine.num_samples, n * self.size, engine.seed
        self.lanes = slice(self.rank * n, (self.rank + 1) * n)
        self.lag, self._arrays = 0, engine.arrays
        self._loaders: WeakSet[Loader] = WeakSet()

    def packing(self, lengths: Sequence[int]) -> Parcels:
        """16 bytes a sample."""
        return Parcels(common_width(lengths), self._arrays)

    def loader_made(self, engine: Engine, loader: Loader) -> None:
        """Take the lag from the loader that draws the most minibatches ahead; all processes make theirs together."""
        self._loaders.add(loader)
        ahead = max(known.ahead for known in self._loaders)  # older ones may be gone on with
        told = self.connection.ask_all((ahead, int(engine.source.step)), "another process has not made its loader")
        self._hold(engine, max(step for _, step in told))  # under a shorter lag these would know more
        self.lag = max(ahead for ahead, _ in told)
        share = self.lag * self.draw_size / engine.num_samples
        if share > 0.1:
            warnings.warn(STALE.format(self.lag, share), stacklevel=3)

    def before_learning(self, engine: Engine, step: int | Tensor) -> None:
        """Make the draws that must not know of this step."""
        self._hold(engine, int(step) + self.lag)

    def _hold(self, engine: Engine, step: int) -> None:
        while int(engine.source.step) < step:
            engine.passes.hold(engine.make_draw(*engine.source.take()))

    def known_to(self, step: int | Tensor) -> float:
        """The latest observation that the draw after so many draws has to know."""
        return int(step) - self.lag

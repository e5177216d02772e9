"""The sharded form: every process keeps the statistics of its part of the samples, and draws from that part alone."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from torch import Tensor

from ..distributed import Connection, shared_error
from ..errors import EmaisError
from ..functional.probabilities import check_flattening
from .group import Group, common_width
from .part_sums import PartSums

if TYPE_CHECKING:
    from ..engine import Engine
    from ..loading.loader import Loader

IN_FLIGHT = 64  # exchanges at most that nobody has waited for


class Shards(Group):
    """Processes that each have a part of the samples, with M_k of all M, and train on N of them a step.

    A process draws from its part, by itself. Its r is 1/(M_k p) times K M_k/M, so that the mean over processes of
    mean(r g) is unbiased for the mean gradient of all samples, whatever the parts are. Only the sums of the variance
    report travel, so that all processes use the same learning-rate factor. Samples are counted in the order of ranks.

    Beyond the paper, which names sharding as future work
    """

    sharded, shared = True, False
    lanes, lag = slice(None), 0

    def __init__(self, engine: Engine, connection: Connection) -> None:
        super().__init__(engine, connection)
        if engine.ignores_r and len(set(self.sizes)) > 1:
            raise shared_error(
                f"{engine.name} trains on the plain mean of its losses, so with sharded=True all parts must have one "
                f"size, got {self.sizes}: cut the samples into equal parts, or choose another method"
            )
        self._check_sizes(engine)
        self.total_samples, self.first = sum(self.sizes), sum(self.sizes[: self.rank])
        self.coefficient = self.size * engine.num_samples / self.total_samples
        self.draw_size, self.draw_seed, self._arrays = engine.batch_size, self.own_seed, engine.arrays

    def _check_sizes(self, engine: Engine) -> None:
        """Every process refuses a part that is too small for its minibatches, wherever it is."""
        for rank, size in enumerate(self.sizes):
            try:
                check_flattening(size, engine.batch_size, getattr(engine, "kappa", None) or math.inf)
            except EmaisError as error:
                raise shared_error(f"the part of rank {rank} is too small: {error}") from error

    def packing(self, lengths: Sequence[int]) -> PartSums:
        """Five sums a process."""
        return PartSums(common_width(lengths), self.coefficient, self._arrays)

    def loader_made(self, engine: Engine, loader: Loader) -> None:
        """A process may prefetch as it likes: nobody else draws from its samples."""

    def before_learning(self, engine: Engine, step: int | Tensor) -> None:
        """Draws that were not made yet may know everything."""

    def known_to(self, step: int | Tensor) -> float:
        """No draw needs what others have observed; but exchanges must not pile up where nobody asks for the factor."""
        return int(step) - IN_FLIGHT

"""One process by itself: it draws from all samples, and there is nobody to tell."""

from __future__ import annotations

import math
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

from torch import Tensor

from ..groups import refuse_forgotten_group
from .form import Processes

if TYPE_CHECKING:
    from ..engine import Engine
    from ..loading.loader import Loader


class Alone(Processes):
    """The only process."""

    size, rank, first, lag = 1, 0, 0, 0
    lanes, coefficient = slice(None), 1.0
    sharded, shared, exchange = False, False, None

    def __init__(self, engine: Engine) -> None:
        self.total_samples, self.draw_size = engine.num_samples, engine.batch_size
        self.draw_seed = self.own_seed = engine.seed

    def check_settings(self, engine: Engine) -> None:
        """Nobody has others."""

    def making_loader(self) -> AbstractContextManager[None]:
        """Nobody has to be told."""
        return nullcontext()

    def state_loaded(self, state: dict[str, Any]) -> None:
        """Nobody has another."""

    def loader_made(self, engine: Engine, loader: Loader) -> None:
        """A group may have been made after the engine."""
        refuse_forgotten_group()

    def before_learning(self, engine: Engine, step: int | Tensor) -> None:
        """Draws that were not made yet may know everything."""

    def known_to(self, step: int | Tensor) -> float:
        """Every observation that there is."""
        return math.inf

"""What an engine needs to know of the processes that it trains with, whichever form they have."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Protocol

from torch import Tensor

if TYPE_CHECKING:
    from ..engine import Engine
    from ..loading.loader import Loader
    from ..observing.handover import Exchange


class Processes(Protocol):
    """One process or several that train one model.

    size, rank: as in torch.distributed; total_samples: M over all processes, of which those of this process begin at
    `first`; draw_size: samples of one draw; lanes: the part of a draw that this process trains on; coefficient: what r
    is multiplied by; draw_seed: of the draws; own_seed: of what each process does in its own way, as augmentation.
    """

    size: int
    rank: int
    total_samples: int
    first: int
    draw_size: int
    lanes: slice
    coefficient: float
    draw_seed: int
    own_seed: int
    lag: int  # steps whose observations a draw does not know yet
    sharded: bool  # whether each process has a part of the samples
    shared: bool  # whether all learn from the observations of all

    @property
    def exchange(self) -> Exchange | None:
        """Who is told what was observed."""

    def check_settings(self, engine: Engine) -> None:
        """The engine is made: compare its settings with those of the others."""

    def making_loader(self) -> AbstractContextManager[None]:
        """Around the making of a loader, which may be refused."""

    def state_loaded(self, state: dict[str, Any]) -> None:
        """The engine has taken a state over."""

    def loader_made(self, engine: Engine, loader: Loader) -> None:
        """A loader was made, which may draw minibatches before it needs them."""

    def before_learning(self, engine: Engine, step: int | Tensor) -> None:
        """The statistics are about to learn from a step: make the draws that must not know of it."""

    def known_to(self, step: int | Tensor) -> float:
        """The latest observation that the draw after so many draws has to know."""

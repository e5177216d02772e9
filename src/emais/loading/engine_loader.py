"""The loader of an engine: it ends where the run does, and warns of a pass that nobody trained on."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from .draw import Draw, Score
from .loader import Loader
from .sources import check_engine

if TYPE_CHECKING:
    from ..engine import Engine

OVER = (
    "this pass is empty: all num_steps={} steps are done. A pass takes all that is left of them; for passes of one "
    "epoch each make the engine without num_steps"
)
FINISHED = (
    "this pass is empty: the steps so far are worth the effective_steps that were asked for. Leave a loop over epochs "
    "with `if imp.finished: break`"
)
UNSEEN_PASS = (
    "a whole pass went by and none of its minibatches was observed: train on imp.loss(losses, logits, draw), and "
    "evaluate with a DataLoader of your own, because a pass over this one counts as training steps"
)


class EngineLoader(Loader):
    """Iterates over (batch, draw). One pass is one epoch of ceil(M/N) steps, or all that is left of `num_steps`.

    r is fixed when the index is drawn, and travels with the minibatch through workers and prefetching. So prefetching
    makes weights a few steps stale, which costs some efficiency and never biases. A minibatch that was prefetched and
    not delivered (the loop was left early, or the state saved) is delivered first by the next pass.
    """

    def __init__(self, engine: Engine, dataset: Any, options: dict[str, Any], score: Score | None = None) -> None:
        check_engine(engine, score)
        self._engine, self._score, self._told = engine, score, False  # told: that the run is over
        super().__init__(engine, dataset, options, engine.processes.own_seed, engine.processes.size > 1)

    def __iter__(self) -> Iterator[tuple[Any, Draw]]:
        engine = self._engine
        if engine.attached.finished():
            if not self._told:
                warnings.warn(FINISHED, stacklevel=2)
            self._told = True
        elif not engine.pass_length():
            warnings.warn(OVER.format(engine.num_steps), stacklevel=2)
        seen = engine.diagnostics.step
        yield from super().__iter__()
        if engine.diagnostics.step == seen < engine.step:
            warnings.warn(UNSEEN_PASS, stacklevel=2)

    def _selected(self, batch: Any, draw: Draw) -> tuple[Any, Draw]:
        """What of a minibatch is trained on."""
        return self._engine.select(batch, draw, self._score)

    def __len__(self) -> int:
        """Minibatches of a whole pass: ceil(M/N), or with num_steps those left when the pass began."""
        if self._engine.num_steps is not None and self._pass is not None and self._pass is self._engine.passes.current:
            return self._pass.length
        return self._engine.pass_length()

    @property
    def remaining(self) -> int:
        """Minibatches that are left of the present pass; between two passes, those of the next."""
        under_way = self._engine.passes.current
        if self._engine.num_steps is None or (under_way is not None and under_way.remaining):
            return super().remaining
        return self._engine.pass_length()

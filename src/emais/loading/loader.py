"""How a draw travels with its batch through a torch DataLoader, its workers and its prefetching."""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import torch
from torch.utils.data import DataLoader, default_collate

from ..draws.uniforms import mix
from .draw import Draw, Score
from .fetching import Failure, Minibatches, Tagged, as_it_is
from .sources import check_dataset, check_engine, check_options, take_over

if TYPE_CHECKING:
    from ..engine import Engine
    from .passes import Pass

OVER = (
    "this pass is empty: all num_steps={} steps are done. A pass takes all that is left of them; for passes of one "
    "epoch each make the engine without num_steps"
)
UNSEEN = (
    "a whole pass went by and none of its minibatches was observed: train on imp.loss(losses, logits, draw), and "
    "evaluate with a DataLoader of your own, because a pass over this one counts as training steps"
)


class _DrawStream:
    """The batch sampler: asks the engine for a draw whenever the DataLoader wants the next minibatch."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def __iter__(self) -> Iterator[Tagged]:
        under_way = self._engine.passes.current
        assert under_way is not None  # the loader has begun it
        for _ in range(under_way.remaining):
            if self._engine.finished:
                return
            with self._engine.lock:
                draw = under_way.issue(self._engine.draw())
            yield int(draw.step), draw._record.index.tolist()

    def __len__(self) -> int:
        return self._engine.pass_length()


class Loader:
    """Iterates over (batch, draw). One pass is one epoch of ceil(M/N) steps, or all that is left of `num_steps`.

    r is fixed when the index is drawn: the draw waits in the engine under its step, the step travels with the
    minibatch through workers and prefetching, and the two meet again here. So prefetching makes weights a few
    steps stale, which costs some efficiency and never biases. A minibatch that was prefetched and not delivered
    (the loop was left early, or the state saved) is delivered first by the next pass.
    """

    def __init__(self, engine: Engine, dataset: Any, options: dict[str, Any], score: Score | None = None) -> None:
        check_engine(engine, score)
        check_options(options)
        own = dataset if isinstance(dataset, DataLoader) else None
        dataset = dataset if own is None else own.dataset
        check_dataset(dataset, engine.num_samples)
        options = options if own is None else take_over(own, engine.batch_size, options)
        self._engine, self._dataset, self._score = engine, dataset, score
        given = options.get("generator")
        self._seeded = given is None  # by us, from (seed, step)
        seeds = given is not None or options.get("worker_init_fn") is not None  # the user sees to random numbers
        collate = options.pop("collate_fn", None) or default_collate
        self._pass: Pass | None = None  # the latest over this loader
        if options.get("num_workers"):
            importlib.import_module("numpy.random")  # numpy loads it at its first use, which would be in every worker
        self.dataloader: DataLoader[Any] = DataLoader(
            Minibatches(dataset, collate, None if seeds else engine.processes.own_seed),
            batch_sampler=_DrawStream(engine),  # type: ignore[arg-type]
            collate_fn=as_it_is,
            **options,
        )

    def __iter__(self) -> Iterator[tuple[Any, Draw]]:
        check_dataset(self._dataset, self._engine.num_samples)  # it may have grown since
        own = self._pass = self._engine.begin_pass()
        if not own.length and not self._engine.finished:
            warnings.warn(OVER.format(self._engine.num_steps), stacklevel=2)
        if self._seeded:  # workers are seeded from it: by the step, so that a resumed pass is the same
            seed = mix(self._engine.processes.own_seed, self._engine.step) >> 1
            # not the global one, but on the device where torch expects that
            self.dataloader.generator = torch.Generator(torch.empty(0).device).manual_seed(seed)
        seen = self._engine.diagnostics.step
        try:
            for batch, step in self._fetched(own):
                if self._engine.finished:  # workers may have fetched more
                    break
                with self._engine.lock:
                    draw = own.deliver(step)
                yield self._engine.select(batch, draw, self._score)
            if self._engine.diagnostics.step == seen < self._engine.step:
                warnings.warn(UNSEEN, stacklevel=2)
        finally:
            with self._engine.lock:
                self._engine.passes.end(own)

    def _fetched(self, own: Pass) -> Iterator[tuple[Any, int]]:
        """Minibatches with their steps. One that cannot be fetched is given up: it would come first in every pass."""
        batches = iter(self.dataloader)
        while True:
            self._engine.passes.check(own)  # before it draws, or takes a minibatch from a newer pass
            found = next(batches, None)
            if found is None:
                return
            batch, step = found
            if isinstance(batch, Failure):
                own.give_up(step)
                batch.raise_again()
            yield batch, step

    def __len__(self) -> int:
        """Minibatches of a whole pass: ceil(M/N), or with num_steps those left when the pass began."""
        if self._engine.num_steps is not None and self._pass is not None and self._pass is self._engine.passes.current:
            return self._pass.length
        return self._engine.pass_length()

    @property
    def remaining(self) -> int:
        """Minibatches that are left of the present pass; between two passes, those of the next."""
        under_way = self._engine.passes.current
        if under_way is not None and under_way.remaining:
            return under_way.remaining
        whole = self._engine.pass_length()
        return whole - self._engine.passes.delivered % whole if whole and self._engine.num_steps is None else whole

    @property
    def dataset(self) -> Any:
        """The data set that it draws from."""
        return self._dataset

    @property
    def batch_size(self) -> int:
        """Samples of a minibatch."""
        return self._engine.batch_size

    @property
    def ahead(self) -> int:
        """Minibatches that are drawn before they are needed."""
        return self.dataloader.num_workers * (self.dataloader.prefetch_factor or 0)

    @property
    def num_workers(self) -> int:
        """Worker processes of the DataLoader."""
        return self.dataloader.num_workers

"""How a draw travels with its batch through a torch DataLoader, its workers and its prefetching."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Any, NoReturn, Protocol

import torch
from torch.utils.data import DataLoader, default_collate

from ..draws.uniforms import mix
from ..errors import EmaisError
from .draw import Draw
from .fetching import Failure, Minibatches, Tagged, as_it_is
from .passes import Pass, PassTracker
from .sources import check_dataset, check_options, take_over


class Drawer(Protocol):
    """What a loader gets its draws from: an engine or a sampler."""

    num_samples: int
    batch_size: int
    passes: PassTracker
    ends: bool  # whether a run may come to its end inside a pass

    @property
    def lock(self) -> AbstractContextManager[Any]:
        """Held while a draw is made or handed out."""

    @property
    def step(self) -> int:
        """Minibatches handed out so far."""

    @property
    def finished(self) -> bool:
        """Whether a run has come to its end."""

    def draw(self) -> Draw:
        """The next draw."""

    def pass_length(self) -> int:
        """Minibatches of a whole pass."""

    def begin_pass(self) -> Pass:
        """Begin a pass; after a resume, what is left of the one that was saved."""


class NoSampler(EmaisError, AttributeError):
    """Asked for a sampler of a loader: to others the loader has none, and the message says what to do instead."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"this loader has no {name}, because the engine draws the samples. To go on in the middle of an epoch, "
            "load the engine's state: it knows which minibatches are left, so skip_first_batches is not needed"
        )


class WithoutSampler:
    """A loader whose samples an engine draws."""

    @property
    def sampler(self) -> NoReturn:
        """There is none."""
        raise NoSampler("sampler")

    @property
    def batch_sampler(self) -> NoReturn:
        """There is none."""
        raise NoSampler("batch_sampler")


class _DrawStream:
    """The batch sampler: asks for a draw whenever the DataLoader wants the next minibatch."""

    def __init__(self, drawer: Drawer) -> None:  # not the loader: a cycle would keep its workers alive
        self._drawer = drawer

    def __iter__(self) -> Iterator[Tagged]:
        under_way = self._drawer.passes.current
        assert under_way is not None  # the loader has begun it
        ends = self._drawer.ends
        for _ in range(under_way.remaining):
            if ends and self._drawer.finished:
                return
            with self._drawer.lock:
                draw = under_way.issue(self._drawer.draw())
            yield int(draw.step), draw._record.index.tolist()

    def __len__(self) -> int:
        return self._drawer.pass_length()


class Loader(WithoutSampler):
    """Iterates over (batch, draw). One pass has ceil(M/N) minibatches, or as many as its engine or sampler says.

    r is fixed when the index is drawn: the draw waits under its step, the step travels with the minibatch through
    workers and prefetching, and the two meet again here. So prefetching makes weights a few steps stale, which costs
    some efficiency and never biases. A minibatch that was prefetched and not delivered (the loop was left early, or the
    state saved) is delivered first by the next pass.

    seed: of random numbers in workers; shared: whether several processes train together.
    """

    def __init__(self, drawer: Drawer, dataset: Any, options: dict[str, Any], seed: int, shared: bool = False) -> None:
        self._drawer, self._what, self._seed = drawer, drawer.passes.what, seed
        check_options(options, self._what)
        own = dataset if isinstance(dataset, DataLoader) else None
        self._dataset = dataset if own is None else own.dataset
        check_dataset(self._dataset, drawer.num_samples, self._what)
        options = options if own is None else take_over(own, drawer.batch_size, options, self._what)
        given = options.get("generator")
        self._seeded = given is None  # by us, from (seed, step)
        seeds = given is not None or options.get("worker_init_fn") is not None  # the user sees to random numbers
        self.collate_fn = collate = options.pop("collate_fn", None) or default_collate
        self._pass: Pass | None = None  # the latest over this loader
        if options.get("num_workers"):
            importlib.import_module("numpy.random")  # numpy loads it at its first use, which would be in every worker
        self.dataloader: DataLoader[Any] = DataLoader(
            Minibatches(self._dataset, collate, None if seeds else seed, shared),
            batch_sampler=_DrawStream(drawer),  # type: ignore[arg-type]
            collate_fn=as_it_is,
            **options,
        )

    def __iter__(self) -> Iterator[tuple[Any, Draw]]:
        check_dataset(self._dataset, self._drawer.num_samples, self._what)  # it may have grown since
        own = self._pass = self._drawer.begin_pass()
        if self._seeded:  # workers are seeded from it: by the step, so that a resumed pass is the same
            seed = mix(self._seed, self._drawer.step) >> 1
            # not the global one, but on the device where torch expects that
            self.dataloader.generator = torch.Generator(torch.empty(0).device).manual_seed(seed)
        ends = self._drawer.ends
        try:
            for batch, step in self._fetched(own):
                if ends and self._drawer.finished:  # workers may have fetched more
                    break
                with self._drawer.lock:
                    draw = own.deliver(step)
                yield self._selected(batch, draw)
        finally:
            with self._drawer.lock:
                self._drawer.passes.end(own)

    def _selected(self, batch: Any, draw: Draw) -> tuple[Any, Draw]:
        """What of a minibatch is trained on."""
        return batch, draw

    def _fetched(self, own: Pass) -> Iterator[tuple[Any, int]]:
        """Minibatches with their steps. One that cannot be fetched is given up: it would come first in every pass."""
        batches = iter(self.dataloader)
        while True:
            self._drawer.passes.check(own)  # before it draws, or takes a minibatch from a newer pass
            found = next(batches, None)
            if found is None:
                return
            batch, step = found
            if isinstance(batch, Failure):
                own.give_up(step)
                batch.raise_again()
            yield batch, step

    def __len__(self) -> int:
        """Minibatches of a whole pass."""
        return self._drawer.pass_length()

    @property
    def remaining(self) -> int:
        """Minibatches that are left of the present pass; between two passes, those of the next."""
        passes = self._drawer.passes
        if passes.current is not None and passes.current.remaining:
            return passes.current.remaining
        whole = self._drawer.pass_length()
        return whole - passes.delivered % whole if whole else 0

    @property
    def dataset(self) -> Any:
        """The data set that it draws from."""
        return self._dataset

    @property
    def batch_size(self) -> int:
        """Samples of a minibatch."""
        return self._drawer.batch_size

    @property
    def ahead(self) -> int:
        """Minibatches that are drawn before they are needed."""
        return self.dataloader.num_workers * (self.dataloader.prefetch_factor or 0)

    @property
    def num_workers(self) -> int:
        """Worker processes of the DataLoader."""
        return self.dataloader.num_workers

    @property
    def pin_memory(self) -> bool:
        """Whether minibatches come in pinned memory."""
        return self.dataloader.pin_memory

    @property
    def drop_last(self) -> bool:
        """No: every minibatch has N samples."""
        return False

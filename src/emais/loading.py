"""How a draw travels with its batch through a torch DataLoader, its workers and its prefetching."""

from __future__ import annotations

import inspect
import pickle
import random
import traceback
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.random  # numpy loads it when it is first used, which would be in every worker
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset, default_collate, get_worker_info

from .errors import EmaisError, UnknownOption
from .parcels import by_value, is_plain
from .rng import mix

if TYPE_CHECKING:
    from .engine import Engine
    from .passes import Pass

Score = Callable[[Any], tuple[Tensor, Tensor]]  # a batch -> its losses (n,) and logits (n, ...)
Tagged = tuple[int, list[int]]  # step and sample indices: what crosses to a worker process
OVER = (
    "this pass is empty: all num_steps={} steps are done. A pass takes all that is left of them; for passes of one "
    "epoch each make the engine without num_steps"
)
UNSEEN = (
    "a whole pass went by and none of its minibatches was observed: train on imp.loss(losses, logits, draw), and "
    "evaluate with a DataLoader of your own, because a pass over this one counts as training steps"
)
_OURS = ("batch_size", "shuffle", "sampler", "batch_sampler", "drop_last", "dataset")


@dataclass(eq=False)
class Ticket:
    """Shared by all copies of one draw: whose it is, and whether it has been used."""

    owner: object
    index: Any  # where the statistics live (on the CPU numpy arrays), so that no copy has to be moved back
    r: Any
    used: bool = False


@dataclass(frozen=True, eq=False)
class Draw:
    """The samples of one step: index (N,) int64, r (N,) float32 fixed when the index was drawn, and the step."""

    index: Tensor
    r: Tensor
    step: int | Tensor
    _ticket: Ticket = field(repr=False)

    def to(self, device: torch.device | str) -> Draw:
        """The same draw with its tensors on another device."""
        ahead = torch.device(device).type != "cpu"  # towards the CPU, a copy that is not awaited can be read too soon
        index, r = (x.to(device, non_blocking=ahead) for x in (self.index, self.r))
        return Draw(index, r, self.step, self._ticket)

    def __len__(self) -> int:
        return len(self.index)


@dataclass(frozen=True, eq=False)
class Failure:
    """An exception in place of a minibatch; from a worker only its kind and its words."""

    error: Exception | None
    kind: type[Exception]
    words: str

    @classmethod
    def of(cls, error: Exception) -> Failure:
        """An exception on its way to the loader."""
        worker = get_worker_info()
        if worker is None:
            return cls(error, type(error), "")
        told, kind = "".join(traceback.format_exception(error)), type(error)
        try:
            pickle.dumps(kind)
        except Exception:  # a class that the training process cannot find
            kind = RuntimeError
        return cls(None, kind, f"{type(error).__name__} in DataLoader worker process {worker.id}.\n{told}")

    def raise_again(self) -> None:
        """As it was raised; from a worker one of the same kind, if a text makes one, with the traceback there."""
        if self.error is not None:
            raise self.error
        try:
            again = self.kind(self.words)
        except Exception:  # made of something else than a text
            again = RuntimeError(self.words)
        raise again


class _Minibatches(Dataset[Any]):
    """The user's data set by the minibatch, collated; a minibatch keeps the step it was drawn for.

    seed: makes random numbers in a worker depend on the step alone, not on who fetches what and since when.
    """

    def __init__(self, dataset: Any, collate_fn: Callable[[Any], Any], seed: int | None) -> None:
        self.dataset, self._collate, self._seed = dataset, collate_fn, seed
        self._fetch_many = getattr(dataset, "__getitems__", None)
        # what torch would put together from single samples, in a fraction of the time
        tensors = dataset.tensors if type(dataset) is TensorDataset and collate_fn is default_collate else [None]
        self._whole = all(map(is_plain, tensors))

    def __getitems__(self, tagged: Tagged) -> tuple[Any, int]:
        try:
            return self._seeded_fetch(*tagged), tagged[0]
        except Exception as error:  # it travels with its step, so that the loader knows whose it is
            return Failure.of(error), tagged[0]

    def _seeded_fetch(self, step: int, indices: list[int]) -> Any:
        if get_worker_info() is None:
            return self._fetch(indices)
        if self._seed is not None:
            key = mix(self._seed, step, 1)  # 1: a stream of its own
            torch.default_generator.manual_seed(key >> 1)
            random.seed(key)
            np.random.seed(key >> 32)  # noqa: NPY002  # the one that data sets use
        return by_value(self._fetch(indices))

    def _fetch(self, indices: list[int]) -> Any:
        if self._whole:
            index = torch.tensor(indices, device="cpu")
            return [x.index_select(0, index.to(x.device)) for x in self.dataset.tensors]
        if self._fetch_many is not None:
            return self._collate(self._fetch_many(indices))
        return self._collate([self.dataset[i] for i in indices])

    def __len__(self) -> int:
        return len(self.dataset)


def _as_it_is(minibatch: Any) -> Any:
    """The collate function of the DataLoader: nothing is left to do. A worker that is spawned finds it by name."""
    return minibatch


class _DrawStream:
    """The batch sampler: asks the engine for a draw whenever the DataLoader wants the next minibatch."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def __iter__(self) -> Iterator[Tagged]:
        under_way = self._engine.passes.current
        assert under_way is not None  # the loader has begun it
        for _ in range(under_way.remaining):
            with self._engine.lock:
                draw = under_way.issue(self._engine.draw())
            yield int(draw.step), draw._ticket.index.tolist()

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
        check_dataset(dataset, engine.num_samples)
        check_options(options)
        self._engine, self._dataset, self._score = engine, dataset, score
        given = options.get("generator")
        self._seeded = given is None  # by us, from (seed, step)
        own = given is not None or options.get("worker_init_fn") is not None  # the user sees to random numbers
        collate = options.pop("collate_fn", None) or default_collate
        self._pass: Pass | None = None  # the latest over this loader
        self.dataloader: DataLoader[Any] = DataLoader(
            _Minibatches(dataset, collate, None if own else engine.seed),
            batch_sampler=_DrawStream(engine),  # type: ignore[arg-type]
            collate_fn=_as_it_is,
            **options,
        )

    def __iter__(self) -> Iterator[tuple[Any, Draw]]:
        check_dataset(self._dataset, self._engine.num_samples)  # it may have grown since
        own = self._pass = self._engine.begin_pass()
        if not own.length:
            warnings.warn(OVER.format(self._engine.num_steps), stacklevel=2)
        if self._seeded:  # workers are seeded from it: by the step, so that a resumed pass is the same
            seed = mix(self._engine.seed, self._engine.step) >> 1
            # not the global one, but on the device where torch expects that
            self.dataloader.generator = torch.Generator(torch.empty(0).device).manual_seed(seed)
        seen = self._engine.diagnostics.step
        try:
            for batch, step in self._fetched(own):
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
    def num_workers(self) -> int:
        """Worker processes of the DataLoader."""
        return self.dataloader.num_workers


def check_dataset(dataset: Any, num_samples: int) -> None:
    """Refuse what cannot be drawn from by index."""
    if isinstance(dataset, IterableDataset):
        raise EmaisError(
            f"{type(dataset).__name__} is an IterableDataset: importance sampling picks samples by index, so it "
            "needs a data set with __getitem__ and __len__"
        )
    if not hasattr(dataset, "__len__") or not (hasattr(dataset, "__getitem__") or hasattr(dataset, "__getitems__")):
        hint = ": pass its .dataset" if hasattr(dataset, "dataset") else ""
        raise EmaisError(f"the data set needs __getitem__ and __len__, {type(dataset).__name__} lacks one{hint}")
    if len(dataset) != num_samples:
        raise EmaisError(
            f"the data set has {len(dataset)} samples, the engine was made for num_samples={num_samples}: "
            "make it with num_samples=len(dataset)"
        )


def check_options(options: dict[str, Any]) -> None:
    """Refuse DataLoader options that are the engine's to decide, and unknown ones."""
    known = set(inspect.signature(DataLoader).parameters) - set(_OURS)
    for name in options:
        if name in _OURS:
            raise EmaisError(f"{name} is the engine's to decide, which draws the minibatches: leave it out here")
        if name not in known:
            raise UnknownOption("loader()", name, known)

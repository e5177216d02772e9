"""Fetches the samples of a draw as one minibatch, in the training process or in a worker."""

from __future__ import annotations

import pickle
import random
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch.utils.data import Dataset, TensorDataset, default_collate, get_worker_info

from ..draws.uniforms import mix
from .by_value import by_value, is_plain

Tagged = tuple[int, list[int]]  # step and sample indices: what crosses to a worker process


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
        try:
            raise again
        finally:
            del again  # else it would hold this frame, and this frame it, and with them the workers


class Minibatches(Dataset[Any]):
    """The user's data set by the minibatch, collated; a minibatch keeps the step it was drawn for.

    seed: makes random numbers in a worker depend on the step alone, not on who fetches what and since when. apart: the
    same without workers, and the process's own random numbers go on as if no sample had taken any: where several
    processes train together and may have been seeded alike.
    """

    def __init__(self, dataset: Any, collate_fn: Callable[[Any], Any], seed: int | None, apart: bool = False) -> None:
        self.dataset, self._collate, self._seed = dataset, collate_fn, seed or 0
        self._seeds, self._apart = seed is not None, apart and seed is not None
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
            if not self._apart or self._whole:
                return self._fetch(indices)
            with _own_generators(mix(self._seed, step, 1)):
                return self._fetch(indices)
        if self._seeds:
            _seed_generators(mix(self._seed, step, 1))  # 1: a stream of its own
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


def _seed_generators(key: int) -> None:
    torch.default_generator.manual_seed(key >> 1)
    random.seed(key)
    np.random.seed(key >> 32)  # noqa: NPY002  # the one that data sets use


@contextmanager
def _own_generators(key: int) -> Iterator[None]:
    """Inside, the random numbers of torch on the CPU, of numpy and of Python follow from a key."""
    before = torch.default_generator.get_state(), random.getstate(), np.random.get_state()  # noqa: NPY002
    _seed_generators(key)
    try:
        yield
    finally:
        torch.default_generator.set_state(before[0])
        random.setstate(before[1])
        np.random.set_state(before[2])  # noqa: NPY002


def as_it_is(minibatch: Any) -> Any:
    """The collate function of the DataLoader: nothing is left to do. A worker that is spawned finds it by name."""
    return minibatch

"""Keeps what containers, tensors and generators hold, however nested, and puts it back into these very objects."""

from __future__ import annotations

import random
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

Restore = Callable[[], Any]


class Kept:
    """What objects held when they were given to `keep`.

    Containers, tensors, arrays and generators are put back in place, so that whoever holds them sees it. Modules are
    gone through by their attributes. Any other object stays the one it was, and what it has inside is left alone.
    known: objects that somebody else takes care of.

    >>> history = [1, {"mean": torch.zeros(2)}]
    >>> kept = Kept()
    >>> kept.keep(history)
    >>> history[1]["mean"] += 1; history.append(2)
    >>> kept.restore()
    >>> history
    [1, {'mean': tensor([0., 0.])}]
    """

    def __init__(self, known: Iterable[Any] = ()) -> None:
        self._seen = {id(x): x for x in known}  # kept alive: an id may come again otherwise
        self._restores: list[Restore] = []

    def keep(self, found: Any) -> None:
        """Keep what an object holds, and what that holds."""
        waiting = [found]
        while waiting:  # no recursion: a list may be deep, or contain itself
            x = waiting.pop()
            if id(x) in self._seen:
                continue
            restore, inside = _look(x)
            if restore is not None or inside:
                self._seen[id(x)] = x
            if restore is not None:
                self._restores.append(restore)
            waiting.extend(inside)

    def restore(self) -> None:
        """Put everything back."""
        with torch.no_grad():
            for restore in self._restores:
                restore()


def _look(x: Any) -> tuple[Restore | None, list[Any]]:
    """What puts an object back, and what it holds."""
    if isinstance(x, nn.Module):
        return None, [vars(x)]
    if isinstance(x, Tensor):
        return _tensor(x), []
    if isinstance(x, np.ndarray):
        return partial(np.copyto, x, x.copy()) if x.flags.writeable else None, []
    if isinstance(x, dict):
        return partial(_put_dict, x, list(x.items())), list(x.values())
    if isinstance(x, tuple | frozenset):
        return None, list(x)
    if isinstance(x, list | deque | set):
        return partial(_put_items, x, list(x)), list(x)
    return _generator(x), []


def _tensor(x: Tensor) -> Restore | None:
    """Plain tensors; those that cannot be written to cannot have changed."""
    if x.layout != torch.strided or x.is_inference() or x.is_meta:
        return None
    value = x.detach().clone()

    def restore() -> None:
        if x.shape != value.shape:
            x.resize_(value.shape)
        if not _alike(x, value):  # a needless write would spoil a graph that was kept
            x.copy_(value)

    return restore


def _alike(a: Tensor, b: Tensor) -> bool:
    """Whether all values are equal, or both are NaN."""
    return bool(((a == b) | ((a != a) & (b != b))).all())


def _generator(x: Any) -> Restore | None:
    if isinstance(x, torch.Generator):
        return partial(x.set_state, x.get_state())
    if isinstance(x, random.Random):
        return partial(x.setstate, x.getstate())
    if isinstance(x, np.random.RandomState):
        return partial(x.set_state, x.get_state())
    if isinstance(x, np.random.Generator):
        return partial(setattr, x.bit_generator, "state", x.bit_generator.state)
    return None


def _same(now: list[Any], before: list[Any]) -> bool:
    return len(now) == len(before) and all(a is b for a, b in zip(now, before, strict=True))


def _put_dict(x: dict[Any, Any], items: list[tuple[Any, Any]]) -> None:
    if not (_same(list(x), [key for key, _ in items]) and _same(list(x.values()), [value for _, value in items])):
        x.clear()
        # its own may do something else, as a Counter's; a dict's update passes by the order of an OrderedDict
        kind = OrderedDict if isinstance(x, OrderedDict) else dict
        for key, value in items:
            kind.__setitem__(x, key, value)


def _put_items(x: Any, items: list[Any]) -> None:
    if not _same(list(x), items):
        x.clear()
        (x.update if isinstance(x, set) else x.extend)(items)

"""Passes over a loader: draws that are on their way through it, and how far the present pass has come."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from .errors import EmaisError
from .loading import Draw


class Passes:
    """Keeps draws between the engine that makes them and the loop that gets them with their minibatches.

    into: minibatches that the present pass has delivered; 0 between two passes. latest: the number of the latest pass.
    """

    def __init__(self) -> None:
        self.into = 0
        self._resuming = False  # whether the next pass goes on with the one that was saved
        self._waiting: dict[int, Draw] = {}  # drawn and not delivered yet, by step
        self._again: list[Draw] = []  # drawn and not delivered by an earlier pass
        self.latest = 0

    def begin(self) -> int:
        """Queue draws whose minibatches never arrived: a new pass begins with them. Returns its number."""
        self.latest += 1
        self.into, self._resuming = (self.into if self._resuming else 0), False
        self._again = self.ahead()
        self._waiting.clear()
        return self.latest

    def end(self, number: int) -> None:
        """A pass is over, or was left early: the next is a whole one. Of an older pass it says nothing."""
        if number == self.latest:
            self.into = 0

    def left_over(self) -> Draw | None:
        """The first draw that an earlier pass, or a loaded state, has not delivered."""
        return self._again.pop(0) if self._again else None

    def issue(self, draw: Draw) -> Draw:
        """Keep a draw until `deliver` hands it out with its minibatch."""
        self._waiting[int(draw.step)] = draw
        return draw

    def check(self, number: int) -> None:
        """Refuse to go on with a pass that is not the latest: its minibatches have lost their draws."""
        if number != self.latest:
            raise EmaisError(
                "a newer pass over a loader of this engine has begun, or a state was loaded, and this pass cannot go "
                "on: end a pass before the next begins or a state is loaded, or make an engine for each"
            )

    def deliver(self, step: int) -> Draw:
        """The draw of a minibatch that has arrived."""
        self.into += 1
        return self._waiting.pop(step)

    def drop(self) -> None:
        """Give up the draw whose minibatch is due: it could not be fetched."""
        if self._waiting:
            del self._waiting[min(self._waiting)]

    def ahead(self) -> list[Draw]:
        """All draws that were made and not delivered, in order."""
        return sorted([*self._waiting.values(), *self._again], key=lambda draw: int(draw.step))

    def state_dict(self, width: int) -> dict[str, Any]:
        """How far the pass has come, and the draws ahead of it, each of `width` samples."""
        ahead = self.ahead()
        arrays = {
            "step": np.array([d.step for d in ahead], np.int64),
            "index": np.array([d.index.numpy() for d in ahead], np.int64).reshape(-1, width),
            "r": np.array([d.r.numpy() for d in ahead], np.float32).reshape(-1, width),
        }
        return {"into": self.into, **{name: torch.from_numpy(array) for name, array in arrays.items()}}

    def load_state_dict(self, state: dict[str, Any], stamp: Callable[[int, Any, Any], Draw]) -> None:
        """Go on where `state_dict` was taken; stamp(step, index, r) makes a draw."""
        rows: Iterable[tuple[Tensor, ...]] = zip(state["step"], state["index"], state["r"], strict=True)
        self.latest += 1  # a pass that is under way has no say any more
        self._waiting.clear()
        self._again = [stamp(int(t), index.numpy().copy(), r.numpy().copy()) for t, index, r in rows]
        self.into, self._resuming = state["into"], True

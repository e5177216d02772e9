"""Passes over a loader: each owns the draws that are on their way through it, and knows how far it has come."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ..errors import EmaisError
from .draw import Draw


class Pass:
    """One pass: `length` steps, of which `delivered` were handed out with their minibatches; the others may be drawn.

    A pass is over with its last minibatch, whether or not anyone asks for another one after it.
    """

    def __init__(self, length: int, delivered: int = 0) -> None:
        self.length, self.delivered = length, delivered
        self.in_flight: dict[int, Draw] = {}  # drawn and not delivered yet, by step

    @property
    def remaining(self) -> int:
        """Minibatches that are still to be delivered."""
        return self.length - self.delivered

    def issue(self, draw: Draw) -> Draw:
        """Keep a draw until `deliver` hands it out with its minibatch."""
        self.in_flight[int(draw.step)] = draw
        return draw

    def deliver(self, step: int) -> Draw:
        """The draw of a minibatch that has arrived."""
        self.delivered += 1
        return self.in_flight.pop(step)

    def give_up(self, step: int) -> None:
        """Forget a draw whose minibatch could not be fetched: else every pass would begin with it."""
        self.in_flight.pop(step, None)


class PassTracker:
    """The pass under way, if there is one, and what earlier ones and loaded states have left."""

    def __init__(self, what: str = "engine") -> None:
        self.what = what  # whose passes they are, for messages
        self.current: Pass | None = None
        self._left: list[Draw] = []  # drawn and not delivered by an earlier pass
        self._resumed = 0  # minibatches of the next pass that were delivered before the state was saved
        self._begun: deque[int] = deque(maxlen=8)  # steps before each of the latest passes

    @property
    def delivered(self) -> int:
        """Minibatches that the present pass, or the one to be resumed, has delivered; 0 between two passes."""
        if self.current is None:
            return self._resumed
        return self.current.delivered if self.current.remaining else 0

    def begin(self, length: int, goes_on: bool, step: int = 0) -> Pass:
        """Begin a pass of so many steps, with the draws whose minibatches never arrived before it.

        goes_on: length is that of a whole pass, and one that was saved goes on where it was. step: minibatches that
        were handed out so far.
        """
        self._left = self.ahead()
        self.current = Pass(length, self._resumed % length if goes_on and length else 0)
        self._begun.append(step - self._resumed)
        self._resumed = 0
        return self.current

    def begun(self, step: int) -> int:
        """How many steps there were before the pass that a step belongs to; 0 outside of passes.

        Of the step, not of the pass under way: a step may be asked about when the next pass has begun.
        """
        return max((first for first in self._begun if first < step), default=0)

    def end(self, own: Pass) -> None:
        """A pass is over, or was left early: the next is a whole one. Of an older pass it says nothing."""
        if own is self.current:
            self._left = self.ahead()
            self.current = None

    def go_on_at(self, delivered: int) -> None:
        """Let the next pass begin after so many of its minibatches: for a trainer that counts them itself."""
        if self.current is not None:
            self.end(self.current)
        self._resumed = delivered

    def check(self, own: Pass) -> None:
        """Refuse to go on with a pass that is not the present one: its minibatches have lost their draws."""
        if own is not self.current:
            raise EmaisError(
                f"a newer pass of this {self.what} has begun, or a state was loaded, and this pass cannot go on: end a "
                f"pass before the next begins or a state is loaded, or make another {self.what} for each"
            )

    def left_over(self) -> Draw | None:
        """The first draw that an earlier pass, or a loaded state, has not delivered."""
        return self._left.pop(0) if self._left else None

    def hold(self, draw: Draw) -> None:
        """Keep a draw that nobody has asked for yet; it is the last of `left_over`."""
        self._left.append(draw)

    def ahead(self) -> list[Draw]:
        """All draws that were made and not delivered, in order."""
        flying = [] if self.current is None else self.current.in_flight.values()
        return sorted([*flying, *self._left], key=lambda draw: int(draw.step))

    def state_dict(self, width: int) -> dict[str, Any]:
        """How far the pass has come, and the draws ahead of it, each of `width` samples."""
        ahead = self.ahead()
        with torch.device("cpu"):
            found = {
                "step": torch.tensor([int(d.step) for d in ahead], dtype=torch.int64),
                "index": torch.empty(len(ahead), width, dtype=torch.int64),
                "r": torch.empty(len(ahead), width, dtype=torch.float32),
            }
        for k, record in enumerate(draw._record for draw in ahead):
            whole = record.everyone or (record.index, record.r)
            found["index"][k], found["r"][k] = map(torch.as_tensor, whole)
        return {"delivered": self.delivered, **found}

    def load_state_dict(self, state: dict[str, Any], make_draw: Callable[[int, Tensor, Tensor], Draw]) -> None:
        """Go on where `state_dict` was taken; make_draw(step, index, r) makes a draw."""
        rows = zip(state["step"].tolist(), state["index"], state["r"], strict=True)
        self.current = None  # a pass that is under way has no say any more
        self._left = [make_draw(step, index.clone(), r.clone()) for step, index, r in rows]
        self._resumed = state["delivered"]
        self._begun.clear()

"""What a batch sampler has handed to a DataLoader, and which of it the loop has received."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from ..draws.given_weights import sample_indices
from ..errors import EmaisError
from .draw import Draw
from .passes import Pass, PassTracker

KEPT = 512  # draws that are kept for `receive` as long as it was never called: more than anyone prefetches
EACH = "call it once for each minibatch that the loop gets, also for one that it skips"
NEWER = (
    "a newer pass over this sampler has begun, or a state was loaded, and this pass cannot go on: end a pass before "
    "the next begins, or make a sampler for each DataLoader"
)
MISSED = (
    "receive() was not called for an earlier minibatch of this pass, so index and r would be those of another one: "
    f"{EACH}. If a thread of your own fetches minibatches ahead, pass the indices of the minibatch: receive(index)"
)


@dataclass
class _Tally:
    """Minibatches of a pass that were asked for and not received; `usual`: that number at the first `receive`."""

    waiting: int = 0
    usual: int | None = None


class _Counted(Iterator[list[int]]):
    """Minibatches of a pass. It counts how often it is asked, also after its end."""

    def __init__(self, batches: Iterator[list[int]], tally: _Tally) -> None:
        self._batches, self._tally = batches, tally

    def __next__(self) -> list[int]:
        self._tally.waiting += 1
        return next(self._batches)


class Deliveries:
    """Keeps each draw from the moment when a DataLoader asks for it until the loop receives its minibatch.

    A DataLoader asks for one more minibatch whenever it delivers one, also when the last was drawn. So at each call of
    `receive` as many minibatches are waiting as at the first call of the pass, and more only if a call was left out.
    """

    def __init__(self, skip: Callable[[int], None] | None = None) -> None:
        self._skip = skip  # takes the rest of a pass that was left early, if nobody knows how far its loop has come
        self.passes = PassTracker()
        self.receiving = False  # whether `receive` is in use; if not, what is drawn counts as delivered
        self.received = 0  # the step of the draw that was received last
        self._forgot = False  # whether draws of this pass are no longer kept for `receive`
        self._tally = _Tally()

    def hand_out(self, length: int, take: Callable[[], Draw]) -> Iterator[list[int]]:
        """The indices of one pass; take() gives the next draw."""
        tally = _Tally()
        return _Counted(self._batches(length, take, tally), tally)

    def _batches(self, length: int, take: Callable[[], Draw], tally: _Tally) -> Iterator[list[int]]:
        if not self.receiving:
            self._leave(self.passes.current)
        own = self._begin(length, tally)
        try:
            for _ in range(own.remaining):
                if own is not self.passes.current:
                    raise EmaisError(NEWER)
                yield self._issue(own, take())._record.index.tolist()
        except GeneratorExit:  # the loop was left early
            self._leave(own)
            raise

    def _leave(self, own: Pass | None) -> None:
        """The pass is over. Without `receive`, a minibatch counts as delivered as soon as it is drawn."""
        if own is None or own is not self.passes.current:
            return
        if not self.receiving:
            for step in list(own.in_flight):
                own.deliver(step)
            if self._skip is not None:
                self._skip(own.remaining)
        self.passes.end(own)

    def _begin(self, length: int, tally: _Tally) -> Pass:
        before, self._tally, self._forgot = self._tally, tally, False
        own = self.passes.current
        left = 0 if own is None or len(own.in_flight) < own.remaining else own.remaining  # of a pass that was all drawn
        begun = self.passes.begin(length, goes_on=True)
        if left and before.usual is not None and before.waiting > before.usual:
            self.passes.end(begun)
            raise EmaisError(f"receive() was not called for {left} minibatches of the last pass: {EACH}")
        if left:
            noun = "minibatch of the last pass was" if left == 1 else "minibatches of the last pass were"
            warnings.warn(
                f"{left} {noun} not received and will come first in this one. If you have not left the loop early, "
                f"receive() is missing somewhere: {EACH}",
                stacklevel=3,
            )
        return begun

    def _issue(self, own: Pass, draw: Draw) -> Draw:
        if not self.receiving and len(own.in_flight) == KEPT:
            own.deliver(next(iter(own.in_flight)))
            self._forgot = True
        return own.issue(draw)

    def receive(self, index: Any = None) -> Draw:
        """The draw of the minibatch that the loop has just got; index: its samples, to compare."""
        own = self.passes.current
        if own is None or not own.in_flight:
            raise EmaisError("receive() found no minibatch to receive: call it once for each minibatch of a pass")
        if self._forgot:
            raise EmaisError(
                f"receive() was not called for the first minibatches of this pass, and more than {KEPT} were drawn: "
                "call it once for each minibatch, from the first one of a pass on"
            )
        if index is None:
            self._check_count()
        else:
            _check_samples(index, list(own.in_flight.values()))
        self.receiving = True
        self._tally.waiting -= 1
        self.received = next(iter(own.in_flight))
        return own.deliver(self.received)

    def _check_count(self) -> None:
        tally = self._tally
        if tally.usual is None:
            tally.usual = tally.waiting
        if tally.waiting > tally.usual:
            raise EmaisError(MISSED)

    # ---- saving

    def state_dict(self, width: int, length: int) -> dict[str, Any]:
        """How far the pass of `length` minibatches has come, and the draws, of `width` samples, that are to come."""
        saved, own = self.passes.state_dict(width), self.passes.current
        flying = 0 if own is None or self.receiving else len(own.in_flight)  # the first of those that were drawn
        if not flying:
            return saved
        rest = {key: saved[key][flying:] for key in ("step", "index", "r")}
        return {"delivered": (saved["delivered"] + flying) % length, **rest}

    def load_state_dict(
        self, state: dict[str, Any], receiving: bool, make_draw: Callable[[int, Tensor, Tensor], Draw]
    ) -> None:
        """Go on where `state_dict` was taken; make_draw(step, index, r) makes a draw."""
        self.passes.load_state_dict(state, make_draw)
        self.receiving, self.received, self._tally = receiving, 0, _Tally()


def _check_samples(index: Any, waiting: list[Draw]) -> None:
    """Refuse indices that are not those of the first draw that is waiting."""
    given = sample_indices(index).tolist()
    steps = [draw.step for draw in waiting if draw._record.index.tolist() == given]
    first = waiting[0]
    if first.step in steps:
        return
    if steps:
        raise EmaisError(
            f"this is the minibatch of step {steps[0]}, and that of step {first.step} was not received: {EACH}"
        )
    raise EmaisError(
        f"the minibatch of step {first.step} has the samples {_listed(first._record.index.tolist())}, got "
        f"{_listed(given)}: pass the indices in the order of the minibatch, and do not use in_order=False"
    )


def _listed(index: list[int]) -> str:
    """A few of them."""
    return f"{index[:8]}" if len(index) <= 8 else f"{index[:8]} and {len(index) - 8} more"

"""A batch sampler for torch's DataLoader: exact draws by weights that may change at any time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Sampler

from .draws.distinct import draw_distinct
from .draws.given_weights import all_weights, some_weights
from .draws.host_tree import WideTree
from .draws.uniforms import Uniforms, mix
from .errors import EmaisError, positive_int, whole_number
from .loading.draw import Draw, DrawRecord
from .loading.passes import Pass, PassTracker
from .state import check_passes, check_structure
from .statistics.limits import ABOVE_0, Limit

VERSION = 1
KEPT = 512  # draws that are kept for `receive` as long as it was never called: more than anyone prefetches
TURNS = 2**32  # random numbers of a step without replacement come in turns; their counter is step * TURNS + turn


class WeightedSampler(Sampler[list[int]]):
    """Draws minibatches of N indices in proportion to weights that you may change at any time.

    Pass it to `DataLoader(dataset, batch_sampler=sampler)`. One pass has `num_batches` minibatches, ceil(M/N) by
    default, of exactly N samples each. `update` holds for the next minibatch that is drawn. Time and memory do not
    limit the data set: a draw takes less than a millisecond for 100 million samples.

    weights: (M,), 0 or from 1e-150 to 1e150, on any scale. A sample with weight 0 is never drawn.
    seed: a minibatch depends on the seed, its step and the weights, and on nothing else.
    replacement: False draws N different samples for each minibatch, one after the other, each in proportion to the
    weights of those that are left. The next minibatch may have the same samples again.

    >>> sampler = WeightedSampler([1.0, 1.0, 2.0], batch_size=4)
    >>> sampler.probabilities()
    tensor([0.2500, 0.2500, 0.5000], dtype=torch.float64)
    >>> sampler.update([0, 1], 0.0)
    >>> list(sampler)
    [[2, 2, 2, 2]]
    """

    def __init__(
        self,
        weights: Any,
        batch_size: int = 128,
        *,
        seed: int = 0,
        num_batches: int | None = None,
        replacement: bool = True,
    ) -> None:
        given = all_weights(weights)
        self.num_samples, self.batch_size = len(given), positive_int("batch_size", batch_size)
        self.seed = whole_number("seed", seed, 0, 2**63 - 1)
        epoch = -(-self.num_samples // self.batch_size)
        self.num_batches = epoch if num_batches is None else positive_int("num_batches", num_batches)
        self.replacement = _checked_replacement(replacement, given, self.batch_size)
        self.step = 0  # minibatches drawn so far
        self._tree = WideTree(self.num_samples, self.batch_size)
        self._tree.fill(torch.from_numpy(given))
        self._uniforms = Uniforms(self.seed, 3, self.batch_size)
        self._more = Uniforms(mix(self.seed, 1), 3, self.batch_size)
        self._passes = PassTracker()
        self._receiving = False  # whether `receive` is in use; if not, what is drawn counts as delivered
        self._forgot = False  # whether draws of this pass are no longer kept for `receive`

    # ---- weights

    def update(self, index: Any, weights: Any) -> None:
        """Set the weights of these samples, from the next minibatch drawn on.

        index: (n,) whole numbers. weights: (n,), or one number for all of them. If an index is listed twice, its last
        weight stays. Without a weight above 0 anywhere nothing could be drawn: that is refused and changes nothing.
        """
        samples, values = some_weights(index, weights, self.num_samples)
        before = self._tree.weights.numpy()[samples]
        self._tree.put(samples, values)
        if not self._tree.total():
            self._tree.put(samples, before)
            raise EmaisError("this would make all weights 0: give at least one sample a weight above 0")

    @property
    def weights(self) -> Tensor:
        """The weights, (M,) float64: a copy; `update` changes them."""
        return self._tree.weights.clone()

    def probabilities(self) -> Tensor:
        """The chance of each sample to be the first of the next minibatch drawn, (M,) float64: O(M), for analysis.

        With replacement it is the chance at every place of the minibatch.
        """
        weights = self._tree.weights
        return weights / weights.sum()

    def nbytes(self) -> int:
        """Bytes of weights and their sums."""
        return self._tree.nbytes()

    # ---- minibatches

    def __len__(self) -> int:
        """Minibatches of a whole pass."""
        return self.num_batches

    def __iter__(self) -> Iterator[list[int]]:
        """One pass. After `load_state_dict`, the first pass is what was left of the one that was saved."""
        own = self._begin()
        try:
            for _ in range(own.remaining):
                if own is not self._passes.current:
                    raise EmaisError(
                        "a newer pass over this sampler has begun, or a state was loaded, and this pass cannot go on: "
                        "end a pass before the next begins, or make a sampler for each DataLoader"
                    )
                yield self._issue(own)._record.index.tolist()
        except GeneratorExit:  # the loop was left early
            self._count_as_delivered()
            self._passes.end(own)
            raise

    def receive(self) -> Draw:
        """The draw of the minibatch that the loop has just got from its DataLoader: index, r and step.

        Call it once for each minibatch, from the first one of a pass on. It is right with workers and prefetching,
        because a DataLoader delivers minibatches in the order in which they were drawn (unless `in_order=False`).

        r (N,) is 1/(M p) with the probabilities of the draw, so the expected value of mean(r * losses) is the sum of
        losses over all samples with a weight above 0, divided by M. Without replacement there is no such number, and
        r is NaN.
        """
        own = self._passes.current
        if own is None or not own.in_flight:
            raise EmaisError("receive() found no minibatch to receive: call it once for each minibatch of a pass")
        if self._forgot:
            raise EmaisError(
                f"receive() was not called for the first minibatches of this pass, and more than {KEPT} were drawn: "
                "call it once for each minibatch, from the first one of a pass on"
            )
        self._receiving = True
        return own.deliver(next(iter(own.in_flight)))

    def _begin(self) -> Pass:
        self._count_as_delivered()
        self._forgot = False
        return self._passes.begin(self.num_batches, goes_on=True)

    def _issue(self, own: Pass) -> Draw:
        draw = self._passes.left_over()
        if draw is None:
            index, r = self._draw(self.step + 1)
            self.step += 1
            draw = self._make_draw(self.step, torch.from_numpy(index), torch.from_numpy(r))
        if not self._receiving and len(own.in_flight) == KEPT:
            own.deliver(next(iter(own.in_flight)))
            self._forgot = True
        return own.issue(draw)

    def _draw(self, step: int) -> tuple[np.ndarray, np.ndarray]:
        """Indices and r of a step: a pure function of it, the seed and the present weights."""
        u = self._uniforms.host(step)
        if self.replacement:
            return self._tree.draw(u)
        index = draw_distinct(self._tree, lambda turn: self._turn(step, turn) if turn else u)
        return index, np.full(self.batch_size, np.nan, dtype=np.float32)

    def _turn(self, step: int, turn: int) -> np.ndarray:
        counter = torch.tensor(step * TURNS + turn, dtype=torch.int64, device="cpu")
        return self._more(counter).numpy()

    def _make_draw(self, step: int, index: Tensor, r: Tensor) -> Draw:
        # whoever writes to the draw's tensors changes nothing in the record
        return Draw(index.clone(), r.clone(), step, DrawRecord(self, index, r))

    def _count_as_delivered(self) -> None:
        """Without `receive`, a minibatch counts as delivered as soon as it is drawn."""
        own = self._passes.current
        if own is not None and not self._receiving:
            for step in list(own.in_flight):
                own.deliver(step)

    # ---- saving

    def state_dict(self) -> dict[str, Any]:
        """Everything an exact resume needs: weights, step, and what was drawn and not yet received."""
        return self._state(self._tree.weights.clone())

    def _state(self, weights: Tensor) -> dict[str, Any]:
        settings = ("num_samples", "batch_size", "seed", "num_batches", "replacement")
        return {
            "version": VERSION,
            "settings": {name: getattr(self, name) for name in settings},
            "step": self.step,
            "passes": self._saved_passes(),
            "weights": weights,
        }

    def _saved_passes(self) -> dict[str, Any]:
        saved = self._passes.state_dict(self.batch_size)
        if self._receiving or not len(saved["step"]):
            return saved
        delivered = (saved["delivered"] + len(saved["step"])) % self.num_batches
        return {"delivered": delivered, **{key: saved[key][:0] for key in ("step", "index", "r")}}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on where `state_dict` was taken, with a sampler made alike. A state that is refused changes nothing."""
        check_structure(state, self._state(self._tree.weights), what="sampler")
        all_weights(state["weights"])
        passes, usable = state["passes"], ABOVE_0 if self.replacement else Limit(finite=False)
        check_passes(passes, state["step"], self.num_samples, usable)
        if passes["delivered"] > min(self.num_batches, state["step"]):
            raise EmaisError(f"passes.delivered is {passes['delivered']}, more than were drawn: load an intact state")
        self.step = state["step"]
        self._tree.fill(state["weights"])
        self._passes.load_state_dict(passes, self._make_draw)
        self._receiving = bool(len(passes["step"]))

    def __repr__(self) -> str:
        sizes = f"{self.num_samples} weights, batch_size={self.batch_size}"
        return f"{type(self).__name__}({sizes}, seed={self.seed}, replacement={self.replacement})"


def _checked_replacement(replacement: object, weights: np.ndarray, batch_size: int) -> bool:
    """Whether to draw with replacement, or say why that cannot be done without."""
    if not isinstance(replacement, bool):
        raise EmaisError(f"replacement must be True or False, got {replacement!r}")
    positive = np.count_nonzero(weights)
    if not replacement and positive < batch_size:
        raise EmaisError(
            f"replacement=False needs at least batch_size={batch_size} weights above 0, got {positive}: lower "
            "batch_size, or draw with replacement"
        )
    return replacement

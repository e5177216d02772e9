"""Exact draws by weights that may change at any time: a loader that hands out r, and a batch sampler for others."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Sampler

from .distributed import Peers, not_made, refuse_forgotten_group
from .draws.by_weight import DrawsByWeight
from .draws.given_weights import all_weights, checked_replacement, some_weights
from .draws.uniforms import seed_of_rank
from .draws.weight_updates import WeightUpdate, all_changes, check_together
from .errors import EmaisError, positive_float, positive_int, whole_number
from .loading.draw import Draw, DrawRecord
from .loading.loader import Loader
from .loading.passes import Pass, PassTracker
from .processes.making import Making
from .state import check_passes, check_sizes, check_structure
from .statistics.limits import ABOVE_0, Limit

SAMPLER_VERSION = 2


class MakingSamplers(Making):
    """The class of sampler classes: the other processes are told why one of them has no sampler."""

    what = "sampler"

    @staticmethod
    def connection(made: Any) -> Peers | None:
        """To the other processes, if the constructor has come so far; None without a group, too."""
        return getattr(made, "_peers", None)

    @staticmethod
    def compare(made: Any) -> None:
        """Compare settings and weights of all processes."""
        if made._peers:
            weights = {"weights (their hash)": _hash(made._draws.weights.numpy())}
            given = made._settings() | {"batch_size": made.batch_size} | weights
            made._peers.check_alike(given, not_made("sampler"))


class WeightedSampler(Sampler[list[int]], metaclass=MakingSamplers):
    """Draws minibatches of N indices in proportion to weights that you may change at any time.

    `for batch, draw in sampler.loader(dataset)` gives each minibatch with its index and r. It is also a batch sampler:
    `DataLoader(dataset, batch_sampler=sampler)` is for those who need neither. Not `sampler=sampler`: torch takes that
    silently, and makes batches of lists of indices. One pass has `num_batches` minibatches,
    ceil(M/N) by default, of exactly N samples each. `update` holds for the next minibatch that is drawn. Time and
    memory do not limit the data set: a draw takes less than a millisecond for 100 million samples.

    weights: (M,), 0 or from 1e-150 to 1e150, on any scale. A sample with weight 0 is never drawn.
    seed: a minibatch depends on the seed, its step and the weights, and on nothing else.
    replacement: False draws N different samples for each minibatch, one after the other, each in proportion to the
    weights of those that are left. The next minibatch may have the same samples again.
    process_group: K processes that train one model together. batch_size is then that of one process, and each process
    gets its part of a minibatch of K times as many samples, which is N above. In `update` they wait for each other, at
    most `timeout` seconds.

    >>> sampler = WeightedSampler([1.0, 1.0, 2.0], batch_size=4)
    >>> sampler.probabilities()
    tensor([0.2500, 0.2500, 0.5000], dtype=torch.float64)
    >>> sampler.update([0, 1], 0.0)
    >>> list(sampler)
    [[2, 2, 2, 2]]
    """

    lock: AbstractContextManager[Any] = nullcontext()  # one thread uses it, as any sampler
    ends = finished = False  # it draws as long as it is asked

    def __init__(
        self,
        weights: Any,
        batch_size: int = 128,
        *,
        seed: int = 0,
        num_batches: int | None = None,
        replacement: bool = True,
        process_group: Any = None,
        timeout: float = 1800.0,
    ) -> None:
        given = all_weights(weights)
        self.num_samples, self.batch_size = len(given), positive_int("batch_size", batch_size)
        self.seed, timeout = whole_number("seed", seed, 0, 2**63 - 1), positive_float("timeout", timeout)
        self._grouped = process_group is not None
        self._check_group()
        self._peers = Peers(process_group, self.batch_size, timeout) if self._grouped else None
        self.global_batch_size = self.batch_size * (self._peers.size if self._peers else 1)  # of all processes
        epoch = -(-self.num_samples // self.global_batch_size)
        self.num_batches = epoch if num_batches is None else positive_int("num_batches", num_batches)
        self.replacement = checked_replacement(replacement, given, self.global_batch_size)
        self._drawn = 0  # the step of the latest draw
        self._draws = DrawsByWeight(given, self.global_batch_size, self.seed, self.replacement)
        self.passes = PassTracker("sampler")
        self._plain = False  # whether the latest pass was that of a batch sampler: nobody knows what arrived of it
        self._loaded: str | None = None  # a name for the state that was loaded, until the others know of it

    def _check_group(self) -> None:
        if not self._grouped:
            refuse_forgotten_group("sampler")

    # ---- weights

    def update(self, index: Any, weights: Any) -> None:
        """Set the weights of these samples, from the next minibatch drawn on.

        index: (n,) whole numbers. weights: (n,), or one number for all of them. If an index is listed twice, its last
        weight stays. Without a weight above 0 anywhere nothing could be drawn: that is refused and changes nothing.

        With a process_group all processes call it at the same place, each for any samples, also for none, `update([],
        [])`. It waits for the others. The changes of all are made in the order of ranks, on all of them. Minibatches
        that any process has drawn by then are drawn by all of them with the weights from before.
        """
        if self._peers is None:
            return self._draws.put(*some_weights(index, weights, self.num_samples))
        where = {"drawn": self._drawn, "delivered": None if self._plain else self.step, "loaded": self._loaded}
        own = WeightUpdate.of(index, weights, self.num_samples, **where)
        updates = self._peers.gather(own, self.step)
        check_together(updates)
        self._loaded = None
        while self._drawn < max(update.drawn for update in updates):
            self.passes.hold(self._new_draw())
        self._draws.put(*all_changes(updates))

    @property
    def weights(self) -> Tensor:
        """The weights, (M,) float64: a copy; `update` changes them."""
        return self._draws.weights.clone()

    def probabilities(self) -> Tensor:
        """The chance of each sample to be the first of the next minibatch drawn, (M,) float64: O(M), for analysis.

        With replacement it is the chance at every place of the minibatch.
        """
        weights = self._draws.weights
        return weights / weights.sum()

    def nbytes(self) -> int:
        """Bytes of weights and their sums."""
        return self._draws.tree.nbytes()

    # ---- minibatches

    def loader(self, dataset: Any, **options: Any) -> Loader:
        """A loader over `dataset` that yields (batch, draw); `options`, as num_workers=2, go to torch's DataLoader.

        draw.index (n,) has the samples of the batch, also with workers, prefetching and in_order=False. draw.r (n,) is
        1/(M p) with the probabilities of the draw, so the expected value of mean(r * losses) is the sum of losses over
        all samples with a weight above 0, divided by M. Without replacement there is no such number, and r is NaN. With
        a process_group, index and r are those of this process's samples.

        A DataLoader in place of `dataset` hands over its data set and its options; those given here replace its own.
        """
        self._check_group()
        rank, shared = (self._peers.rank, self._peers.size > 1) if self._peers else (0, False)
        return Loader(self, dataset, options, seed_of_rank(self.seed, rank), shared)

    def draw(self) -> Draw:
        """The next draw, for data that is indexed directly: index, r and step, as `loader` gives them."""
        left = self.passes.left_over()
        return self._new_draw() if left is None else left

    @property
    def step(self) -> int:
        """Minibatches handed out so far: to the loop, or to the DataLoader whose batch sampler this is."""
        return self._drawn - len(self.passes.ahead())

    def __len__(self) -> int:
        """Minibatches of a whole pass."""
        return self.num_batches

    def pass_length(self) -> int:
        """Minibatches of a whole pass."""
        return self.num_batches

    def begin_pass(self) -> Pass:
        """Begin a pass over a loader; after a resume, what is left of the one that was saved."""
        self._check_group()  # there may be more processes by now
        if self.passes.current is not None:
            self._leave(self.passes.current)
        self._plain = False
        return self.passes.begin(self.num_batches, goes_on=True)

    def __iter__(self) -> Iterator[list[int]]:
        """One pass as a batch sampler: indices alone. A minibatch counts as delivered when it is handed out here.

        After `load_state_dict`, the first pass is what was left of the one that was saved.
        """
        own, self._plain = self.begin_pass(), True
        try:
            for _ in range(own.remaining):
                self.passes.check(own)
                draw = own.issue(self.draw())
                own.deliver(int(draw.step))
                yield draw._record.index.tolist()
        finally:
            self._leave(own)

    def _leave(self, own: Pass) -> None:
        """A pass is over. As a batch sampler's it counts as a whole one on several processes.

        Else the next pass would begin with a step of its own on each of them, because some have prefetched more.
        """
        if own is not self.passes.current:
            return
        if self._plain and self._peers and self._peers.size > 1:
            for _ in range(own.remaining):
                if self.passes.left_over() is None:
                    self._drawn += 1
        self.passes.end(own)

    def _new_draw(self) -> Draw:
        index, r = self._draws.draw(self._drawn + 1)
        self._drawn += 1
        return self._make_draw(self._drawn, torch.from_numpy(index), torch.from_numpy(r))

    def _make_draw(self, step: int, index: Tensor, r: Tensor) -> Draw:
        lanes = self._peers.lanes if self._peers else None
        own, own_r = (index, r) if lanes is None else (index[lanes], r[lanes])
        # whoever writes to the draw's tensors changes nothing in the record
        return Draw(own.clone(), own_r.clone(), step, DrawRecord(self, own, own_r, everyone=(index, r)))

    # ---- saving

    def state_dict(self) -> dict[str, Any]:
        """Everything an exact resume needs: weights, step, and what `loader` has drawn and not yet delivered.

        As a batch sampler it cannot know what a DataLoader with workers has delivered, and counts all that it handed
        out: a resume then leaves out the minibatches that were prefetched.

        With a process_group the state of rank 0 is complete. Load it on all processes, of which there may be another
        number as long as they draw as many samples a step together.
        """
        return self._state(self._draws.weights.clone())

    def _settings(self) -> dict[str, Any]:
        names = ("num_samples", "seed", "num_batches", "replacement")
        return {"batch_size": self.global_batch_size, **{name: getattr(self, name) for name in names}}

    def _state(self, weights: Tensor) -> dict[str, Any]:
        return {
            "version": SAMPLER_VERSION,
            "settings": self._settings(),
            "step": self._drawn,
            "passes": self.passes.state_dict(self.global_batch_size),
            "weights": weights,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on where `state_dict` was taken, with a sampler made alike. A state that is refused changes nothing."""
        if self._peers:
            check_sizes(state, self.batch_size, self._peers.size, what="sampler")
        check_structure(state, self._state(self._draws.weights), what="sampler")
        all_weights(state["weights"])
        passes, usable = state["passes"], ABOVE_0 if self.replacement else Limit(finite=False)
        check_passes(passes, state["step"], self.num_samples, usable)
        if passes["delivered"] > min(self.num_batches, state["step"]):
            raise EmaisError(f"passes.delivered is {passes['delivered']}, more than were drawn: load an intact state")
        self._drawn, self._plain = state["step"], False
        self._draws.fill(state["weights"])
        self.passes.load_state_dict(passes, self._make_draw)
        self._loaded = f"step {self._drawn} with weights {_hash(state['weights'].numpy())}" if self._peers else None

    def __getstate__(self) -> dict[str, Any]:
        if self._peers:
            raise EmaisError(
                "a sampler with a process_group cannot be copied or pickled, because the group belongs to this "
                "process: save state_dict(), or make another sampler on all processes"
            )
        return self.__dict__

    def __repr__(self) -> str:
        sizes = f"{self.num_samples} weights, batch_size={self.batch_size}"
        return f"{type(self).__name__}({sizes}, seed={self.seed}, replacement={self.replacement})"


def _hash(weights: np.ndarray) -> str:
    """A short text that differs where weights do."""
    return hashlib.blake2b(np.ascontiguousarray(weights).data, digest_size=8).hexdigest()

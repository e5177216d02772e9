"""Several processes that train one model: what both forms of it share."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol
from zlib import crc32

import torch
from torch import Tensor

from ..distributed import Connection, Flight, not_made, shared_error
from ..draws.uniforms import seed_of_rank
from ..observing.observation import Observation
from ..terms import Terms
from .form import Processes

if TYPE_CHECKING:
    from ..engine import Engine

NOT_MADE = not_made("engine")
WIDEST = 1 << 16  # numbers: a sum of gradients that is longer stays at home


class Packing(Protocol):
    """How an observation becomes bytes, and the bytes of all processes become one observation."""

    def pack(self, observed: Observation) -> Tensor:
        """What a process tells the others, as bytes that begin with room for the terms."""

    def together(self, rows: Tensor, observed: Observation) -> Observation:
        """The minibatch of all processes, of their bytes and of what this one has observed."""


class Group(Processes):
    """Processes that train one model; `Replicas` and `Shards` are the two forms.

    Each sends what it has observed, in one asynchronous collective a step. It is awaited where its outcome is needed.
    """

    sharded = False
    shared = True  # whether all processes learn from the observations of all

    def __init__(self, engine: Engine, connection: Connection) -> None:
        self.connection, self.size, self.rank = connection, connection.size, connection.rank
        self._engine = engine
        form = f"sharded={self.sharded}"
        told = connection.ask_all((form, engine.num_samples), NOT_MADE)
        if len({form for form, _ in told}) > 1:
            said = ", ".join(f"rank {rank} has {form}" for rank, (form, _) in enumerate(told))
            raise shared_error(f"the processes disagree about sharded: {said}. Make their engines alike")
        self.sizes = [size for _, size in told]  # num_samples of each
        self.own_seed = seed_of_rank(engine.seed, self.rank)
        self._pending: deque[tuple[Flight, Observation]] = deque()
        self._packing: Packing | None = None
        self._loaded = 0  # a hash of the state that was loaded, until the others know of it

    def check_settings(self, engine: Engine) -> None:
        """Compare the settings of all processes, when their engines are made."""
        from .. import __version__  # here: the package imports this module

        first = {"version": __version__, "method": engine.name, "num_steps": engine.num_steps}
        self.connection.check_alike(first | engine.saved_settings() | {"batch_size": engine.batch_size}, NOT_MADE)

    @contextmanager
    def making_loader(self) -> Iterator[None]:
        """While a loader is made: the others are told why it is refused, wherever they wait for this process next."""
        try:
            yield
        except Exception as error:
            if self._packing is None or not self.sharded:
                self.connection.refuse(error, "loader")
            raise

    def state_loaded(self, state: dict[str, Any]) -> None:
        """A state was loaded: keep a hash of what it has in common with those of the other processes."""
        monitor = state["monitor"]
        numbers = [state["step"] - len(state["passes"]["step"]), monitor["added"], state["applied"].item()]
        found = crc32(repr([*numbers, state["effective"].tolist()]).encode())
        if not self.sharded:
            for name, column in sorted(state["state"].items()):
                data = column.detach().contiguous().reshape(-1).view(torch.uint8).numpy()
                found = crc32(data, crc32(name.encode(), found))
        self._loaded = found or 1

    # ---- the exchange of a step

    @property
    def exchange(self) -> Group:
        """Who is told what was observed."""
        return self

    def packing(self, lengths: Sequence[int]) -> Packing:
        """How to pack sums of gradients of these lengths, one a process; 0 where only norms are known."""
        raise NotImplementedError

    def send(self, observed: Observation) -> None:
        """Start the exchange of what this process has observed of its samples."""
        if self._packing is None:
            length = gradient_length(observed)
            told = self.connection.ask_all(length, "another process has not observed its first minibatch")
            self._packing = self.packing(told)
        flight = self.connection.start(self._terms(int(observed.step)), self._packing.pack(observed))
        self._pending.append((flight, observed))

    def _terms(self, step: int) -> Terms:
        """What all processes must have alike when they have observed a step."""
        engine, loaded = self._engine, self._loaded
        self._loaded = 0
        return Terms(step, loaded, engine.attached.terms(), *engine.attached.latest(), engine.passes.begun(step))

    def arrive(self, step: float) -> Iterator[Observation]:
        """What was sent up to a step, each with what the others have sent; waits for them."""
        while self._pending and self._pending[0][0].step <= step:
            flight, observed = self._pending[0]
            rows = self.connection.wait(flight)
            self._pending.popleft()
            assert self._packing is not None
            yield self._packing.together(rows, observed)


def gradient_length(observed: Observation) -> int:
    """D, of sum r g; 0 where only norms are known."""
    return 0 if observed.pairs is not None or observed.grad is None else len(observed.grad)


def common_width(lengths: Sequence[int]) -> int:
    """Numbers of sum r g that travel: D if it is the same on all processes and not too large, else none.

    >>> common_width([10, 10]), common_width([10, 12]), common_width([10**6] * 2)
    (10, 0, 0)
    """
    return lengths[0] if len(set(lengths)) == 1 and lengths[0] <= WIDEST else 0


def own_sums(observed: Observation, arrays: Any) -> Any:
    """The three moments; the sum of r r'<g, g'> over pairs of different samples, and how many there are."""
    assert observed.r is not None
    assert observed.grad is not None
    n, grad = len(observed.index), arrays.double(observed.grad)
    moments, pairs, num = arrays.moments(observed.r, observed.norms), observed.pairs, observed.num_pairs
    if pairs is None:
        pairs, num = (grad @ grad - moments[0])[None], float(n * (n - 1))
    return arrays.concatenate((moments, pairs, arrays.one(num)))

"""Many processes that train one model: what they tell each other. All collectives of the library are in this file."""

from __future__ import annotations

import time
import warnings
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch import Tensor

from .draws.uniforms import mix
from .errors import EmaisError, positive_float
from .observing.gathered import Parcels
from .observing.observation import Observation
from .statistics.arrays import Arrays

if TYPE_CHECKING:
    from .engine import Engine

GRACE = 5.0  # seconds in which the others say where they are, after an exchange has failed
NO_GROUP = (
    "this process is one of {}, and the engine was made without process_group=, so every process would draw the same "
    "minibatches: pass process_group=dist.group.WORLD, or the data-parallel group of a mesh, mesh.get_group('dp'), and "
    "as batch_size the samples of one process. Call dist.init_process_group first"
)
STALE = (
    "the loader draws {} minibatches ahead, which is {:.0%} of an epoch: statistics are that much behind at a draw. "
    "Lower num_workers or prefetch_factor (the largest of all processes counts)"
)


def replicas(engine: Engine, group: Any, sharded: bool, timeout: float) -> Replicas | None:
    """The processes of a group, as an engine needs them; None: one process alone."""
    if sharded is not False:
        raise EmaisError(f"sharded must be False, got {sharded!r}: every process keeps the statistics of all samples")
    timeout = positive_float("timeout", timeout)
    if group is None:
        refuse_forgotten_group()
        return None
    size = group_size(group)
    if engine.alone:
        raise EmaisError(f"{engine.name} takes no process_group yet, because {engine.alone}: choose another method")
    if engine.device.type != "cpu" or engine.arrays.resident:
        raise EmaisError(
            f"an engine on {engine.device} takes no process_group yet: make it without device= and resident=, the "
            "model may be on any device"
        )
    return Replicas(group, size, engine.batch_size, timeout, engine.arrays)


def refuse_forgotten_group() -> None:
    """Raise EmaisError if this is one of several processes, and nobody said so to the engine."""
    if dist.is_available() and dist.is_initialized() and (size := dist.get_world_size()) > 1:
        raise EmaisError(NO_GROUP.format(size))


def agree_on_lag(engine: Engine, ahead: int) -> None:
    """A loader was made that draws so many minibatches before it needs them: all processes take the largest number."""
    if engine.replicas is None:
        refuse_forgotten_group()
    else:
        engine.replicas.agree(engine, ahead)


def group_size(group: Any) -> int:
    """Processes of a group, of which this one must be; 1 without a group.

    >>> group_size(None)
    1
    """
    if group is None:
        return 1
    if not isinstance(group, dist.ProcessGroup):
        hint = ": pass mesh.get_group('dp')" if hasattr(group, "get_group") else ", as dist.group.WORLD"
        raise EmaisError(f"process_group must be a group of torch.distributed, got a {type(group).__name__}{hint}")
    if dist.get_rank(group) < 0:
        raise EmaisError("this process does not belong to the process_group that it was given: pass its own group")
    return dist.get_world_size(group)


@dataclass(eq=False)
class _Flight:
    """An exchange that is under way: what this process sent, and where the parcels of all arrive."""

    step: int
    own: Tensor
    all: list[Tensor]
    work: Any = None


class Replicas:
    """Processes that each train their lanes of one minibatch, and all keep the statistics of all samples.

    Each sends what it has observed of its own samples. All learn from the parcels of all, in the order of ranks, so
    their statistics stay equal, whatever each of them drew. The draw of step t knows the observations of steps up to
    t - 1 - lag on every process, however many minibatches its own workers fetch ahead.
    """

    def __init__(self, group: dist.ProcessGroup, size: int, batch_size: int, timeout: float, arrays: Arrays) -> None:
        self._arrays = arrays
        self.size, self.rank, self.timeout, self.lag = size, dist.get_rank(group), timeout, 0
        self.lanes = slice(self.rank * batch_size, (self.rank + 1) * batch_size)
        self.pending: deque[_Flight] = deque()
        self._ranks = dist.get_process_group_ranks(group)
        self._exchange: Any = None  # a group for the exchange of each step
        self._talk: Any = None  # and one for everything else: an exchange that has failed closes its own
        self._parcels: Parcels | None = None
        self._broken: EmaisError | None = None

    # ---- agreeing: rare, and everybody waits

    def connect(self, engine: Engine) -> None:
        """Make groups of our own, and compare the settings of all processes: an error on all if they differ."""
        if self.size > 1:
            limit = timedelta(seconds=self.timeout)
            new = partial(dist.new_group, self._ranks, limit, "gloo", use_local_synchronization=True)
            with_others = "another process has not made its engine"
            self._exchange, self._talk = self._blocking(new, with_others), self._blocking(new, with_others)
        found = self._ask_all(_settings(engine), "another process has not made its engine")
        for name in found[0]:
            values = [given.get(name) for given in found]
            if any(repr(value) != repr(values[0]) for value in values):
                told = ", ".join(f"rank {rank} has {value!r}" for rank, value in enumerate(values))
                raise EmaisError(f"the processes disagree about {name}: {told}. Make their engines alike")

    def agree(self, engine: Engine, ahead: int) -> None:
        """Take the lag from the loader that draws the most minibatches ahead; all processes make theirs together."""
        told = self._ask_all((ahead, int(engine.source.step)), "another process has not made its loader")
        self.hold(engine, max(step for _, step in told))  # under a shorter lag these would know more
        self.lag = max(ahead for ahead, _ in told)
        share = self.lag * engine.global_batch_size / engine.num_samples
        if share > 0.1:
            warnings.warn(STALE.format(self.lag, share), stacklevel=4)

    def hold(self, engine: Engine, step: int) -> None:
        """Make the draws up to a step now, before the statistics learn what those must not know."""
        while int(engine.source.step) < step:
            engine.passes.hold(engine.make_draw(*engine.source.take()))

    def own_seed(self, seed: int) -> int:
        """A seed for what each process does on its own, as augmentation in workers."""
        return seed if self.rank == 0 else mix(seed, self.rank, 2) >> 1

    def _ask_all(self, value: Any, otherwise: str) -> list[Any]:
        """The value that each process gives."""
        found = [value] * self.size
        if self.size > 1:
            self._blocking(lambda: dist.all_gather_object(found, value, group=self._talk), otherwise)
        return found

    def _blocking(self, call: Any, otherwise: str) -> Any:
        try:
            return call()
        except RuntimeError as error:
            raise EmaisError(
                f"rank {self.rank} waited for the others in vain, up to timeout={self.timeout:g} seconds: {otherwise}, "
                f"or has ended ({_first_line(error)})"
            ) from error

    # ---- the exchange of a step: it starts when a minibatch is observed, and whoever needs the outcome waits

    def send(self, observed: Observation) -> None:
        """Start the exchange of what this process has observed of its samples."""
        if self._broken is not None:
            raise self._broken
        if self._parcels is None:
            lengths = self._ask_all(Parcels.length(observed), "another process has not observed its first minibatch")
            self._parcels = Parcels(lengths, self._arrays)
        own = self._parcels.pack(observed)
        flight = _Flight(int(observed.step), own, [own] if self.size == 1 else [own.clone() for _ in self._ranks])
        if self.size > 1:
            try:
                flight.work = dist.all_gather(flight.all, own, group=self._exchange, async_op=True)
            except RuntimeError as error:
                self._fail(flight.step, error)
        self.pending.append(flight)

    def arrive(self) -> Iterator[Observation]:
        """The minibatches that were sent, each with the samples of all processes; waits for them."""
        while self.pending:
            assert self._parcels is not None
            flight = self.pending[0]
            self._wait(flight)
            parcels = [self._parcels.unpack(row) for row in flight.all]
            self._check_steps([parcel.step for parcel in parcels])
            self.pending.popleft()
            yield self._parcels.together(parcels)

    def _wait(self, flight: _Flight) -> None:
        if self._broken is not None:
            raise self._broken
        if flight.work is not None:
            try:
                flight.work.wait()
            except RuntimeError as error:
                self._fail(flight.step, error)

    def _check_steps(self, steps: list[int]) -> None:
        if len(set(steps)) > 1:
            told = ", ".join(f"rank {rank} observed step {step}" for rank, step in enumerate(steps))
            self._broken = EmaisError(
                f"the processes are at different steps: {told}. Each must observe every minibatch that it takes from "
                "the loader, and all must load the same state"
            )
            raise self._broken

    def _fail(self, step: int, error: RuntimeError) -> None:
        """Say who is missing."""
        self._broken = EmaisError(
            f"rank {self.rank} observed step {step} and waited for the others in vain: {self._missing(step)}. The "
            f"limit is timeout={self.timeout:g} seconds ({_first_line(error)})"
        )
        raise self._broken from error

    def _missing(self, step: int) -> str:
        """What the others are doing: each that is waiting, too, says so."""
        mine, deadline = torch.tensor([step], device="cpu"), time.monotonic() + GRACE
        ended: list[int] = []
        silent: list[int] = []
        works: dict[int, Any] = {}
        for rank in set(range(self.size)) - {self.rank}:
            theirs, peer = torch.zeros(1, dtype=torch.int64, device="cpu"), self._ranks[rank]
            try:
                works[rank] = (
                    dist.isend(mine, peer, group=self._talk),
                    dist.irecv(theirs, peer, group=self._talk),
                    theirs,
                )
            except RuntimeError:
                ended.append(rank)
        for rank, (_, work, _) in works.items():
            try:
                work.wait(timedelta(seconds=max(0.05, deadline - time.monotonic())))
            except RuntimeError as error:
                (silent if "timed out" in str(error).lower() else ended).append(rank)
        found = _told(ended, "has ended") or _told(silent, "sent nothing, and may have left its loop")
        return found or "the connection broke"


def _settings(engine: Engine) -> dict[str, Any]:
    """What all processes must have alike."""
    from . import __version__  # here: the package imports this module

    first = {"version": __version__, "method": engine.name, "num_steps": engine.num_steps}
    return first | engine.saved_settings() | {"batch_size": engine.batch_size}


def _told(ranks: list[int], what: str) -> str:
    return ", ".join(f"rank {rank} {what}" for rank in sorted(ranks))


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:200]

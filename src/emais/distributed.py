"""What several processes tell each other. All collectives of the library are in this file."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Any
from zlib import crc32

import torch
import torch.distributed as dist
from torch import Tensor

from .errors import EmaisError

STEPS, TERMS = 2**48, 2**15  # what the first 8 bytes of an exchange can tell apart
GRACE = 5.0  # seconds in which the others say where they are, after an exchange has failed
NO_GROUP = (
    "this process is one of {}, and the {} was made without process_group=, so every process would draw the same "
    "minibatches: pass process_group=dist.group.WORLD, or the data-parallel group of a mesh, mesh.get_group('dp'), and "
    "as batch_size the samples of one process. Call dist.init_process_group first"
)


def refuse_forgotten_group(what: str = "engine") -> None:
    """Raise EmaisError if this is one of several processes, and nobody said so to the engine, or to another `what`."""
    if dist.is_available() and dist.is_initialized() and (size := dist.get_world_size()) > 1:
        raise EmaisError(NO_GROUP.format(size, what))


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
class Flight:
    """An exchange that is under way: what this process sent, and where the bytes of all arrive, a row each."""

    step: int
    own: Tensor
    rows: Tensor
    views: Sequence[Tensor] = ()  # the rows one by one, as the collective takes them
    terms: str = ""
    work: Any = None


class Connection:
    """Two groups of our own between the processes of a group, on the CPU: also where gradients travel by NCCL.

    One is for the exchange of each step, the other for everything else: an exchange that has failed closes its group,
    and the processes still have to tell each other who is missing. what: whose connection it is, for messages.
    """

    def __init__(self, group: dist.ProcessGroup, timeout: float, what: str = "engine") -> None:
        self._what, self.group = what, group
        self.size, self.rank, self.timeout = dist.get_world_size(group), dist.get_rank(group), timeout
        self._ranks = dist.get_process_group_ranks(group)
        self._exchange: Any = None
        self._talk: Any = None
        self._broken: EmaisError | None = None
        # a thread of gloo that outlives Python's objects for these tensors would need its lock to free them, and would
        # end the process if Python is shutting down by then
        self._latest: deque[Flight] = deque(maxlen=4)
        if self.size > 1:
            limit = timedelta(seconds=timeout)
            # among all processes torch names groups by a count that all share; among some, by one that differs where
            # they belong to different numbers of groups
            apart = self.size < dist.get_world_size()
            new = partial(dist.new_group, self._ranks, limit, "gloo", use_local_synchronization=apart)
            others = f"another process has not made its {what}"
            self._exchange, self._talk = self._blocking(new, others), self._blocking(new, others)

    # ---- agreeing: rare, and everybody waits

    def ask_all(self, value: Any, otherwise: str) -> list[Any]:
        """The value that each process gives; otherwise: what to say of one that gives none."""
        found = [value] * self.size
        if self.size > 1:
            self._blocking(lambda: dist.all_gather_object(found, value, group=self._talk), otherwise)
        return found

    def check_alike(self, value: dict[str, Any], otherwise: str) -> None:
        """An error on all processes if they disagree about one of these settings."""
        found = self.ask_all(value, otherwise)
        for name in found[0]:
            values = [given.get(name) for given in found]
            if any(repr(value) != repr(values[0]) for value in values):
                told = ", ".join(f"rank {rank} has {value!r}" for rank, value in enumerate(values))
                raise EmaisError(f"the processes disagree about {name}: {told}. Make their {self._what}s alike")

    def _blocking(self, call: Callable[[], Any], otherwise: str) -> Any:
        try:
            return call()
        except RuntimeError as error:
            raise EmaisError(
                f"rank {self.rank} waited for the others in vain, up to timeout={self.timeout:g} seconds: {otherwise}, "
                f"or has ended ({_first_line(error)})"
            ) from error

    # ---- the exchange of a step: whoever needs the outcome waits

    def start(self, step: int, own: Tensor, terms: str = "") -> Flight:
        """Begin to send bytes to everybody, as many as all others send; the first 8 are kept for the step.

        terms: what all processes must have alike while they train, in words.
        """
        if self._broken is not None:
            raise self._broken
        own[:8].view(torch.int64)[0] = step % STEPS + STEPS * (crc32(terms.encode()) % TERMS)
        rows = own[None] if self.size == 1 else torch.empty(self.size, len(own), dtype=own.dtype, device="cpu")
        flight = Flight(step, own, rows, rows.unbind(), terms)
        if self.size > 1:
            self._latest.append(flight)
            try:
                flight.work = dist.all_gather(list(flight.views), own, group=self._exchange, async_op=True)
            except RuntimeError as error:
                self._fail(step, error)
        return flight

    def wait(self, flight: Flight) -> Tensor:
        """What all have sent, (processes, bytes), in the order of ranks."""
        if self._broken is not None:
            raise self._broken
        if flight.work is not None:
            try:
                flight.work.wait()
            except RuntimeError as error:
                self._fail(flight.step, error)
        told = [divmod(first, STEPS) for first in flight.rows[:, :8].reshape(-1).view(torch.int64).tolist()]
        self._check_steps([step for _, step in told])
        self._check_terms([terms for terms, _ in told], flight.terms)
        return flight.rows

    def _check_steps(self, steps: list[int]) -> None:
        if len(set(steps)) > 1:
            told = ", ".join(f"rank {rank} observed step {step}" for rank, step in enumerate(steps))
            self._broken = EmaisError(
                f"the processes are at different steps: {told}. Each must observe every minibatch that it takes from "
                "the loader, and all must load the same state"
            )
            raise self._broken

    def _check_terms(self, terms: list[int], mine: str) -> None:
        others = [str(rank) for rank, code in enumerate(terms) if code != terms[self.rank]]
        if others:
            self._broken = EmaisError(
                f"the processes have attached their optimizers differently: rank {self.rank} has {mine}, and not so "
                f"rank {', '.join(others)}. Call imp.attach alike on all processes"
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


def _told(ranks: list[int], what: str) -> str:
    return ", ".join(f"rank {rank} {what}" for rank in sorted(ranks))


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:200]


class Peers(Connection):
    """Processes that each get their lanes of one minibatch, and all keep the weights of all samples: a sampler's.

    No draw needs the others. A change of weights does, and everybody waits for it.
    """

    def __init__(self, group: Any, batch_size: int, timeout: float) -> None:
        group_size(group)  # or say what is wrong with it
        super().__init__(group, timeout, "sampler")
        self.lanes = slice(self.rank * batch_size, (self.rank + 1) * batch_size)

    def gather(self, own: Any, step: int) -> list[Any]:
        """What each process tells, in the order of ranks; waits for all. step: where this one is."""
        if self._broken is not None:
            raise self._broken
        found = [own] * self.size
        if self.size > 1:
            try:
                dist.all_gather_object(found, own, group=self._exchange)
            except RuntimeError as error:
                self._broken = EmaisError(
                    f"rank {self.rank} called update() at step {step} and waited for the others in vain: "
                    f"{self._missing(step)}. The limit is timeout={self.timeout:g} seconds ({_first_line(error)})"
                )
                raise self._broken from error
        return found

"""What several processes tell each other. All collectives of the library are in this file."""

from __future__ import annotations

import logging
import re
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from .errors import EmaisError
from .groups import HeldGroup
from .groups import group_size as group_size
from .groups import refuse_forgotten_group as refuse_forgotten_group
from .roll_call import call_roll
from .terms import TERM_BYTES, Terms, difference
from .watching import start_watching

GRACE = 5.0  # seconds in which the others say where they are, after an exchange has failed
AT_MOST = 600.0  # seconds to wait where engines, loaders and first minibatches meet
KEPT = 4  # exchanges whose tensors stay
ENDED, SILENT = "has ended or given up", "sent nothing, and may have left its loop"


def not_made(what: str) -> str:
    """Why a process waits where all make their engine, or another `what`."""
    return f"another process has not made its {what}"


def shared_error(message: str) -> EmaisError:
    """An error that the other processes have, too, or cannot be told of."""
    error = EmaisError(message)
    error.shared = True
    return error


@dataclass(eq=False)
class Flight:
    """An exchange that is under way: what this process sent, and where the bytes of all arrive, a row each."""

    terms: Terms
    own: Tensor
    rows: Tensor
    views: Sequence[Tensor] = ()  # the rows one by one, as the collective takes them
    work: Any = None
    began: float = field(default_factory=time.monotonic)

    @property
    def step(self) -> int:
        """What it tells of."""
        return self.terms.step

    def over(self) -> bool:
        """Whether it has arrived or failed."""
        return self.work is None or bool(self.work.is_completed())


class Connection:
    """Two groups of our own between the processes of a group, on the CPU: also where gradients travel by NCCL.

    One is for the exchange of each step, the other for everything else: an exchange that has failed closes its group,
    and the processes still have to tell each other who is missing. what: whose connection it is, for messages.
    """

    def __init__(self, group: dist.ProcessGroup, timeout: float, what: str = "engine") -> None:
        self._what, self.group = what, HeldGroup(group, what)
        self.size, self.rank, self.timeout = dist.get_world_size(group), dist.get_rank(group), timeout
        self._ranks = dist.get_process_group_ranks(group)
        self._broken: EmaisError | None = None
        self._telling = threading.Lock()  # of whoever finds out who is missing
        # a thread of gloo that outlives Python's objects for these tensors would need its lock to free them, and would
        # end the process if Python is shutting down by then
        self._flights: deque[Flight] = deque()
        if self.size > 1:
            self._talk, self._exchange = self._new_group(min(timeout, AT_MOST)), self._new_group(timeout)
            start_watching(self)

    def _new_group(self, seconds: float) -> HeldGroup:
        # among all processes torch names groups by a count that all share; among some, by how many groups a process
        # has. So none is ever destroyed here: torch would give the name of a group that exists to the user's next one
        apart, others = self.size < dist.get_world_size(), not_made(self._what)
        if apart:
            others += ", or members of this group belong to different numbers of groups: make the same on all"
        limit = timedelta(seconds=seconds)
        group = self._blocking(
            lambda: dist.new_group(self._ranks, limit, "gloo", use_local_synchronization=apart), others, seconds
        )
        return HeldGroup(group, self._what)

    # ---- agreeing: rare, and everybody waits

    def ask_all(self, value: Any, otherwise: str) -> list[Any]:
        """The value that each process gives; otherwise: what to say of one that gives none."""
        return self._ask(value, None, otherwise)

    def refuse(self, error: Exception, what: str = "") -> None:
        """Tell the others, who wait until all have made theirs, why this process has none; what: if no connection."""
        with suppress(EmaisError):  # this process has an error of its own
            told = f"{type(error).__name__}: {error}"
            self._ask(None, (what or self._what, told), not_made(what or self._what))

    def _ask(self, value: Any, reason: tuple[str, str] | None, otherwise: str) -> list[Any]:
        found = [(value, reason, otherwise)] * self.size
        if self.size > 1:
            own, talk = found[0], self._talk()
            self._blocking(lambda: dist.all_gather_object(found, own, group=talk), otherwise, other=self._exchange)
        refused = [(rank, *reason) for rank, (_, reason, _) in enumerate(found) if reason is not None]
        if refused:
            reasons = "; ".join(f"rank {rank}: {reason}" for rank, _, reason in refused)
            raise shared_error(f"the {refused[0][1]} was refused on {reasons}")
        if any(place != otherwise for _, _, place in found):
            told = ", ".join(f"rank {rank} waits because {place}" for rank, (_, _, place) in enumerate(found))
            raise shared_error(f"the processes do different things: {told}. Do the same on all, in the same order")
        return [value for value, _, _ in found]

    def check_alike(self, value: dict[str, Any], otherwise: str) -> None:
        """An error on all processes if they disagree about one of these settings."""
        self.compare(self.ask_all(value, otherwise))

    def compare(self, found: Sequence[dict[str, Any]]) -> None:
        """The same of settings that all processes have told each other."""
        for name in found[0]:
            values = [given.get(name) for given in found]
            if any(repr(value) != repr(values[0]) for value in values):
                told = ", ".join(f"rank {rank} has {value!r}" for rank, value in enumerate(values))
                raise shared_error(f"the processes disagree about {name}: {told}. Make their {self._what}s alike")

    def _blocking(
        self, call: Callable[[], Any], otherwise: str, seconds: float | None = None, other: HeldGroup | None = None
    ) -> Any:
        """What a call gives that all make; other: a group that is well if it fails, to find out who is missing."""
        try:
            return call()
        except RuntimeError as error:
            missing = self._absent(error, other)
            who = f"{_told(missing, 'is missing')}: " if missing else ""
            raise shared_error(
                f"rank {self.rank} waited for the others in vain, up to {seconds or min(self.timeout, AT_MOST):g} "
                f"seconds: {who}{otherwise}, or has ended ({_first_line(error)})"
            ) from error

    def _absent(self, error: RuntimeError, other: HeldGroup | None) -> list[int]:
        """Who did not make a call; nobody if that cannot be told."""
        # a store of torch over TCP names the first key that it has waited for, and a key ends with the rank
        if key := re.search(r"keys: \S*/(\d+)$", _first_line(error)):
            return [int(key[1])]
        if self.size == 2:
            return [1 - self.rank]
        if other is None:
            return []
        ended, silent = self._not_there(self._roll_call(other))
        return ended or silent

    # ---- the exchange of a step: whoever needs the outcome waits

    def start(self, terms: Terms, own: Tensor) -> Flight:
        """Begin to send bytes to everybody, as many as all others send; the first 16 are kept for the terms."""
        if self._broken is not None:
            raise self._broken
        own.numpy()[:TERM_BYTES].view("i8")[:] = terms.packed()  # numpy: its calls cost less
        rows = own[None] if self.size == 1 else torch.empty(self.size, len(own), dtype=own.dtype, device="cpu")
        flight = Flight(terms, own, rows, rows.unbind())
        if self.size > 1:
            while len(self._flights) >= KEPT and self._flights[0].over():
                self._flights.popleft()
            self._flights.append(flight)
            try:
                flight.work = self._exchange().allgather([list(flight.views)], [own])
            except RuntimeError as error:
                self._fail(flight, error)
        return flight

    def wait(self, flight: Flight) -> Tensor:
        """What all have sent, (processes, bytes), in the order of ranks."""
        if self._broken is not None:
            raise self._broken
        if flight.work is not None:
            try:
                flight.work.wait()
            except RuntimeError as error:
                self._fail(flight, error)
        told = flight.rows.numpy()[:, :TERM_BYTES].view("i8").tolist()
        if (unlike := difference(flight.terms, self.rank, told)) is not None:
            self._broken = EmaisError(unlike)
            raise self._broken
        return flight.rows

    # ---- an exchange that has failed

    def look(self) -> bool:
        """Whether all exchanges are well, also those that nobody waits for at present; logs it if one is not."""
        for flight in list(self._flights):
            if flight.work is not None and flight.over():
                try:
                    flight.work.wait()
                except RuntimeError as error:
                    self._explain(flight.step, flight.began, "observed", error, aloud=True)
        return self._broken is None

    def _fail(self, flight: Flight, error: RuntimeError) -> None:
        self._explain(flight.step, flight.began, "observed", error)
        assert self._broken is not None
        raise self._broken from error

    def _explain(self, step: int, began: float, did: str, error: RuntimeError, aloud: bool = False) -> None:
        """Find out who is missing, once; waits for another thread that is about to."""
        with self._telling:
            if self._broken is not None:
                return
            self._broken = EmaisError(
                f"rank {self.rank} {did} step {step} and waited for the others in vain: {self._missing(step, began)}. "
                f"The limit is timeout={self.timeout:g} seconds ({_first_line(error)})"
            )
            if aloud:
                logging.getLogger("emais").error("%s", self._broken)

    def _missing(self, step: int, began: float) -> str:
        """What the others are doing: each that is waiting, too, says since when."""
        waited = time.monotonic() - began
        said = self._roll_call(self._talk, step, waited)
        ended, silent = self._not_there(said)
        ages = {self.rank: waited} | {rank: age for rank, age in said.items() if age is not None}
        late = [rank for rank, age in ages.items() if age < max(ages.values()) - self.timeout / 2]
        if len(ended) > 1:
            return f"{_told(ended, ENDED)}; whoever of them gave up first says why"
        return (  # beside one that has ended, others may be silent because they cannot know yet
            _told(ended, ENDED)
            or _told(silent, SILENT)
            or _told(late, f"came more than {self.timeout / 2:g} seconds after the first")
            or "the connection broke"
        )

    def _not_there(self, said: dict[int, float | None]) -> tuple[list[int], list[int]]:
        """Those whose connection is closed, and those that said nothing."""
        return [rank for rank, age in said.items() if age is None], sorted({*range(self.size)} - {self.rank, *said})

    def _roll_call(self, group: HeldGroup, step: int = 0, waited: float = 0.0) -> dict[int, float | None]:
        mine, others = torch.tensor([step, int(1000 * waited)], device="cpu"), {*range(self.size)} - {self.rank}
        # a wait that ends at its limit would count as a closed connection
        return call_roll(group, {rank: self._ranks[rank] for rank in others}, mine, min(GRACE, 0.8 * self.timeout))


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
        found, began = [own] * self.size, time.monotonic()
        if self.size > 1:
            try:
                dist.all_gather_object(found, own, group=self._exchange())
            except RuntimeError as error:
                self._explain(step, began, "called update() at", error)
                assert self._broken is not None
                raise self._broken from error
        return found

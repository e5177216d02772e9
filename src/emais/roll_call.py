"""A roll call: each process that has waited in vain asks the others, and hears from those that are there."""

from __future__ import annotations

import atexit
import threading
from collections.abc import Mapping
from contextlib import suppress
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from .errors import EmaisError
from .groups import HeldGroup

# messages under way: a thread of gloo that outlives Python's objects for their tensors would end Python at its exit
_called: list[Any] = []
_listening: list[tuple[threading.Thread, Any]] = []  # each waits for one message


def call_roll(group: HeldGroup, peers: Mapping[int, int], mine: Tensor, seconds: float) -> dict[int, float | None]:
    """For how many seconds the others have waited, as far as they say so soon; None where the connection is closed.

    group: one that has not failed; peers: the others, by their rank in it, with their rank among all processes; mine:
    a step and milliseconds (2,), which the others hear.
    """
    said: dict[int, float | None] = {}
    threads: dict[int, threading.Thread] = {}
    all_said = threading.Event()

    def listen(rank: int, work: Any, theirs: Tensor) -> None:
        try:
            work.wait()
            said[rank] = int(theirs[1]) / 1000
        except RuntimeError:
            said[rank] = None
        if len(said) == len(peers):
            all_said.set()

    for rank, everywhere in peers.items():
        theirs = torch.zeros(2, dtype=torch.int64, device="cpu")
        try:
            work = _call(group, everywhere, mine, theirs)
        except (RuntimeError, EmaisError):
            said[rank] = None
            continue
        # a thread each: to stop waiting for one of them would close the connections to all
        threads[rank] = threading.Thread(target=listen, args=(rank, work, theirs), daemon=True)
        _listening.append((threads[rank], work))
        threads[rank].start()
    if len(said) < len(peers):
        all_said.wait(seconds)
    found = said.copy()
    for rank in found.keys() & threads.keys():
        threads[rank].join()  # at once: it has answered
    return found


def _call(group: HeldGroup, rank: int, mine: Tensor, theirs: Tensor) -> Any:
    """Send `mine`, and begin to receive `theirs`. Both are kept as soon as they are under way."""
    _called.append((mine, theirs))
    _called.append(dist.isend(mine, rank, group=group()))
    work = dist.irecv(theirs, rank, group=group())
    _called.append(work)
    return work


@atexit.register
def hang_up() -> None:
    """Stop listening to those that have not answered, before Python shuts down.

    A thread that came back from torch after that would abort the process.
    """
    while _listening:
        thread, work = _listening.pop()
        if thread.is_alive():
            with suppress(RuntimeError):
                work.wait(timedelta(milliseconds=1))  # its end closes the connections, so all other waits end, too
            thread.join(1.0)

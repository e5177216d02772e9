"""Notices that an exchange between processes has failed, while this process is busy elsewhere.

A backward pass of DistributedDataParallel waits for all processes, and Python cannot interrupt it. If one is missing,
the exchange of the step fails at the same time, and says which one: it logs that.
"""

from __future__ import annotations

import atexit
import threading
import weakref
from collections.abc import Callable
from functools import partial
from typing import Protocol

LOOK = 0.2  # seconds between two looks


class Watched(Protocol):
    """What has exchanges under way."""

    def look(self) -> bool:
        """Whether all is well; logs it if not."""


def start_watching(connection: Watched) -> None:
    """Look after the exchanges of a connection for as long as it is there."""
    known, stop = weakref.ref(connection), threading.Event()
    thread = threading.Thread(target=_keep_looking, args=(known, stop), name="emais watch", daemon=True)
    last_look = partial(_last_look, known, stop, thread)
    atexit.register(last_look)
    thread.start()
    weakref.finalize(connection, atexit.unregister, last_look).atexit = False


def _look(known: Callable[[], Watched | None]) -> bool:
    """Whether there will be something to look at again."""
    connection = known()
    return connection is not None and connection.look()


def _keep_looking(known: Callable[[], Watched | None], stop: threading.Event) -> None:
    while not stop.wait(LOOK) and _look(known):
        pass


def _last_look(known: Callable[[], Watched | None], stop: threading.Event, thread: threading.Thread) -> None:
    """Look once more: a backward pass that fails may end the process before the next look.

    A thread that came back from torch while Python shuts down would abort the process: it is stopped first.
    """
    stop.set()
    thread.join()
    _look(known)

"""How an observation gets from the training step to the statistics without making the step wait."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from functools import partial
from queue import SimpleQueue
from typing import Any, Protocol

import torch
from torch import Tensor

from ..functional.precision import full_precision
from ..loading.draw import DrawRecord
from ..statistics.arrays import Arrays
from .observation import Observation, from_norms

_SHIP_WHOLE = 1 << 16  # gradients of up to this many numbers are sent as they are and summed up on arrival
_HEAD_START = 0.5e-3  # seconds: enough for the main thread to reach backward()


Handler = Callable[[Observation], None]
Settled = AbstractContextManager[object]  # inside, all that was observed is in, and nothing else comes in


class Exchange(Protocol):
    """Processes that tell each other what they have observed."""

    shared: bool  # whether all of them learn from the observations of all

    def send(self, observed: Observation) -> None:
        """Tell the others, without waiting."""

    def arrive(self, step: float) -> Iterator[Observation]:
        """What was sent up to a step, in order, each with what the others have told; waits for them."""


class _Helper:
    """One thread that does jobs in order; plain queues, because posting one must cost the main thread little."""

    def __init__(self) -> None:
        self._jobs: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._outcomes: SimpleQueue[BaseException | None] = SimpleQueue()
        self.pending = 0
        self._thread = threading.Thread(target=self._work, name="emais", daemon=True)
        self._thread.start()

    def _work(self) -> None:
        while True:
            job = self._jobs.get()
            try:
                job()
                self._outcomes.put(None)
            except BaseException as error:
                self._outcomes.put(error)

    def post(self, job: Callable[[], None]) -> None:
        """Have a job done."""
        self.pending += 1
        self._jobs.put(job)

    @property
    def ident(self) -> int | None:
        """Of the thread."""
        return self._thread.ident

    def wait(self) -> None:
        """Until all jobs are done; raises what the first failed one raised."""
        while self.pending:
            self.pending -= 1
            if (error := self._outcomes.get()) is not None:
                raise error


class Handover:
    """Brings an `Observation` to `report` and `learn`, by the way that costs the training step least.

    Training on a GPU, statistics on the CPU: the gradients travel in pinned memory behind an event, so nothing waits
    for the whole device, and a helper thread runs both and prepares the next draw. It lets the main thread
    get into backward() first, where that does not hold Python's lock. Both on one GPU: the same on a side stream,
    beside the backward pass (`overlap`; else in line). Both on the CPU: when asked for, which is after the backward
    pass; a pause between forward and backward would send torch's threads to sleep.

    Whoever needs the outcome enters it as a context: inside, all that was posted has been handled, and no other thread
    posts or draws. So the result never depends on timing, and every public call of an engine is whole, whichever thread
    makes it.

    exchange: where several processes train together, an observation goes to the others first, at once, and is reported
    with theirs when it is asked for. So is learning, unless each process has samples of its own to learn from.
    """

    def __init__(
        self,
        arrays: Arrays,
        report: Handler,
        learn: Handler,
        prepare: Callable[[], None],
        exchange: Exchange | None = None,
    ) -> None:
        self._arrays, self._report, self._learn, self._prepare = arrays, report, learn, prepare
        self._exchange, self._learns_alone = exchange, exchange is None or not exchange.shared
        self._own: list[Observation] = []  # sent to the others, and to be learned from here
        self.overlap = False
        self._side: torch.cuda.Stream | None = None
        self._held: list[Any] = []  # tensors that the side stream reads must live until it is joined
        self._helper: _Helper | None = None
        self._hurry = threading.Event()
        self._buffers: list[Tensor] = []
        self._waiting: list[Callable[[], None]] = []  # to be received when asked for
        self.lock = threading.RLock()  # of whoever posts or asks
        self._handling: int | None = None  # the helper thread, which must not wait

    def post(self, step: int | Tensor, record: DrawRecord, grads: Tensor, signal: Tensor | None = None) -> None:
        """Send one minibatch: grads (N, D), or norms as `per_sample` gives them, and a method's signal (N,)."""
        if self._arrays.resident:
            handle = self._handle_aside if self.overlap else self._receive
            with full_precision():
                handle(step, record, grads, signal)
        elif grads.is_cuda:
            with full_precision():
                self._send(step, record, grads, signal)
        else:
            # sync, on devices other than these
            signal = None if signal is None else signal.cpu().clone()  # it may be the losses, and is read later
            self._waiting.append(partial(self._receive, step, record, grads.cpu(), signal))
            if self._exchange is not None:  # at once: the others wait for it
                with full_precision():
                    self._waiting.pop()()

    def _receive(self, step: int | Tensor, record: DrawRecord, grads: Tensor, signal: Tensor | None) -> None:
        g = self._arrays.array(grads.float())
        own = None if signal is None else self._arrays.array(signal.float())
        if grads.dim() == 1:
            self._deliver(from_norms(step, record, g, own, self._arrays))
            return
        self._deliver(Observation(step, record.index, record.r, self._arrays.norms(g), record.r @ g, own))

    def _deliver(self, observed: Observation) -> None:
        if self._exchange is None:
            self._learn(observed)
            self._report(observed)
        else:
            self._exchange.send(observed)
            if self._learns_alone:
                self._own.append(observed)

    def _learn_own(self) -> None:
        while self._own:
            self._learn(self._own.pop(0))

    def _handle_aside(self, step: int | Tensor, record: DrawRecord, grads: Tensor, signal: Tensor | None) -> None:
        self._side = self._side or torch.cuda.Stream(grads.device)
        self._side.wait_stream(torch.cuda.current_stream(grads.device))
        self._held.append((step, record, grads, signal))
        with torch.cuda.stream(self._side):
            self._receive(step, record, grads, signal)
            self._prepare()

    def _send(self, step: int | Tensor, record: DrawRecord, grads: Tensor, signal: Tensor | None) -> None:
        n, whole = len(record.index), grads.dim() == 1 or grads.numel() <= _SHIP_WHOLE
        if not whole:
            g, r = grads.float(), torch.as_tensor(record.r, device=grads.device)
            grads = torch.cat((torch.linalg.vector_norm(g, dim=1), r @ g))
        host = self._copy(grads)
        aside = None if signal is None else self._copy(signal)
        arrived = torch.cuda.Event()
        arrived.record()

        def receive() -> None:
            self._hurry.wait(_HEAD_START)
            arrived.synchronize()
            if whole:
                self._receive(step, record, host, aside)
            else:
                sums, own = self._arrays.array(host), None if aside is None else self._arrays.array(aside.float())
                self._deliver(Observation(step, record.index, record.r, sums[:n], sums[n:], own))
            self._buffers.extend([host] if aside is None else [host, aside])
            if self._learns_alone:
                self._learn_own()
                self._prepare()

        if self._helper is None:
            self._helper = _Helper()
            self._handling = self._helper.ident
        self._helper.post(receive)

    def _copy(self, x: Tensor) -> Tensor:
        return self._buffer(x).copy_(x, non_blocking=True)

    def _buffer(self, like: Tensor) -> Tensor:
        """Pinned memory, used again and again: taking it from torch would contend with a loader's pinning thread."""
        for k, host in enumerate(self._buffers):
            if host.shape == like.shape and host.dtype == like.dtype:
                return self._buffers.pop(k)
        if len(self._buffers) >= 8:  # shapes that vary
            self._buffers.clear()
        return torch.empty(like.shape, dtype=like.dtype, device="cpu", pin_memory=True)

    def __enter__(self) -> None:
        if threading.get_ident() == self._handling:  # whoever waits for the helper has the lock
            return
        self.lock.acquire()
        try:
            self.settle()
        except BaseException:
            self.lock.release()
            raise

    def __exit__(self, *_: object) -> None:
        if threading.get_ident() != self._handling:
            self.lock.release()

    def settle(self, step: float = math.inf) -> None:
        """Have all that was posted handled; of what other processes observed, that up to a step. Needs the lock."""
        if self._held or self._waiting or self._helper is not None or self._exchange is not None:
            with full_precision():
                self._drain(step)

    def _drain(self, step: float) -> None:
        if self._held and self._side is not None:
            torch.cuda.current_stream(self._side.device).wait_stream(self._side)
            self._held.clear()
        if self._helper is not None and self._helper.pending:
            self._hurry.set()
            try:
                self._helper.wait()
            finally:
                self._hurry.clear()
        if self._waiting or self._own:
            while self._waiting:
                self._waiting.pop(0)()
            self._learn_own()
            self._prepare()  # at once: what it reads and runs is still in the processor's caches
        if self._exchange is not None:
            for observed in self._exchange.arrive(step):
                if not self._learns_alone:
                    self._learn(observed)
                    self._prepare()
                self._report(observed)

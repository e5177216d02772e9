"""How an observation gets from the training step to the statistics without making the step wait."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from .loading import Ticket

Handler = Callable[[int | Tensor, Ticket, Any, Any], None]
_SHIP_WHOLE = 1 << 16  # gradients of up to this many numbers are sent as they are and summed up on arrival


def summarise(r: Any, grads: Any) -> tuple[Any, Any]:
    """Gradient norms (N,) and sum r g (D,) of r (N,) and grads (N, D): all that the statistics need."""
    if isinstance(grads, Tensor):
        return torch.linalg.vector_norm(grads, dim=1), r @ grads
    return np.sqrt(np.einsum("nd,nd->n", grads, grads)), r @ grads


@dataclass
class _Letter:
    """An observation on its way to statistics on the CPU, and the helper's promise once it has begun."""

    receive: Callable[[], None]
    elsewhere: bool
    begun: Future[None] | None = None


class Mailbox:
    """Brings (step, ticket, norms, grad) to a handler, by the way that costs the training step least.

    Training on a GPU, statistics on the CPU: the gradients travel in pinned memory behind an event, so nobody waits
    for the whole device, and a helper thread runs the handler and prepares the next draw, from the moment `release`
    says that the main thread is inside backward(), where it does not hold Python's lock. Both on one GPU: the same
    on a side stream, beside the backward pass (`overlap`; else in line). Both on the CPU: when asked for, which is
    after the backward pass; a pause between forward and backward would send torch's threads to sleep.

    Whoever needs the outcome calls `drain`, so the result never depends on timing.
    """

    def __init__(self, handle: Handler, prepare: Callable[[], None]) -> None:
        self._handle, self._prepare = handle, prepare
        self.overlap = False
        self._side: torch.cuda.Stream | None = None
        self._held: Any = None  # tensors that the side stream reads must live until it is joined
        self._helper: ThreadPoolExecutor | None = None
        self._letters: list[_Letter] = []

    def post(self, step: int | Tensor, ticket: Ticket, r: Tensor, grads: Tensor) -> None:
        """Send one minibatch: r (N,) and grads (N, D) on the device that trains."""
        if isinstance(ticket.index, np.ndarray):
            self._letters.append(_Letter(self._seal(step, ticket, r, grads), not grads.is_cpu))
        elif self.overlap:
            self._handle_aside(step, ticket, r, grads)
        else:
            self._handle(step, ticket, *(x.to(ticket.index.device) for x in summarise(r, grads)))

    def _handle_aside(self, step: int | Tensor, ticket: Ticket, r: Tensor, grads: Tensor) -> None:
        self._side = self._side or torch.cuda.Stream(grads.device)
        self._side.wait_stream(torch.cuda.current_stream(grads.device))
        self._held = (step, ticket, r, grads)
        with torch.cuda.stream(self._side):
            self._handle(step, ticket, *summarise(r, grads))
            self._prepare()

    def _seal(self, step: int | Tensor, ticket: Ticket, r: Tensor, grads: Tensor) -> Callable[[], None]:
        """Start the copy to the CPU, if one is needed, and return what is to be done when it has arrived."""
        n, arrived = len(ticket.index), None
        whole = grads.is_cpu or grads.numel() <= _SHIP_WHOLE
        content = grads if whole else torch.cat(summarise(r, grads))
        if content.is_cuda:
            host = torch.empty(content.shape, dtype=content.dtype, pin_memory=True)
            content = host.copy_(content, non_blocking=True)
            arrived = torch.cuda.Event()
            arrived.record()

        @torch.no_grad()
        def receive() -> None:
            if arrived is not None:
                arrived.synchronize()
            here = content.cpu().numpy()  # sync, on devices other than these two
            self._handle(step, ticket, *(summarise(ticket.r, here) if whole else np.split(here, (n,))))

        return receive

    def release(self, _: Tensor | None = None) -> None:
        """Let the helper thread begin; autograd calls this when the backward pass begins."""
        for letter in self._letters:
            if letter.begun is None:
                self._helper = self._helper or ThreadPoolExecutor(1, thread_name_prefix="emais")
                letter.begun = self._helper.submit(self._receive_aside, letter.receive)

    def _receive_aside(self, receive: Callable[[], None]) -> None:
        receive()
        self._prepare()

    @property
    def waiting(self) -> bool:
        """Whether `release` has anything to do."""
        return any(letter.elsewhere for letter in self._letters)

    def drain(self) -> None:
        """Make sure that all posted observations have been handled before what comes next."""
        if self._held is not None and self._side is not None:
            torch.cuda.current_stream(self._side.device).wait_stream(self._side)
            self._held = None
        letters, self._letters = self._letters, []
        for letter in letters:
            letter.receive() if letter.begun is None else letter.begun.result()

"""From the device that trains to the device that keeps the statistics, without making either wait."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from .loading import Ticket

Handler = Callable[[int | Tensor, Ticket, Tensor, Tensor], None]


@dataclass
class _Letter:
    step: int | Tensor
    ticket: Ticket
    content: Tensor  # norms and summed gradient in one piece: one copy
    arrived: torch.cuda.Event


class Mailbox:
    """Hands (step, ticket, norms, grad) to a handler: at once on the same device, else when the copy has arrived.

    From a GPU to the CPU the copy goes into pinned memory behind an event that is recorded right after the forward
    pass. Whoever needs the numbers calls `drain`, which by then finds the backward pass queued behind them, so the
    GPU stays busy. The order, and so the result, does not depend on timing.
    """

    def __init__(self, handle: Handler) -> None:
        self._handle = handle
        self._letters: list[_Letter] = []

    def post(self, step: int | Tensor, ticket: Ticket, norms: Tensor, grad: Tensor) -> None:
        """Send one minibatch's observation."""
        home = ticket.index.device
        if norms.device == home:
            self._handle(step, ticket, norms, grad)
        elif norms.device.type == "cuda" and home.type == "cpu":
            content = torch.cat((norms, grad))
            host = torch.empty(content.shape, dtype=content.dtype, pin_memory=True)
            host.copy_(content, non_blocking=True)
            arrived = torch.cuda.Event()
            arrived.record()
            self._letters.append(_Letter(step, ticket, host, arrived))
        else:
            self._handle(step, ticket, norms.to(home), grad.to(home))

    def drain(self) -> None:
        """Handle all that was posted, waiting for copies on their way."""
        letters, self._letters = self._letters, []
        for letter in letters:
            letter.arrived.synchronize()
            norms, grad = letter.content.tensor_split((len(letter.ticket.index),))
            self._handle(letter.step, letter.ticket, norms, grad)

    def clear(self) -> None:
        """Forget what is on its way."""
        self._letters.clear()

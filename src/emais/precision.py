"""Statistics in full precision, whatever the training loop does."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import torch

_KINDS = ("cpu", "cuda", "xpu", "mps")


@contextmanager
def full_precision() -> Iterator[None]:
    """Autocast off, where it is on: it would make products such as sum r g in half precision.

    >>> with torch.autocast("cpu", torch.bfloat16), full_precision():
    ...     (torch.ones(2) @ torch.ones(2, 3)).dtype
    torch.float32
    """
    active = [kind for kind in _KINDS if torch.is_autocast_enabled(kind)]
    if not active:
        yield
        return
    with ExitStack() as stack:
        for kind in active:
            stack.enter_context(torch.autocast(kind, enabled=False))
        yield

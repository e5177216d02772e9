"""Statistics in full precision, whatever the training loop does."""

from __future__ import annotations

from contextlib import AbstractContextManager, ExitStack, nullcontext

import torch

_KINDS = ("cpu", "cuda", "xpu", "mps")
_NOTHING = nullcontext()


def full_precision() -> AbstractContextManager[object]:
    """Autocast off, where it is on: it would make products such as sum r g in half precision.

    >>> with torch.autocast("cpu", torch.bfloat16), full_precision():
    ...     (torch.ones(2) @ torch.ones(2, 3)).dtype
    torch.float32
    """
    stack: ExitStack | None = None
    for kind in _KINDS:
        if torch.is_autocast_enabled(kind):
            stack = stack or ExitStack()
            stack.enter_context(torch.autocast(kind, enabled=False))
    return stack or _NOTHING

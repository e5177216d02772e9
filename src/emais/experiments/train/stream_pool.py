"""Streams for small kernels of many runs: one run's wait for nobody else's, also inside a CUDA graph."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

import torch

Given = TypeVar("Given")
Made = TypeVar("Made")
STREAMS = 16


class StreamPool:
    """`map(function, items)` is a list of function(item); on a GPU the items take turns on some streams.

    All streams start after what the present stream holds, and it goes on after all of them, so tensors may be handed
    from one to the other. On a CPU there are no streams, and nothing changes.

    >>> StreamPool("cpu").map(abs, [-1, 2])
    [1, 2]
    """

    def __init__(self, device: torch.device | str, count: int = STREAMS) -> None:
        self.device = torch.device(device)
        self._streams = [torch.cuda.Stream(self.device) for _ in range(count)] if self.device.type == "cuda" else []

    def map(self, function: Callable[[Given], Made], items: Iterable[Given]) -> list[Made]:
        """The results in the order of the items."""
        if not self._streams:
            return [function(item) for item in items]
        present, found = torch.cuda.current_stream(self.device), []
        items = list(items)
        used = self._streams[: len(items)]
        for stream in used:
            stream.wait_stream(present)
        for k, item in enumerate(items):
            with torch.cuda.stream(used[k % len(used)]):
                found.append(function(item))
        for stream in used:
            present.wait_stream(stream)
        return found

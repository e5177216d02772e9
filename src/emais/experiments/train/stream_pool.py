"""CUDA streams that many runs share: the small kernels of one run do not wait for another's, also inside a graph."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

import torch

Given = TypeVar("Given")
Made = TypeVar("Made")
STREAMS = 16


class StreamPool:
    """Some streams of a GPU, and a `map` whose calls take turns on them.

    All streams start after what the current stream holds, and it goes on after all of them. So tensors may be handed
    from one to the other. On a CPU there are no streams, and `map` is a plain loop.

    >>> StreamPool("cpu").map(abs, [-1, 2])
    [1, 2]
    """

    def __init__(self, device: torch.device | str, count: int = STREAMS) -> None:
        self.device = torch.device(device)
        self._streams = [torch.cuda.Stream(self.device) for _ in range(count)] if self.device.type == "cuda" else []

    def map(self, function: Callable[[Given], Made], items: Iterable[Given]) -> list[Made]:
        """function(item) of each item, in their order."""
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

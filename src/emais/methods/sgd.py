"""The two baselines: uniform sampling without replacement (SGD-Scan) and with it (SGD-Uni). r = 1."""

from __future__ import annotations

from typing import Any

from ..engine import Engine


class SGDScan(Engine):
    """Reshuffled epochs without replacement: what a plain DataLoader with shuffle=True does.

    >>> SGDScan(4, batch_size=2).draw().r
    tensor([1., 1.])
    """

    name = "sgd-scan"

    def __init__(
        self,
        num_samples: int,
        batch_size: int = 128,
        num_steps: int | None = None,
        seed: int = 0,
        **options: Any,
    ) -> None:
        super().__init__(num_samples, batch_size, num_steps, seed, scan_steps=None, **options)


class SGDUni(Engine):
    """Uniform sampling with replacement.

    >>> SGDUni(4, batch_size=2).draw().r
    tensor([1., 1.])
    """

    name = "sgd-uni"

    def __init__(
        self,
        num_samples: int,
        batch_size: int = 128,
        num_steps: int | None = None,
        seed: int = 0,
        **options: Any,
    ) -> None:
        super().__init__(num_samples, batch_size, num_steps, seed, scan_steps=0, **options)

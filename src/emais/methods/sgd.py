"""The two baselines: uniform sampling without replacement (SGD-Scan) and with it (SGD-Uni). r = 1."""

from __future__ import annotations

from ..engine import Engine


class SGDScan(Engine):
    """Reshuffled epochs without replacement: what a plain DataLoader with shuffle=True does.

    >>> SGDScan(4, batch_size=2).draw().r
    tensor([1., 1.])
    """

    name = "sgd-scan"
    epoch_steps = None


class SGDUni(Engine):
    """Uniform sampling with replacement.

    >>> SGDUni(4, batch_size=2).draw().r
    tensor([1., 1.])
    """

    name = "sgd-uni"

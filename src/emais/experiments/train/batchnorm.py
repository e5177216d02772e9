"""BatchNorm's running statistics follow the minibatches drawn, not the data: taking them again from uniform ones."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import nn

UNIFORM = 100  # minibatches that the statistics are taken from


@contextmanager
def fresh_statistics(net: nn.Module, forward: Callable[[int], object], count: int = UNIFORM) -> Iterator[None]:
    """Within, BatchNorm normalises by averages over the minibatches forward(0), ..., forward(count - 1).

    They are run in training mode without gradients; afterwards the statistics are what they were.

    >>> net = nn.BatchNorm2d(1)
    >>> with fresh_statistics(net, lambda k: net(torch.full((2, 1, 1, 1), 3.0 + k)), count=2):
    ...     print(net.running_mean)
    tensor([3.5000])
    >>> net.running_mean
    tensor([0.])
    """
    layers = [module for module in net.modules() if isinstance(module, nn.BatchNorm2d)]
    kept = [(layer.momentum, {k: b.clone() for k, b in layer.named_buffers()}) for layer in layers]
    training = net.training
    try:
        net.train()
        with torch.no_grad():
            for k in range(count):
                for layer in layers:
                    layer.momentum = 1 / (k + 1)  # an average of all so far
                forward(k)
        net.train(training)
        yield
    finally:
        net.train(training)
        for layer, (momentum, buffers) in zip(layers, kept, strict=True):
            layer.momentum = momentum
            for name, before in buffers.items():
                getattr(layer, name).copy_(before)

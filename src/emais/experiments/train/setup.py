"""A network and its optimizer on the device that they run on."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import SGD, Adam, Optimizer

from ..config import Config


def move_to_device(net: nn.Module, device: torch.device) -> nn.Module:
    """The network on its device, with channels last on a GPU, without BatchNorm's unused counters of minibatches."""
    for module in net.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.num_batches_tracked = None  # else a kernel a layer and step
    layout = torch.channels_last if device.type == "cuda" else torch.preserve_format
    moved: nn.Module = net.to(device).to(memory_format=layout)  # type: ignore[call-overload]
    return moved


def make_optimizer(config: Config, net: nn.Module, lr: Tensor) -> Optimizer:
    """SGD with momentum or Adam, fused on a GPU; the rate is a tensor, which a graph reads."""
    options: dict[str, Any] = {"lr": lr, "weight_decay": config.weight_decay, "fused": lr.is_cuda or None}
    if config.optimizer == "sgd":
        return SGD(net.parameters(), momentum=config.momentum, **options)
    return Adam(net.parameters(), capturable=lr.is_cuda, **options)


@contextmanager
def cudnn_benchmark() -> Iterator[None]:
    """cuDNN tries its algorithms on the first minibatch of a shape, and keeps to the fastest."""
    before = torch.backends.cudnn.benchmark
    torch.backends.cudnn.benchmark = True
    try:
        yield
    finally:
        torch.backends.cudnn.benchmark = before

"""Many networks of one kind as one: parameters in a matrix, a row each, and a forward pass for all rows at once.

Not `torch.func.stack_module_state` with `vmap`: on the CPU a step of stacked LeNet5 took longer with it.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn
from torch.nn.functional import avg_pool2d, conv2d, max_pool2d

from ...errors import EmaisError
from .loop import initialised
from .models import Standardise

POOLS: dict[type[nn.Module], Callable[..., Tensor]] = {nn.MaxPool2d: max_pool2d, nn.AvgPool2d: avg_pool2d}
ELEMENTWISE = (nn.ReLU, nn.Tanh, Standardise)
UNDERSTOOD = (nn.Conv2d, nn.Linear, nn.Flatten, *POOLS, *ELEMENTWISE)


class StackedNetwork:
    """K networks with parameters flat (K, P), row k made as `initialised(model, seeds[k])` makes it.

    Understands a plain sequence of the layers in `UNDERSTOOD`. A row computes what the network would alone, up to
    rounding.

    >>> net = StackedNetwork(lambda: nn.Sequential(nn.Flatten(), nn.Linear(4, 3)), seeds=[0, 1])
    >>> net(net.flat, torch.zeros(2, 5, 1, 2, 2)).shape
    torch.Size([2, 5, 3])
    """

    def __init__(
        self, model: Callable[[], nn.Module], seeds: Sequence[int], device: torch.device | str = "cpu"
    ) -> None:
        made = [initialised(model, seed) for seed in seeds]
        self._template = made[0]
        self._layers = list(made[0].children())
        for layer in self._layers:
            if not isinstance(layer, UNDERSTOOD):
                raise EmaisError(f"networks side by side cannot have a layer {type(layer).__name__}")
        self._shapes = [p.shape for p in made[0].parameters()]
        rows = [torch.cat([p.detach().flatten() for p in net.parameters()]) for net in made]
        self.flat = torch.stack(rows).to(device).requires_grad_()

    def module(self, row: int) -> nn.Module:
        """One of the networks as a module of its own: a copy."""
        net = copy.deepcopy(self._template).to(self.flat.device)
        parts = self.flat[row].detach().split([shape.numel() for shape in self._shapes])
        with torch.no_grad():
            for parameter, part in zip(net.parameters(), parts, strict=True):
                parameter.copy_(part.view_as(parameter))
        return net

    def __call__(self, flat: Tensor, x: Tensor) -> Tensor:
        """Inputs (K, N, C, H, W) -> outputs (K, N, classes), for rows flat (K, P)."""
        k, n = x.shape[:2]
        parameters = iter(flat.split([shape.numel() for shape in self._shapes], 1))
        shapes = iter(self._shapes)

        def take() -> Tensor:
            parameter: Tensor = next(parameters).unflatten(1, next(shapes))
            return parameter

        # images travel as (N, K * channels, H, W): the networks are groups of channels
        x = x.transpose(0, 1).flatten(1, 2)
        for layer in self._layers:
            if isinstance(layer, nn.Conv2d):
                weight, bias = take().flatten(0, 1), take().flatten()
                x = conv2d(x, weight, bias, layer.stride, layer.padding, groups=k)
            elif isinstance(layer, nn.Flatten):
                x = x.view(n, k, -1).transpose(0, 1)
            elif isinstance(layer, nn.Linear):
                weight, bias = take(), take()
                x = torch.baddbmm(bias.unsqueeze(1), x, weight.transpose(1, 2))
            elif type(layer) in POOLS:
                x = POOLS[type(layer)](x, layer.kernel_size)
            else:
                x = layer(x)
        return x

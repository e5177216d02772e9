"""SGD with momentum and Adam for stacked parameters, each row with a learning rate and weight decay of its own.

The same formulas as torch.optim's, whose optimizers take one rate for a whole tensor.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

Update = Callable[[Tensor, Tensor], None]  # (gradient (K, P), rates (K,)): changes the parameters in place
BETAS, EPS = (0.9, 0.999), 1e-8


def make_update(name: str, flat: Tensor, weight_decay: Tensor, momentum: Tensor) -> Update:
    """`sgd` or `adam` on flat (K, P), with weight_decay and SGD's momentum (K, 1)."""
    return SGD(flat, weight_decay, momentum) if name == "sgd" else Adam(flat, weight_decay)


class SGD:
    """v <- momentum v + g + decay p; p <- p - rate v."""

    def __init__(self, flat: Tensor, weight_decay: Tensor, momentum: Tensor) -> None:
        self.flat, self.weight_decay, self.momentum = flat, weight_decay, momentum
        self.velocity = torch.zeros_like(flat)

    @torch.no_grad()
    def __call__(self, gradient: Tensor, rates: Tensor) -> None:
        """One update."""
        gradient = gradient.addcmul(self.flat, self.weight_decay)
        self.velocity.mul_(self.momentum).add_(gradient)
        self.flat.addcmul_(self.velocity, rates.unsqueeze(1), value=-1)


class Adam:
    """Adam with the decay added to the gradient, as torch.optim.Adam does."""

    def __init__(self, flat: Tensor, weight_decay: Tensor) -> None:
        self.flat, self.weight_decay = flat, weight_decay
        self.mean, self.square = torch.zeros_like(flat), torch.zeros_like(flat)
        self.step = torch.zeros((), dtype=torch.float64, device=flat.device)

    @torch.no_grad()
    def __call__(self, gradient: Tensor, rates: Tensor) -> None:
        """One update."""
        gradient = gradient.addcmul(self.flat, self.weight_decay)
        self.step.add_(1)
        self.mean.lerp_(gradient, 1 - BETAS[0])
        self.square.mul_(BETAS[1]).addcmul_(gradient, gradient, value=1 - BETAS[1])
        first, second = ((1 - beta**self.step).float() for beta in BETAS)
        size = (self.square / second).sqrt_().add_(EPS)
        self.flat.addcmul_(self.mean / size, (rates / first).unsqueeze(1), value=-1)

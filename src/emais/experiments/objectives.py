"""What a network is trained for and measured by, for one label a sample and for several."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy

from ..functional import binary_cross_entropy_gradients, cross_entropy_gradients
from .metrics import error_percent, map_percent


class Objective(NamedTuple):
    """losses(z, y): one number a sample, of logits z (N, C); gradients(z, y): theirs by the logits, in closed form;
    measure(z, y): of a test set, in percent, recorded as `name`.
    """

    name: str
    losses: Callable[[Tensor, Tensor], Tensor]
    gradients: Callable[[Tensor, Tensor], Tensor]
    measure: Callable[[Tensor, Tensor], float]


def one_label_losses(z: Tensor, y: Tensor) -> Tensor:
    """Cross-entropy, for labels y (N,)."""
    return cross_entropy(z, y, reduction="none")


def many_label_losses(z: Tensor, y: Tensor) -> Tensor:
    """Binary cross-entropy averaged over the labels of a sample, y (N, C): the mean over N is torch's default."""
    return binary_cross_entropy_with_logits(z, y, reduction="none").mean(1)


def many_label_gradients(z: Tensor, y: Tensor) -> Tensor:
    """Of `many_label_losses`: (sigmoid(z) - y)/C."""
    return binary_cross_entropy_gradients(z, y).div_(z.shape[1])


ONE_LABEL = Objective("test_error", one_label_losses, cross_entropy_gradients, error_percent)
MANY_LABELS = Objective("map", many_label_losses, many_label_gradients, map_percent)

"""What a network is trained for and measured by, for one label per sample and for several."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy

from ...functional import binary_cross_entropy_gradients, cross_entropy_gradients


class TrainingTask(NamedTuple):
    """What a data set is trained for, with logits z (N, C).

    losses(z, y): one number per sample; gradients(z, y): those of the losses with respect to z, in closed form;
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


def error_percent(logits: Tensor, labels: Tensor) -> float:
    """Percentage of samples whose largest logit (n, C) is not at the label (n,).

    >>> error_percent(torch.tensor([[1.0, 0.0], [1.0, 0.0]]), torch.tensor([0, 1]))
    50.0
    """
    return 100 * float((logits.argmax(1) != labels).double().mean())


def map_percent(scores: Tensor, labels: Tensor) -> float:
    """Mean over labels of the average precision, in percent; labels that no sample has are left out."""
    return 100 * float(average_precision(scores, labels).nanmean())


def average_precision(scores: Tensor, labels: Tensor) -> Tensor:
    """Average precision of each column: sum over thresholds of (recall gained) * precision, as scikit-learn has it.

    scores (n, C), where larger means more likely and NaN least; labels (n, C) zeros and ones. Returns (C,) float64;
    NaN where a column has no one in it. Samples with the same score pass a threshold together.

    >>> average_precision(torch.tensor([[0.1], [0.4], [0.35], [0.8]]), torch.tensor([[0], [0], [1], [1]]))
    tensor([0.8333], dtype=torch.float64)
    """
    n = len(scores)
    ordered, order = scores.double().nan_to_num(nan=-torch.inf, posinf=None, neginf=None).sort(0, descending=True)
    hits = labels.double().gather(0, order)
    found = hits.cumsum(0)
    # the place of the last sample with the same score: that is where the threshold lies
    place = torch.arange(n, device=scores.device).unsqueeze(1).expand_as(ordered)
    last = torch.ones_like(ordered, dtype=torch.bool)
    last[:-1] = ordered[1:] != ordered[:-1]
    end = torch.where(last, place, n).flip(0).cummin(0).values.flip(0)
    precision = found.gather(0, end) / (end + 1)
    return (hits * precision).sum(0) / found[-1]


ONE_LABEL = TrainingTask("test_error", one_label_losses, cross_entropy_gradients, error_percent)
MANY_LABELS = TrainingTask("map", many_label_losses, many_label_gradients, map_percent)

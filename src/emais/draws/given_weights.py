"""Checks weights and sample indices that a user gives, and makes arrays of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..errors import EmaisError, check_index, shortly
from .host_tree import WideTree

SMALLEST = 1 / WideTree.high  # of weights above 0: ratios of weights stay finite, too


def all_weights(values: Any) -> np.ndarray:
    """Weights of all samples, (M,) float64.

    >>> all_weights([1, 2]).tolist()
    [1.0, 2.0]
    """
    found = _numbers(values)
    if found.ndim != 1 or not len(found):
        raise EmaisError(f"weights must be of shape (M,), one for each sample, got shape {found.shape}")
    check_weights(found)
    if not found.any():
        raise EmaisError(f"all {len(found)} weights are 0: give at least one sample a weight above 0")
    return found


def some_weights(index: Any, values: Any, num_samples: int) -> tuple[np.ndarray, np.ndarray]:
    """Samples (n,) int64 and their weights (n,) float64; one number is the weight of them all.

    >>> some_weights([3, 5], 0.5, num_samples=10)
    (array([3, 5]), array([0.5, 0.5]))
    """
    samples, found = sample_indices(index), _numbers(values)
    if not samples.numel():
        samples = samples.long()  # numpy makes floats of an empty list
    check_index(samples, num_samples)
    if found.shape not in ((), (len(samples),)):
        raise EmaisError(
            f"weights must be one number or of shape ({len(samples)},), one for each index, got shape {found.shape}"
        )
    check_weights(found)
    return samples.long().numpy(), np.broadcast_to(found, len(samples))


def check_weights(weights: np.ndarray) -> None:
    """Refuse weights that are no weights, and those whose sums or ratios may not be finite."""
    high = WideTree.high
    wrong = ~((weights == 0) | ((weights >= SMALLEST) & (weights <= high)))
    if wrong.any():
        where = f" at position {wrong.argmax()}" if weights.ndim else ""
        raise EmaisError(
            f"weights must be 0 or from {SMALLEST:g} to {high:g}, got {weights[wrong].item(0)}{where}: "
            "only their ratios count, so scale or clamp them"
        )


def checked_replacement(replacement: object, weights: np.ndarray, batch_size: int) -> bool:
    """Whether to draw with replacement, or say why that cannot be done without."""
    if not isinstance(replacement, bool):
        raise EmaisError(f"replacement must be True or False, got {replacement!r}")
    positive = np.count_nonzero(weights)
    if not replacement and positive < batch_size:
        raise EmaisError(
            f"replacement=False needs at least batch_size={batch_size} weights above 0, got {positive}: lower "
            "batch_size, or draw with replacement"
        )
    return replacement


def _numbers(values: Any) -> np.ndarray:
    """A float64 array on the host, of whatever numbers were given."""
    try:
        if isinstance(values, Tensor):
            wide = torch.complex128 if values.is_complex() else torch.float64
            values = values.detach().to("cpu", wide).numpy()  # numpy has no bfloat16
        found = np.asarray(values)
        if np.iscomplexobj(found):
            raise TypeError("complex numbers")
        return np.require(found, np.float64, ["C", "W"])  # as torch wants an array
    except (TypeError, ValueError, RuntimeError) as error:
        raise EmaisError(f"weights must be real numbers, got {shortly(values)} ({error})") from None


def sample_indices(index: Any) -> Tensor:
    """Sample indices as a tensor (n,) on the host."""
    try:
        found = index.detach().cpu() if isinstance(index, Tensor) else torch.from_numpy(np.array(index))
    except (TypeError, ValueError) as error:
        raise EmaisError(f"indices must be whole numbers, got {shortly(index)} ({error})") from None
    if found.dim() > 1:
        raise EmaisError(f"indices must be of shape (n,), got shape {tuple(found.shape)}")
    return found.view(-1)

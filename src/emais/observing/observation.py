"""One minibatch as the statistics see it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor


@dataclass(frozen=True, eq=False)
class Observation:
    """One minibatch as a method learns from it: numpy arrays on the CPU, tensors on a device.

    index, r: of the draw; norms (N,): gradient norms; grad (D,): sum r g; signal (N,): what the method's `signal`
    gave, or None.
    """

    step: Any
    index: Any
    r: Any
    norms: Any
    grad: Any
    signal: Any = None


def summarise(r: Any, grads: Any) -> tuple[Any, Any]:
    """Gradient norms (N,) and sum r g (D,) of r (N,) and grads (N, D): all that the statistics need."""
    if isinstance(grads, Tensor):
        return torch.linalg.vector_norm(grads, dim=1), r @ grads
    return np.sqrt(np.einsum("nd,nd->n", grads, grads)), r @ grads

"""From weights to the distribution that is drawn from, flattened where a sample would come too often."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ..errors import EmaisError, positive_float, positive_int

MAX_HALVINGS = 60
BOUND_SLACK = 1 + 1e-9  # rounding must not count as "above kappa" when p is already uniform


def importance_coefficients(probs: Tensor) -> Tensor:
    """r(i) = (1/M)/p_i for every sample: E_p[r f] is the plain mean of f.

    >>> importance_coefficients(torch.tensor([0.25, 0.75]))
    tensor([2.0000, 0.6667])

    Paper: prop:exp_equiv
    """
    return 1 / (len(probs) * probs)


def adjusted_probabilities(weights: Tensor, batch_size: int, kappa: float = 1.0) -> Tensor:
    """Probabilities proportional to w, flattened until no sample is expected more than kappa times a minibatch.

    p = w/sum w, then p = sqrt(p)/sum sqrt(p) while max(p) N > kappa, so p is proportional to w^(1/2^k) for the
    smallest k that meets the bound. Needs N <= kappa M. A zero weight counts as the smallest positive one that
    float64 holds times the largest weight, so every p is positive and the loop ends; all zero means uniform.
    weights (M,) -> probabilities (M,), summing to 1.

    >>> adjusted_probabilities(torch.tensor([16.0, 1.0, 1.0]), batch_size=2)
    tensor([0.5000, 0.2500, 0.2500])

    Paper: alg:ema_is (ComputeAdjustedProbabilities)
    """
    positive_int("batch_size", batch_size)
    positive_float("kappa", kappa)
    if weights.dim() != 1 or len(weights) == 0:
        raise EmaisError(f"weights must be (M,) with M of at least 1, got {tuple(weights.shape)}")
    check_flattening(len(weights), batch_size, kappa)
    w = weights.detach().double()
    if not bool((w.isfinite() & (w >= 0)).all()):
        raise EmaisError("weights must be finite and not negative")
    top = w.max()
    w = torch.ones_like(w) if top == 0 else (w / top).clamp(min=torch.finfo(torch.float64).tiny)
    for _ in range(MAX_HALVINGS):
        p = w / w.sum()
        if p.max() * batch_size <= kappa * BOUND_SLACK:
            break
        w = w.sqrt()
    return p.to(torch.promote_types(weights.dtype, torch.float32))


def check_flattening(num_samples: int, batch_size: int, kappa: float) -> None:
    """Refuse N > kappa M: even the uniform distribution draws a sample N/M > kappa times then.

    >>> check_flattening(100, 10, 1.0)
    """
    if batch_size > kappa * num_samples * BOUND_SLACK:
        raise EmaisError(
            f"batch_size={batch_size} is above kappa * num_samples = {kappa:g} * {num_samples}: with so few samples, "
            f"each would be drawn more than {kappa:g} times a minibatch. Take a smaller batch_size, or, to allow it, "
            f"kappa of at least {math.ceil(1e5 * batch_size / num_samples) / 1e5}"
        )

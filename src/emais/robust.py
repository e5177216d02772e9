"""RAIS's mathematics: a regression for gradient norms that knows how wrong it is, and the distribution it implies.

Features s_i >= 0 of a sample, coefficients c, d >= 0. The norm v_i is predicted as <c, s_i>, with an uncertainty
<d, s_i>: the set of norms thought possible is {v >= 0: mean_i (<c, s_i> - v_i)^2 / <d, s_i> <= 1}. Sampling is made
for the worst of them.
"""

from __future__ import annotations

import torch
from torch import Tensor

from .errors import EmaisError

D_MIN = 1e-8
_STEPS = 12  # step lengths 1, 1/2, 1/4, ... that a Newton step tries at once


def misfit(c: Tensor, d: Tensor, features: Tensor, norms: Tensor, weights: Tensor) -> Tensor:
    """R(c, d): the mean over observations of w_j (<c, s_j> - v_j)^2 / <d, s_j>; those with weight 0 do not count.

    features (n, F), norms and weights (n,); c and d (F,), or (F, K) for K pairs at once.
    """
    residual = features @ c - (norms if c.dim() == 1 else norms.unsqueeze(1))
    return _mean_weights(weights) @ (residual.square() / (features @ d))


def _mean_weights(weights: Tensor) -> Tensor:
    return weights / (weights > 0).sum().clamp(min=1)


def minimax_values(c: Tensor, d: Tensor, features: Tensor, mean: Tensor | None = None) -> Tensor:
    """v_i = <c, s_i> + k <d, s_i> with k = sqrt(M / sum_j <d, s_j>): p = v / sum v minimises the worst variance.

    Over the uncertainty set, mean_i v_i^2 / (M p_i) is largest and p best at this v. features (M, F) -> (M,);
    `mean` (F,) are the features' means where they are known already.

    >>> c, d = torch.tensor([1.0, 0.0]), torch.tensor([0.0, 4.0])
    >>> minimax_values(c, d, torch.tensor([[2.0, 1.0], [4.0, 1.0]]))
    tensor([4., 6.])
    """
    return features @ minimax_coefficients(c, d, features.mean(0) if mean is None else mean)


def minimax_coefficients(c: Tensor, d: Tensor, mean: Tensor) -> Tensor:
    """theta = c + k d, (F,): `minimax_values` is <theta, s_i>."""
    return c + d * (mean @ d).rsqrt()


def fit_uncertainty(
    features: Tensor,
    norms: Tensor,
    weights: Tensor,
    mean: Tensor,
    start: tuple[Tensor, Tensor] | None = None,
    *,
    max_steps: int = 60,
    tolerance: float = 1e-13,
) -> tuple[Tensor, Tensor]:
    """The smallest uncertainty that explains the observations: min <d, mean> so that R(c, d) <= 1, c >= 0, d >= 0.

    features (n, F), norms and weights w_j = 1/(M p_j) (n,) are the observations, weight 0 for none; mean (F,) is the
    mean of the features over all samples. Returns c and d, (F,) float64.

    Solved as min R(c, d) + <d, mean> with c >= 0, d >= 1e-8, then d <- d R(c, d). That is convex, smooth and has 2F
    unknowns: Newton's method on the ones not held by a bound, projected, with a search over step lengths. It goes on
    until nothing improves; on a device, where looking would mean waiting, for `max_steps`. `start` is a fit to begin
    from.
    """
    if features.dim() != 2 or norms.shape != weights.shape or len(features) != len(norms):
        shapes = [tuple(x.shape) for x in (features, norms, weights)]
        raise EmaisError(f"features must be (n, F), norms and weights (n,), got {shapes}")
    f = features.shape[1]
    w = _mean_weights(weights.double())
    counts = w > 0
    v = torch.where(counts, norms.double(), 0.0)
    unit = (w @ v).clamp(min=1e-30)  # in these units norms are around 1
    s, m, v = torch.where(counts.unsqueeze(1), features.double() / unit, 1.0), mean.double() / unit, v / unit
    low = torch.cat((torch.zeros_like(m), D_MIN / unit.expand(f)))
    x = torch.full_like(low, 1.0 / f) if start is None else torch.cat((start[0].double(), start[1].double() / unit))
    x = torch.maximum(x, low.clamp(min=1e-12 / f))
    lengths = 0.5 ** torch.arange(_STEPS, dtype=x.dtype, device=x.device)
    value = torch.full_like(unit, torch.inf)
    for _ in range(max_steps):
        step = _newton_step(x, low, s, v, w, m)
        trial = torch.maximum(x.unsqueeze(1) + step.unsqueeze(1) * lengths, low.unsqueeze(1))
        values = _objective(trial, s, v, w, m)
        best = values.argmin().view(1)
        improved = values.index_select(0, best).squeeze(0)
        x = torch.where(improved < value, trial.index_select(1, best).squeeze(1), x)
        if x.is_cpu and not improved < value - tolerance * value.abs().clamp(max=1e300):
            break
        value = torch.minimum(value, improved)
    c, d = x[:f], x[f:]
    return c, d * (w @ ((s @ c - v).square() / (s @ d))) * unit


def _objective(x: Tensor, s: Tensor, v: Tensor, w: Tensor, m: Tensor) -> Tensor:
    """R + <d, m> for x = (c, d) of shape (2F, K) -> (K,)."""
    c, d = x.chunk(2)
    return w @ ((s @ c - v.unsqueeze(1)).square_().div_(s @ d)) + m @ d


def _newton_step(x: Tensor, low: Tensor, s: Tensor, v: Tensor, w: Tensor, m: Tensor) -> Tensor:
    """Where Newton's method would go from x, on the unknowns that are not held by a bound."""
    c, d = x.chunk(2)
    f, y = len(c), s @ d
    t = (s @ c - v).div_(y)  # residual over uncertainty
    q = w / y
    weighted = torch.stack((q, q * t, q * t * t), 1)
    blocks = s.T @ (weighted.unsqueeze(2) * s.unsqueeze(1)).view(len(s), -1)
    cc, cd, dd = blocks.view(f, 3, f).unbind(1)
    hessian = 2 * torch.cat((torch.cat((cc, -cd), 1), torch.cat((-cd, dd), 1)))
    wt = w * t
    gradient = torch.cat((2 * (wt @ s), m - (wt * t) @ s))
    held = (x <= low) & (gradient > 0)
    free = (~held).to(x.dtype)
    ridge = 1e-12 * hessian.diagonal().abs() * free + (1 - free) + 1e-300
    hessian = hessian * free * free.unsqueeze(1) + ridge.diag()
    return -torch.linalg.solve_ex(hessian, gradient * free)[0]

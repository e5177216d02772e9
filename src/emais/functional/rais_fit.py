"""RAIS's mathematics: a regression for gradient norms that knows how wrong it is, and the distribution it implies.

Features s_i >= 0 of a sample, coefficients c, d >= 0. The norm v_i is predicted as <c, s_i>, with an uncertainty
<d, s_i>: the set of norms thought possible is {v >= 0: mean_i (<c, s_i> - v_i)^2 / <d, s_i> <= 1}. Sampling is made
for the worst of them.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ..errors import EmaisError

D_MIN = 1e-8
_SHRINK = 0.1  # of the distance to the optimum that a step aims for
_NEAR = 0.95  # of the way to a bound that a step may go


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
    *,
    max_steps: int = 45,
    tolerance: float = 1e-12,
) -> tuple[Tensor, Tensor]:
    """The smallest uncertainty that explains the observations: min <d, mean> so that R(c, d) <= 1, c >= 0, d >= 0.

    features (n, F), norms and weights w_j = 1/(M p_j) (n,) are the observations, weight 0 for none; mean (F,) is the
    mean of the features over all samples. Returns c and d, (F,) float64.

    Solved as min R(c, d) + <d, mean> with c >= 0 and d >= 1e-8 (in units of the mean norm), then d <- d R(c, d). That
    is convex, smooth and has 2F unknowns: a primal-dual interior-point method, one Newton step for each bound on the
    distance to the optimum. It ends at `tolerance`; on a device, where looking would mean waiting, after `max_steps`.
    """
    if features.dim() != 2 or norms.shape != weights.shape or len(features) != len(norms):
        shapes = [tuple(x.shape) for x in (features, norms, weights)]
        raise EmaisError(f"features must be (n, F), norms and weights (n,), got {shapes}")
    w = _mean_weights(weights.double())
    counts = w > 0
    v = torch.where(counts, norms.double(), 0.0)
    unit = (w @ v).clamp(min=1e-30)  # the mean norm: in these units the problem looks the same all through training
    s = torch.where(counts.unsqueeze(1), features.double() / unit, 1.0)
    problem = _Problem(s, v / unit, w, mean.double() / unit)
    x = problem.solve(max_steps, tolerance)
    c, d = x.chunk(2)
    return c, d * problem.misfit(x) * unit


class _Problem:
    """min f(x) = R(c, d) + <d, m> for x = (c, d) >= low, with R a mean over observations s (n, F), v and w (n,)."""

    def __init__(self, s: Tensor, v: Tensor, w: Tensor, m: Tensor) -> None:
        self.s, self.v, self.w, self.m = s, v, w, m
        self.low = torch.cat((torch.zeros_like(m), torch.full_like(m, D_MIN)))

    def misfit(self, x: Tensor) -> Tensor:
        c, d = x.chunk(2)
        return self.w @ ((self.s @ c - self.v).square() / (self.s @ d))

    def solve(self, max_steps: int, tolerance: float) -> Tensor:
        x = torch.full_like(self.low, 2.0 / len(self.low))
        dual = torch.full_like(x, 0.1)  # the multipliers of x >= low
        for _ in range(max_steps):
            room = x - self.low
            gap = (room @ dual) / len(x)
            gradient, hessian = self.derivatives(x)
            if x.is_cpu and gap <= tolerance and (gradient - dual).abs().max() <= 1e-9:
                break
            target = _SHRINK * gap
            step = torch.linalg.solve_ex(hessian + (dual / room).diag(), target / room - gradient)[0]
            dual_step = target / room - dual - dual / room * step
            # keep room and dual positive; the same length for both, as f is not quadratic
            ratio = torch.cat((-step / room, -dual_step / dual)).amax().clamp(min=_NEAR)
            length = (_NEAR / ratio).clamp(max=1)
            moved = x + length * step
            good = moved.isfinite().all()  # at the limits of precision the last solution stands
            x, dual = torch.where(good, moved, x), torch.where(good, dual + length * dual_step, dual)
            if x.is_cpu and not good:
                break
        return x

    def derivatives(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Gradient (2F,) and Hessian (2F, 2F) of f."""
        s, w, f = self.s, self.w, len(self.m)
        c, d = x.chunk(2)
        y = s @ d
        t = (s @ c - self.v).div_(y)  # residual over uncertainty
        q, wt = w / y, w * t
        weighted = torch.stack((q, q * t, q * t * t), 1)
        blocks = s.T @ (weighted.unsqueeze(2) * s.unsqueeze(1)).view(len(s), -1)
        cc, cd, dd = blocks.view(f, 3, f).unbind(1)
        hessian = 2 * torch.cat((torch.cat((cc, -cd), 1), torch.cat((-cd, dd), 1)))
        return torch.cat((2 * (wt @ s), self.m - (wt * t) @ s)), hessian

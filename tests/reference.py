"""Algorithms 1 and 2 and the paper's pseudo code, written as they read: one sample at a time, in float64."""

from __future__ import annotations

import math

import numpy as np
import torch
from scipy.optimize import minimize


def compute_tr_vars(r, per_sample_grad):
    """fig:pseudo_code."""
    mu = (r[:, None] * per_sample_grad).mean(dim=0)
    tr_var_is = (r[:, None] * per_sample_grad).norm(p=2, dim=1).pow(2).mean() - mu.norm(p=2).pow(2)
    norms = per_sample_grad.norm(p=2, dim=1)
    tr_var_uniform = (r * norms.pow(2)).mean() - mu.norm(p=2).pow(2)
    tr_var_optimal = (r * norms).mean().pow(2) - mu.norm(p=2).pow(2)
    return tr_var_is, tr_var_uniform, tr_var_optimal


class Algorithm1:
    def __init__(self, M, N, kappa=1.0, tau=None, floor=2.0**-63):
        self.M, self.N, self.kappa, self.tau, self.floor = M, N, kappa, tau, floor
        self.mu, self.sigma2, self.t_prev = [0.0] * M, [0.0] * M, [0] * M

    def update_stats(self, t, i, g):
        if not math.isfinite(g):  # not in the paper: a non-finite norm changes nothing
            return
        tau = t if self.tau is None else self.tau
        alpha = math.exp(-(t - self.t_prev[i]) / tau)
        delta = g - self.mu[i]
        self.mu[i] = self.mu[i] + (1 - alpha) * delta
        self.sigma2[i] = alpha * (self.sigma2[i] + (1 - alpha) * delta**2)
        self.t_prev[i] = t

    def compute_importance(self):
        return [m + math.sqrt(s) for m, s in zip(self.mu, self.sigma2, strict=True)]

    def compute_adjusted_probabilities(self, w):
        p = [max(x, self.floor) for x in w]
        p = [x / sum(p) for x in p]
        while max(p) * self.N > self.kappa * (1 + 1e-9):
            root = [math.sqrt(x) for x in p]
            total = sum(root)
            p = [x / total for x in root]
        return p


def algorithm2(M, N, T, warmup_steps, indices, norms_of, lr, kappa=1.0, tau=None):
    """alg:train_emais for given indices: what r and eps_ems each step must have had.

    `indices(t)` are the samples that the fast path drew at step t; `norms_of(t)` gives their logit gradients (N, C).
    Yields (p or None, r, lr of the step) for t = 1..T.
    """
    stats = Algorithm1(M, N, kappa, tau)
    for t in range(1, T + 1):
        if t <= warmup_steps:
            p, r = None, torch.ones(N, dtype=torch.float64)
        else:
            p = stats.compute_adjusted_probabilities(stats.compute_importance())
            r = torch.tensor([(1 / M) / p[i] for i in indices(t)], dtype=torch.float64)
        grads = norms_of(t)
        for i, g in zip(indices(t), grads, strict=True):
            stats.update_stats(t, i, float(g.double().norm()))
        phi_is, phi_unif, _ = compute_tr_vars(r, grads.double())
        n_ems = phi_unif / phi_is * N
        yield p, r, lr if t <= warmup_steps else float(n_ems / N * lr)


class LiteralRAIS:
    """RAIS one sample at a time: features and buffer in lists, the fit left to a general constrained solver."""

    def __init__(self, M, N, buffer, warmup_steps):
        self.M, self.N, self.size, self.due = M, N, buffer, warmup_steps
        self.period = math.ceil(buffer / N)
        self.norms = [[] for _ in range(M)]
        self.ema = [[0.0, 0.0] for _ in range(M)]
        self.buffer, self.theta, self.cd = {}, [1.0, 0.0, 0.0, 0.0, 0.0], None

    def features(self, i):
        shared = sum(h[-1] for h in self.norms if h) / self.M
        h = self.norms[i]
        return [shared, *([h[-1], h[-2] if len(h) > 1 else h[-1], *self.ema[i]] if h else [0.0] * 4)]

    def probabilities(self):
        v = [sum(a * b for a, b in zip(self.theta, self.features(i), strict=True)) for i in range(self.M)]
        return [x / sum(v) for x in v]

    def observe(self, t, index, r, norms):
        for place, (i, w, v) in enumerate(zip(index, r, norms, strict=True)):
            spot = ((t - 1) * self.N + place) % self.size
            self.buffer[spot] = (self.features(i), v, w) if self.norms[i] else None
        for place, (i, v) in enumerate(zip(index, norms, strict=True)):
            if i in index[:place]:
                continue
            old, self.ema[i] = self.ema[i], [v, v]
            if self.norms[i]:
                self.ema[i] = [e + a * (v - e) for e, a in zip(old, (0.5, 0.1), strict=True)]
            self.norms[i].append(v)
        if t >= self.due:
            self.due = t + self.period
            self.refit()

    def refit(self):
        rows = [x for x in self.buffer.values() if x is not None]
        s, v, w = (np.array([row[k] for row in rows]) for k in range(3))
        mean = np.array([self.features(i) for i in range(self.M)]).mean(0)
        c, d = constrained_fit(s, v, w, mean)
        self.cd = c, d
        self.theta = list(c + d / np.sqrt(mean @ d))


def constrained_fit(s, v, w, mean):
    """min <d, mean> subject to c, d >= 0 and mean_j w_j (<c, s_j> - v_j)^2 / <d, s_j> <= 1, as it reads."""
    f, unit = s.shape[1], v.mean()
    s, v, mean = s / unit, v / unit, mean / unit

    def misfit(x):
        return 1 - np.mean(w * (s @ x[:f] - v) ** 2 / (s @ x[f:]))

    def slope(x):
        y, e = s @ x[f:], s @ x[:f] - v
        return -np.concatenate((2 * s.T @ (w * e / y), -s.T @ (w * e * e / y**2))) / len(v)

    cost = np.concatenate((np.zeros(f), mean))
    start = np.full(2 * f, 1.0)
    found = minimize(
        lambda x: (cost @ x, cost),
        start,
        jac=True,
        method="SLSQP",
        bounds=[(0, None)] * f + [(1e-12, None)] * f,
        constraints={"type": "ineq", "fun": misfit, "jac": slope},
        options={"maxiter": 2000, "ftol": 1e-15},
    )
    return found.x[:f], found.x[f:] * unit


def cosine_rates(factors, num_steps, effective):
    """The cosine's multiplier of each step, after the steps before it, each counted as its factor or as one."""
    found, t = [], 0.0
    for factor in factors:
        found.append(0.5 * (1 + math.cos(math.pi * t / num_steps)))
        t = min(num_steps, t + (factor if effective else 1))
    return found

"""Algorithms 1 and 2 and the paper's pseudo code, written as they read: one sample at a time, in float64."""

from __future__ import annotations

import math

import torch


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

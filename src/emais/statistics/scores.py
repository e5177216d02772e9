"""Algorithm 1's state: moving mean and variance of each sample's gradient norm, unevenly spaced in time."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..errors import EmaisError, check_index, positive_float, positive_int, usable_device
from .limits import FROM_0, Limit

STARTS = ("zero", "first")
_NEVER = torch.iinfo(torch.int64).max
NORM_MAX = 2.0**62  # a larger gradient norm counts as non-finite: its square would not fit


class EMAScores:
    """Moving statistics of gradient norms, and the importance w = mean + sqrt(var) they give.

    alpha = exp(-(t - t_prev)/tau); mean += (1 - alpha) delta; var = alpha (var + (1 - alpha) delta^2), with
    delta = g - mean. `tau="linear"` is the paper's Linear-tau, tau = t; a number fixes it. All start at 0
    (the paper does not say); `start="first"` takes a sample's first observation as its mean instead.

    mean, var: (M,) float32; last_step: (M,) int64, 0 for a sample never observed. 16 bytes per sample.

    >>> s = EMAScores(3, tau=1.0)
    >>> _ = s.update(1, torch.tensor([0, 2]), torch.tensor([1.0, 2.0]))
    >>> s.mean
    tensor([0.6321, 0.0000, 1.2642])

    Paper: alg:ema_is
    """

    def __init__(
        self,
        num_samples: int,
        tau: float | str = "linear",
        *,
        start: str = "zero",
        unseen: float = 0.0,
        device: torch.device | str = "cpu",
    ) -> None:
        self.num_samples = num_samples = positive_int("num_samples", num_samples)
        if isinstance(tau, str) and tau != "linear":
            raise EmaisError(f'tau must be "linear" or a number above 0, got {tau!r}')
        self.tau = tau if isinstance(tau, str) else positive_float("tau", tau)
        if start not in STARTS:
            raise EmaisError(f"start must be one of {', '.join(STARTS)}, got {start!r}")
        self.start, self.unseen = start, unseen
        device = usable_device(device)
        self.mean = torch.zeros(num_samples, dtype=torch.float32, device=device)
        self.var = torch.zeros(num_samples, dtype=torch.float32, device=device)
        self.last_step = torch.zeros(num_samples, dtype=torch.int64, device=device)
        self._latest = 0
        if self.mean.is_cpu:
            self._views = self.mean.numpy(), self.var.numpy(), self.last_step.numpy()

    @torch.no_grad()
    def update(self, step: int | Tensor, index: Tensor, grad_norms: Tensor) -> Tensor:
        """UpdateStats for the samples of one step; returns their new weights (N,).

        step from 1 (an int, or a 0-d tensor that stays on its device); index (N,) int64; grad_norms (N,).
        A sample that occurs twice takes its first usable norm, as the sequential algorithm does. A norm that is NaN,
        infinite, above 2^62 or below 0 changes nothing.

        Paper: alg:ema_is (UpdateStats)
        """
        if index.dim() != 1 or index.shape != grad_norms.shape:
            raise EmaisError(
                f"index and grad_norms must both be (N,), got {tuple(index.shape)} and {tuple(grad_norms.shape)}"
            )
        index, norms = index.to(self.mean.device), grad_norms.detach().to(self.mean)
        norms = torch.where(norms >= 0, norms, torch.nan)  # below 0 is no norm
        if isinstance(step, Tensor):
            return self.update_device(step, index, norms)
        step = positive_int("step", step)
        check_index(index, self.num_samples)
        if not self.mean.is_cpu:
            return self.update_device(step, index, norms)
        self.update_host(step, index.numpy(), norms.numpy())
        return self.weights(index)

    def _advance(self, xp: Any, step: Any, age: Any, g: Any, mean: Any, var: Any) -> tuple[Any, Any]:
        """The two recurrences, in numpy or torch."""
        past = age / -(step if isinstance(self.tau, str) else self.tau)
        alpha, fresh = xp.exp(past), -xp.expm1(past)  # 1 - alpha keeps its digits for a large tau, too
        if self.start == "first":
            first = age == step  # last_step was 0
            alpha, fresh = xp.where(first, 0.0, alpha), xp.where(first, 1.0, fresh)
        delta = g - mean
        part = fresh * delta
        return mean + part, alpha * (var + part * delta)

    def update_host(self, step: int, index: np.ndarray, g: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """`update` on the CPU, in numpy, whose calls cost a fraction of torch's for arrays of this size.

        Returns indices and their new weights to be written in this order, the last write of a sample to stay:
        that is its first place in the minibatch.
        """
        if not np.maximum.reduce(g, initial=0.0) <= NORM_MAX:  # false for NaN
            usable = g <= NORM_MAX
            index, g = index[usable], g[usable]
        index, g = index[::-1], g[::-1]
        means, variances, lasts = self._views
        age = step - lasts.take(index)
        if step < self._latest:  # minibatches out of order: a later observation of the sample stands
            age = np.maximum(age, 0)
        self._latest = max(step, self._latest)
        # in float32 all through: the weights must come out to the bit as they would from the saved state
        mean, var = self._advance(np, step, age.astype(np.float32), g, means.take(index), variances.take(index))
        means[index], variances[index] = mean, var
        lasts[index] += age
        return index, mean + np.sqrt(var)

    def update_device(self, step: int | Tensor, index: Tensor, g: Tensor) -> Tensor:
        """`update` in fixed shapes and with no host sync, of norms from 0: one that is not usable enters with age 0."""
        mean, var, last = (x.index_select(0, index) for x in (self.mean, self.var, self.last_step))
        usable = g <= NORM_MAX
        first = self._first_usable(index, usable)
        g, usable = g.index_select(0, first), usable.index_select(0, first)
        age = (step - last).clamp_(min=0) * usable
        mean, var = self._advance(torch, step, age.float(), torch.where(usable, g, mean), mean, var)
        last = last + age
        self.mean.index_copy_(0, index, mean)
        self.var.index_copy_(0, index, var)
        self.last_step.index_copy_(0, index, last)
        return torch.where(last > 0, mean + _root(var), self.unseen)

    def _first_usable(self, index: Tensor, usable: Tensor) -> Tensor:
        """For each position, the first position of the same sample with a usable norm (else its first position).

        Borrows last_step, which the caller has read and will write again: no sort, and the same result whatever
        the order of writing, because it is a minimum.
        """
        n = len(index)
        place = torch.arange(n, device=index.device)
        self.last_step.index_fill_(0, index, _NEVER)
        self.last_step.scatter_reduce_(0, index, torch.where(usable, place, place + n), "amin")
        return self.last_step.index_select(0, index) % n

    def weights(self, index: Tensor | None = None) -> Tensor:
        """ComputeImportance: w = mean + sqrt(var), (M,) or of some samples; `unseen` for one never observed.

        Paper: alg:ema_is (ComputeImportance)
        """
        state = (self.mean, self.var, self.last_step)
        mean, var, last = state if index is None else (x.index_select(0, index) for x in state)
        return torch.where(last > 0, mean + _root(var), self.unseen)

    def state_dict(self) -> dict[str, Tensor]:
        """The three state tensors, copied to the CPU."""
        return {k: getattr(self, k).cpu().clone() for k in ("mean", "var", "last_step")}

    def limits(self, step: int) -> dict[str, Limit]:
        """What the saved values may be; step: the latest."""
        return {"mean": Limit(0.0, NORM_MAX), "var": FROM_0, "last_step": Limit(0, max(1, step))}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Take over tensors made by `state_dict`; they have been checked by the caller."""
        for name, value in state.items():
            getattr(self, name).copy_(value)
        self._latest = int(self.last_step.max())


def _root(var: Tensor) -> Tensor:
    """Square root; on the CPU numpy's, as in `update_host`: torch's can differ from it in the last bit."""
    return torch.from_numpy(np.sqrt(var.numpy())) if var.is_cpu else var.sqrt()

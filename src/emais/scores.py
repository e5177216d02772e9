"""Algorithm 1's state: moving mean and variance of each sample's gradient norm, unevenly spaced in time."""

from __future__ import annotations

import torch
from torch import Tensor

from .errors import EmaisError, positive_float, positive_int

STARTS = ("zero", "first")
_NEVER = torch.iinfo(torch.int32).max
_VAR_MAX = 2.0**126  # a finite but absurd norm must not square to infinity


class EMAScores:
    """Moving statistics of gradient norms, and the importance w = mean + sqrt(var) they give.

    alpha = exp(-(t - t_prev)/tau); mean += (1 - alpha) delta; var = alpha (var + (1 - alpha) delta^2), with
    delta = g - mean. `tau="linear"` is the paper's Linear-tau, tau = t; a number fixes it. All start at 0 as the
    paper's Algorithm 2 reads; `start="first"` takes a sample's first observation as its mean instead.

    mean, var: (M,) float32; last_step: (M,) int32, 0 for a sample never observed. 12 bytes a sample.

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
        device: torch.device | str = "cpu",
    ) -> None:
        self.num_samples = positive_int("num_samples", num_samples)
        if isinstance(tau, str) and tau != "linear":
            raise EmaisError(f'tau must be "linear" or a number above 0, got {tau!r}')
        self.tau = tau if isinstance(tau, str) else positive_float("tau", tau)
        if start not in STARTS:
            raise EmaisError(f"start must be one of {', '.join(STARTS)}, got {start!r}")
        self.start = start
        self.mean = torch.zeros(num_samples, device=device)
        self.var = torch.zeros(num_samples, device=device)
        self.last_step = torch.zeros(num_samples, dtype=torch.int32, device=device)

    @torch.no_grad()
    def update(self, step: int | Tensor, index: Tensor, grad_norms: Tensor) -> Tensor:
        """UpdateStats for the samples of one step; returns their new weights (N,).

        step from 1 (an int, or a 0-d tensor that stays on its device); index (N,) int64; grad_norms (N,).
        A sample that occurs twice takes its first finite norm, as the sequential algorithm does; a norm that is
        NaN or infinite changes nothing.

        Paper: alg:ema_is (UpdateStats)
        """
        if index.dim() != 1 or index.shape != grad_norms.shape:
            raise EmaisError(
                f"index and grad_norms must both be (N,), got {tuple(index.shape)} and {tuple(grad_norms.shape)}"
            )
        last = self.last_step.index_select(0, index)
        mean = self.mean.index_select(0, index)
        var = self.var.index_select(0, index)
        g = grad_norms.detach().float()
        g = g.index_select(0, self._first_finite(index, g.isfinite()))
        finite = g.isfinite()

        age = (step - last).clamp_(min=0).float()
        tau = step if self.tau == "linear" else self.tau
        alpha = age.div_(tau).neg_().exp_()
        if self.start == "first":
            alpha = alpha.where(last > 0, 0.0)
        alpha = alpha.where(finite, 1.0)  # alpha = 1 leaves mean and var as they are, to the bit
        delta = (g - mean).where(finite, 0.0)
        gain = 1 - alpha
        mean = mean + gain * delta
        var = alpha * (var + gain * delta.square_().clamp_(max=_VAR_MAX)).clamp_(max=_VAR_MAX)
        last = (last.clamp(min=step) if isinstance(step, int) else last.maximum(step.int())).where(
            finite, last
        )

        self.mean.index_copy_(0, index, mean)
        self.var.index_copy_(0, index, var)
        self.last_step.index_copy_(0, index, last)
        return mean.add_(var.sqrt_())

    def _first_finite(self, index: Tensor, finite: Tensor) -> Tensor:
        """For each position, the first position of the same sample with a finite norm (else its first position).

        Uses last_step, which the caller has read and will write again, as scratch space: O(N), no sort, and the
        same on every device because a minimum does not depend on the order of writing.
        """
        n = len(index)
        place = torch.arange(n, dtype=torch.int32, device=index.device)
        place = place.where(finite, place + n)
        self.last_step.index_fill_(0, index, _NEVER)
        self.last_step.scatter_reduce_(0, index, place, "amin")
        return self.last_step.index_select(0, index).remainder_(n)

    def weights(self) -> Tensor:
        """ComputeImportance: w = mean + sqrt(var), (M,). Samples never observed have 0.

        Paper: alg:ema_is (ComputeImportance)
        """
        return self.mean + self.var.sqrt()

    def state_dict(self) -> dict[str, Tensor]:
        """The three state tensors, copied to the CPU."""
        return {k: getattr(self, k).cpu().clone() for k in ("mean", "var", "last_step")}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Take over tensors made by `state_dict`; shapes and dtypes have been checked by the caller."""
        for name, value in state.items():
            getattr(self, name).copy_(value)

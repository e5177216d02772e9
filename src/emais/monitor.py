"""From per-step sums to the variance report: traces, effective minibatch size, efficiency score, LR factor."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from .functional import (
    GradientSums,
    VarianceTraces,
    effective_batch_size,
    efficiency_score,
    guard_scale,
    scale_ratio,
)


class Monitor:
    """Collects the sums of one optimizer step (one minibatch, or several accumulated) and turns them into numbers.

    A window opens with the first minibatch after `close` and takes all up to the next `close`. With
    `smoothing` = s in [0, 1) the sums behind the report are s * (those before) + (1 - s) * (this window);
    s = 0 is the paper. Everything stays on `device`; nothing here waits for it.

    Paper: prop:tr_cov_est, eq:n_ems
    """

    def __init__(
        self, smoothing: float, unbiased: bool, max_scale: float, device: torch.device | str
    ) -> None:
        self.smoothing, self.unbiased, self.max_scale = smoothing, unbiased, max_scale
        self.rule = "none"
        self.step: int | Tensor = 0
        self.counts = torch.zeros(2, dtype=torch.int64, device=device)  # norms skipped, factors replaced by 1
        self._window: GradientSums | None = None
        self._before: GradientSums | None = None
        self._open = False
        self._factor: Tensor | None = None

    def add(self, step: int | Tensor, r: Tensor, norms: Tensor, grad: Tensor) -> None:
        """Take in a minibatch: r and gradient norms (N,), grad = sum r g (D,)."""
        sums = GradientSums.from_norms(r, norms, grad)
        self.counts[0] += (~norms.isfinite()).sum()
        if self._open and self._window is not None:
            sums = self._window + sums
        elif self.smoothing and self._window is not None:
            self._before = self._smoothed()
        self._window, self._open, self._factor, self.step = sums, True, None, step

    def close(self) -> None:
        """End the window: the optimizer has stepped."""
        self._open = False

    def _smoothed(self) -> GradientSums:
        assert self._window is not None
        if self._before is None:
            return self._window
        s = self.smoothing
        mixed = self._before * s + self._window * (1 - s)
        # a minibatch with a non-finite gradient must not poison the average: then the sums before stand
        usable = mixed.moments.isfinite().all() & mixed.grad.isfinite().all()
        return GradientSums(
            mixed.num,
            torch.where(usable, mixed.moments, self._before.moments * (mixed.num / self._before.num)),
            torch.where(usable, mixed.grad, self._before.grad * (mixed.num / self._before.num)),
        )

    @property
    def num(self) -> int:
        """Samples in the current window."""
        return 0 if self._window is None else int(self._window.num)

    def traces(self) -> VarianceTraces:
        """Variance traces of the current window (NaN before the first minibatch)."""
        if self._window is None:
            nan = torch.full((), float("nan"), dtype=torch.float64, device=self.counts.device)
            return VarianceTraces(nan, nan, nan, nan, 1)
        return (self._smoothed() if self.smoothing else self._window).traces(self.unbiased)

    def factor(self) -> Tensor:
        """The guarded learning-rate factor of this window under the current rule, computed once a window."""
        if self._factor is None:
            self._factor, bad = guard_scale(scale_ratio(self.traces(), self.rule), self.max_scale)
            if self._window is not None:
                self.counts[1] += bad
        return self._factor

    def state_dict(self) -> dict[str, Tensor]:
        """Counts and, with smoothing, the averaged sums."""
        state = {"counts": self.counts.cpu().clone()}
        if self.smoothing and self._window is not None:
            sums = self._smoothed()
            state |= {
                "num": torch.tensor(float(sums.num)),
                "moments": sums.moments.cpu(),
                "grad": sums.grad.cpu(),
            }
        return state

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Take over what `state_dict` gave; the window starts empty."""
        device = self.counts.device
        self.counts.copy_(state["counts"])
        self._window = self._before = self._factor = None
        if "num" in state:
            self._window = GradientSums(
                float(state["num"]), state["moments"].to(device), state["grad"].to(device)
            )
        self._open = False


class Diagnostics:
    """The latest variance report as plain floats. Reading an attribute is the only thing that waits for the GPU.

    tr_is, tr_unif, tr_opt: variance traces; n_ems: effective minibatch size; score: S(W); lr_scale: the factor for
    (or of) the latest optimizer step; step; batch_size: samples behind the numbers; nonfinite: gradient norms left
    out of the statistics so far; degenerate: steps so far whose factor was replaced by 1.

    Paper: prop:tr_cov_est, eq:n_ems, eq:epsilon_ems, sec:metric
    """

    def __init__(self, monitor: Monitor, drain: Callable[[], None]) -> None:
        self._monitor, self._drain = monitor, drain

    def _traces(self) -> VarianceTraces:
        self._drain()
        return self._monitor.traces()

    @property
    def step(self) -> int:
        """The latest step observed."""
        self._drain()
        return int(self._monitor.step)

    @property
    def batch_size(self) -> int:
        """Samples of the latest optimizer step (all accumulated minibatches)."""
        self._drain()
        return self._monitor.num

    @property
    def tr_is(self) -> float:
        """Trace of the gradient variance under the sampler in use."""
        return float(self._traces().tr_is)

    @property
    def tr_unif(self) -> float:
        """Trace of the gradient variance under uniform sampling."""
        return float(self._traces().tr_unif)

    @property
    def tr_opt(self) -> float:
        """Trace of the gradient variance under the best possible sampler."""
        return float(self._traces().tr_opt)

    @property
    def n_ems(self) -> float:
        """Effective minibatch size, not guarded."""
        return float(effective_batch_size(self._traces(), self.batch_size))

    @property
    def score(self) -> float:
        """Efficiency score S(W): 0 optimal, 1 as uniform."""
        return float(efficiency_score(self._traces()))

    @property
    def lr_scale(self) -> float:
        """Guarded learning-rate factor."""
        self._drain()
        return float(self._monitor.factor())

    @property
    def nonfinite(self) -> int:
        """Gradient norms that were NaN or infinite and left out, so far."""
        self._drain()
        return int(self._monitor.counts[0])

    @property
    def degenerate(self) -> int:
        """Optimizer steps whose factor could not be computed and was 1, so far."""
        self._drain()
        return int(self._monitor.counts[1])

    def as_dict(self) -> dict[str, float]:
        """All of it, for a logger."""
        names = ("step", "batch_size", "tr_is", "tr_unif", "tr_opt", "n_ems", "score", "lr_scale")
        return {name: getattr(self, name) for name in (*names, "nonfinite", "degenerate")}

    def __repr__(self) -> str:
        return f"Diagnostics({', '.join(f'{k}={v:.4g}' for k, v in self.as_dict().items())})"

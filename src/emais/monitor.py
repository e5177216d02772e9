"""From per-step sums to the variance report: traces, effective minibatch size, efficiency score, LR factor."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
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
from .scores import NORM_MAX


class Monitor:
    """Collects the sums of one optimizer step (one minibatch, or several accumulated) and turns them into numbers.

    A window opens with the first minibatch after `close` and takes all up to the next `close`. With
    `smoothing` = s in [0, 1) the sums behind the report are s * (those before) + (1 - s) * (this window);
    s = 0 is the paper. Everything stays on `device`; nothing here waits for it.

    Paper: prop:tr_cov_est, eq:n_ems
    """

    def __init__(
        self, smoothing: float, unbiased: bool, max_scale: float, device: torch.device, on_host: bool = True
    ) -> None:
        self.smoothing, self.unbiased, self.max_scale, self.device = smoothing, unbiased, max_scale, device
        self._on_host = on_host
        self.rule = "none"
        self.step: int | Tensor = 0
        # gradient norms left out, and factors replaced by 1
        self.counts: Any = np.zeros(2, np.int64) if on_host else torch.zeros(2, dtype=torch.int64, device=device)
        self._window: GradientSums | None = None
        self._before: GradientSums | None = None
        self._open = False
        self._factor: Any = None
        self._bad: Any = False

    def add(self, step: int | Tensor, r: Any, norms: Any, grad: Any) -> None:
        """Take in a minibatch: r and gradient norms (N,), grad = sum r g (D,), numpy arrays on the CPU."""
        sums = GradientSums.from_norms(r, norms, grad)
        if isinstance(norms, Tensor) or not norms.max() <= NORM_MAX:
            self.counts[0] += (~(norms <= NORM_MAX)).sum()
        if self._open and self._window is not None:
            sums = self._window + sums
        elif self.smoothing and self._window is not None:
            self._before = self._smoothed()
        self._window, self._open, self._factor, self.step = sums, True, None, step

    def close(self) -> None:
        """End the window: the optimizer has stepped."""
        if self._factor is not None and self._open:
            self.counts[1] += self._bad
        self._open = False

    def _smoothed(self) -> GradientSums:
        assert self._window is not None
        if self._before is None:
            return self._window
        s = self.smoothing
        mixed = self._before * s + self._window * (1 - s)
        # a minibatch with a non-finite gradient must not poison the average: then the sums before stand
        xp = torch if isinstance(mixed.grad, Tensor) else np
        usable = xp.isfinite(mixed.moments).all() & xp.isfinite(mixed.grad).all()
        stand = self._before * (mixed.num / self._before.num)
        return GradientSums(
            mixed.num, xp.where(usable, mixed.moments, stand.moments), xp.where(usable, mixed.grad, stand.grad)
        )

    @property
    def num(self) -> int:
        """Samples in the current window."""
        return 0 if self._window is None else int(self._window.num)

    def traces(self) -> VarianceTraces:
        """Variance traces of the current window (NaN before the first minibatch)."""
        nan = float("nan")
        traces = VarianceTraces(nan, nan, nan, nan, 1) if self._window is None else self._raw_traces()
        return traces.tensors(torch.float64, self.device)

    def _raw_traces(self) -> VarianceTraces:
        assert self._window is not None
        return (self._smoothed() if self.smoothing else self._window).traces(self.unbiased)

    def factor(self) -> Any:
        """The guarded learning-rate factor of this window under the current rule, computed once a window.

        A 0-d tensor where the statistics live on a GPU, a float where they live on the CPU.
        """
        if self._window is None:
            return 1.0
        if self._factor is None:
            self._factor, self._bad = guard_scale(scale_ratio(self._raw_traces(), self.rule), self.max_scale)
        return self._factor

    def state_dict(self) -> dict[str, Tensor]:
        """Counts and, with smoothing, the averaged sums."""
        sums = self._smoothed() if self.smoothing and self._window is not None else GradientSums(0, [0.0] * 3, [])
        values = {"counts": self.counts, "num": sums.num, "moments": sums.moments, "grad": sums.grad}
        kinds = {"counts": torch.int64, "num": torch.float64, "moments": torch.float64, "grad": torch.float64}
        return {k: torch.as_tensor(v, dtype=kinds[k]).cpu().clone() for k, v in values.items()}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Take over what `state_dict` gave; the window starts empty."""
        self._window = self._before = self._factor = None
        self._open = False
        num, moments, grad = float(state["num"]), state["moments"], state["grad"]
        if self._on_host:
            self.counts[:] = state["counts"].numpy()
            sums = GradientSums(num, moments.numpy().copy(), grad.numpy().copy())
        else:
            self.counts.copy_(state["counts"])
            sums = GradientSums(num, moments.to(self.device), grad.to(self.device))
        if num:
            self._window = sums


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

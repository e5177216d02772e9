"""From per-step sums to the variance report: traces, effective minibatch size, efficiency score, LR factor."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from .errors import nearest
from .functional import (
    GradientSums,
    VarianceTraces,
    effective_batch_size,
    efficiency_score,
    guard_scale,
    moment_gain,
    scale_ratio,
)
from .scores import NORM_MAX
from .transfer import Observation

OTHER_SHAPE = (
    "logits of another shape than those of the minibatch before, and no optimizer step between the two: the report and "
    "the learning-rate factor come from the latest alone; pad sequences to one length to have all of them counted"
)
NUMBERS = (
    "step",
    "batch_size",
    "tr_is",
    "tr_unif",
    "tr_opt",
    "n_ems",
    "score",
    "lr_scale",
    "nonfinite",
    "degenerate",
)
RAIS_WEIGHT = 0.01  # of a new minibatch in the moving averages of the rule "rais"


class Monitor:
    """Collects the sums of one optimizer step (one minibatch, or several accumulated) and turns them into numbers.

    A window opens with the first minibatch after `close` and takes all up to the next `close`. With
    `smoothing` = s in [0, 1) the sums behind the report are s * (those before) + (1 - s) * (this window);
    s = 0 is the paper. The rule "rais" averages three moments over windows. Everything stays on `device`; nothing
    here waits for it, and what is carried from step to step is written in place, so that CUDA graphs carry it, too.

    Paper: prop:tr_cov_est, eq:n_ems
    """

    def __init__(
        self, smoothing: float, unbiased: bool, max_scale: float, device: torch.device, on_host: bool = True
    ) -> None:
        self.smoothing, self.unbiased, self.max_scale, self.device = smoothing, unbiased, max_scale, device
        self._xp: Any = np if on_host else torch
        self.rule = "none"
        self.step: int | Tensor = 0
        self.open, self.added = False, 0  # whether a window is open; minibatches so far
        # gradient norms left out, and factors replaced by 1
        self.counts = self._zeros(2, "int64")
        self._gain = self._zeros(3, "float64")  # moving averages for the rule "rais"
        self._window: GradientSums | None = None
        self._before: GradientSums | None = None
        self._factor: Any = None
        self._bad: Any = False

    def _zeros(self, n: int, dtype: str) -> Any:
        if self._xp is np:
            return np.zeros(n, dtype)
        return torch.zeros(n, dtype=getattr(torch, dtype), device=self.device)

    def add(self, seen: Observation) -> None:
        """Take in a minibatch."""
        sums = GradientSums.from_norms(seen.r, seen.norms, seen.grad)
        if self._xp is torch or not np.maximum.reduce(seen.norms) <= NORM_MAX:
            self.counts[0] += (~(seen.norms <= NORM_MAX)).sum()
        if self.open and self._window is not None and self._goes_on(self._window, sums):
            sums = self._window + sums
        self.added += 1
        self._window, self.open, self._factor, self.step = sums, True, None, seen.step

    def _goes_on(self, window: GradientSums, sums: GradientSums) -> bool:
        """Whether a minibatch joins the open window, or begins it anew."""
        if window.grad.shape != sums.grad.shape:  # sequences, after a step that was skipped or while accumulating
            warnings.warn(OTHER_SHAPE, stacklevel=2)
            return False
        # one that a non-finite minibatch spoilt, whose step was then skipped (on a device looking would mean waiting)
        return self._xp is torch or bool(self._usable(window))

    def close(self) -> None:
        """End the window: the optimizer has stepped."""
        if not self.open:
            return
        if self._factor is not None:
            self.counts[1] += self._bad
        if self.smoothing:
            self._carry(self._smoothed())
        if self.rule == "rais":
            self._gain[:] = self._averaged()
        self.open = False

    def _smoothed(self) -> GradientSums:
        """The sums behind the report, with the open window in them."""
        assert self._window is not None
        if self._before is None or not self.open:
            return self._window if self._before is None else self._before
        s = self.smoothing
        mixed = self._before * s + self._window * (1 - s)
        # a minibatch with a non-finite gradient must not poison the average: then the sums before stand; and if these
        # are such a minibatch themselves, the first one, the window takes their place
        known, usable = self._usable(self._before), self._usable(mixed)
        stand, anew = (sums * (mixed.num / sums.num) for sums in (self._before, self._window))
        where = self._xp.where

        def best(name: str) -> Any:
            new, old, own = (getattr(sums, name) for sums in (mixed, stand, anew))
            return where(usable, new, where(known, old, own))

        return GradientSums(mixed.num, best("moments"), best("grad"), mixed.share)

    def _usable(self, sums: GradientSums) -> Any:
        return self._finite(sums.moments) & self._finite(sums.grad)

    def _finite(self, x: Any) -> Any:
        return self._xp.isfinite(x).all()

    def _carry(self, sums: GradientSums) -> None:
        if self._before is None:
            if self._xp is np and not self._usable(sums):
                return
            copy = np.copy if self._xp is np else torch.clone
            self._before = GradientSums(sums.num, copy(sums.moments), copy(sums.grad), sums.share)
        else:
            self._before.moments[:], self._before.grad[:] = sums.moments, sums.grad
            self._before = GradientSums(sums.num, self._before.moments, self._before.grad, sums.share)

    def _averaged(self) -> Any:
        """Moving averages of mean r|g|^2, mean r^2|g|^2 and |mean r g|^2, with the open window in them."""
        assert self._window is not None
        w = self._window
        both, mu2 = w.moments / w.num, w.grad @ w.grad / w.num**2
        new = np.array((both[1], both[0], mu2)) if self._xp is np else torch.stack((both[1], both[0], mu2))
        mixed = (1 - RAIS_WEIGHT) * self._gain + RAIS_WEIGHT * new
        return self._xp.where(self._finite(mixed), mixed, self._gain)

    def sums(self) -> tuple[Any, Any]:
        """(sum |rg|^2, sum r|g|^2, sum r|g|) and |sum r g|^2 of the latest window: what a log of its own needs."""
        assert self._window is not None
        return self._window.moments, self._window.grad @ self._window.grad

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
            if self.rule == "rais":
                uniform, drawn, mean = self._averaged() if self.open else self._gain
                ratio = moment_gain(uniform, drawn, mean, self._window.num)
            else:
                ratio = scale_ratio(self._raw_traces(), self.rule)
            self._factor, self._bad = guard_scale(ratio, self.max_scale)
        return self._factor

    def state_dict(self) -> dict[str, Tensor]:
        """Counts and what is averaged over steps."""
        none = GradientSums(0, [0.0] * 3, [])
        sums = self._smoothed() if self.smoothing and self._window is not None else none
        if sums is not none and not self._usable(sums):  # a minibatch that was not finite, and nothing before it
            sums = none
        values = {"counts": self.counts, "num": sums.num, "moments": sums.moments, "grad": sums.grad}
        values |= {"gain": self._gain, "share": sums.share if sums.share is not None else 0.0}
        dtypes = {k: torch.int64 if k == "counts" else torch.float64 for k in values}
        tensors = {k: torch.as_tensor(v, dtype=dtypes[k], device=self.device) for k, v in values.items()}
        return {k: v.cpu().clone() for k, v in tensors.items()}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Take over what `state_dict` gave; the window starts empty."""
        self._window = self._before = self._factor = None
        self.open = False
        num = float(state["num"])
        give = {k: v.numpy().copy() if self._xp is np else v.to(self.device) for k, v in state.items()}
        self.counts[:], self._gain[:] = give["counts"], give["gain"]
        if num:
            self._window = self._before = GradientSums(
                num, give["moments"], give["grad"], float(state["share"]) or None
            )


class Diagnostics:
    """The latest variance report as plain floats. Reading an attribute is the only thing that waits for the GPU.

    tr_is, tr_unif, tr_opt: variance traces; n_ems: effective minibatch size; score: S(W); lr_scale: the factor for
    (or of) the latest optimizer step, before the method's last word (self-paced skips some steps); step; batch_size:
    samples behind the numbers; nonfinite: gradient norms left out of the statistics so far; degenerate: steps so far
    whose factor was replaced by 1. A method may report more.
    `estimator` says in words what the training loss estimates, and whether it is biased.

    Paper: prop:tr_cov_est, eq:n_ems, eq:epsilon_ems, sec:metric
    """

    def __init__(
        self, monitor: Monitor, drain: Callable[[], None], estimator: str, more: Callable[[], dict[str, Any]]
    ) -> None:
        self._monitor, self._drain, self.estimator, self._more = monitor, drain, estimator, more

    def __getattr__(self, name: str) -> float:
        if not name.startswith("_"):
            self._drain()
            more = self._more()
            if name in more:
                return float(more[name])
            known = [*NUMBERS, *more]
            raise AttributeError(f"diagnostics have no {name!r}: they have {', '.join(known)}{nearest(name, known)}")
        raise AttributeError(name)

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
        """Gradient norms that were NaN, infinite or above 2^62, and left out of the statistics, so far."""
        self._drain()
        return int(self._monitor.counts[0])

    @property
    def degenerate(self) -> int:
        """Optimizer steps whose factor could not be computed and was 1, so far."""
        self._drain()
        return int(self._monitor.counts[1])

    def as_dict(self) -> dict[str, float]:
        """All of it, for a logger."""
        return {name: getattr(self, name) for name in (*NUMBERS, *self._more())}

    def __repr__(self) -> str:
        numbers = ", ".join(f"{k}={v:.4g}" for k, v in self.as_dict().items())
        return f"Diagnostics({numbers}, rule={self._monitor.rule!r}, estimator={self.estimator!r})"

"""From per-step sums to the variance report: traces, effective minibatch size, efficiency score, LR factor."""

from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..functional.rates import guard_scale, moment_gain, scale_ratio
from ..functional.traces import GradientSums, VarianceTraces
from ..statistics.limits import ANY, FROM_0, Limit
from ..statistics.scores import NORM_MAX
from .observation import Observation

OTHER_SHAPE = (
    "logits of another shape than those of the minibatch before, and no optimizer step between the two: the report and "
    "the learning-rate factor come from the latest alone; pad sequences to one length to have all of them counted"
)
STARTS_AGAIN = (
    "logits of another shape than those of the step before: the average over steps that smoothing makes starts again; "
    "pad sequences to one length, or do without smoothing"
)
SUM_MAX = 1e100  # of sums over a minibatch of what fits into float32: their squares fit into float64
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
        self._rais_moments = self._zeros(3, "float64")  # moving averages for the rule "rais"
        self._window: GradientSums | None = None
        self._before: GradientSums | None = None
        self._lr_scale: Any = None
        self._bad: Any = False

    def _zeros(self, n: int, dtype: str) -> Any:
        if self._xp is np:
            return np.zeros(n, dtype)
        return torch.zeros(n, dtype=getattr(torch, dtype), device=self.device)

    def add(self, observed: Observation) -> None:
        """Take in a minibatch."""
        sums = GradientSums.from_norms(observed.r, observed.norms, observed.grad)
        if self._xp is torch or not np.maximum.reduce(observed.norms) <= NORM_MAX:
            self.counts[0] += (~(observed.norms <= NORM_MAX)).sum()
        if self.open and self._window is not None and self._goes_on(self._window, sums):
            sums = self._window + sums
        if self.smoothing and self._before is not None and self._before.grad.shape != sums.grad.shape:
            warnings.warn(STARTS_AGAIN, stacklevel=2)
        self.added += 1
        self._window, self.open, self._lr_scale, self.step = sums, True, None, observed.step

    def _goes_on(self, window: GradientSums, sums: GradientSums) -> bool:
        """Whether a minibatch joins the open window, or starts a new one."""
        if window.grad.shape != sums.grad.shape:  # sequences, after a step that was skipped or while accumulating
            warnings.warn(OTHER_SHAPE, stacklevel=2)
            return False
        # one that a non-finite minibatch spoilt, whose step was then skipped (on a device looking would mean waiting)
        return self._xp is torch or bool(self._usable(window))

    def close(self) -> None:
        """End the window: the optimizer has stepped."""
        if not self.open:
            return
        if self._lr_scale is not None:
            self.counts[1] += self._bad
        if self.smoothing:
            self._carry(self._smoothed())
        if self.rule == "rais":
            self._rais_moments[:] = self._averaged()
        self.open = False

    def _smoothed(self) -> GradientSums:
        """The sums behind the report, with the open window in them."""
        assert self._window is not None
        if self._before is None or not self.open:
            return self._window if self._before is None else self._before
        if self._before.grad.shape != self._window.grad.shape:
            return self._window
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
        if self._before is None or self._before.grad.shape != sums.grad.shape:
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
        mixed = (1 - RAIS_WEIGHT) * self._rais_moments + RAIS_WEIGHT * new
        return self._xp.where(self._finite(mixed), mixed, self._rais_moments)

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

    def lr_scale(self) -> Any:
        """The guarded learning-rate factor of this window under the current rule, computed once a window.

        A 0-d tensor where the statistics live on a GPU, a float where they live on the CPU.
        """
        if self._lr_scale is None:
            if self._window is None:
                return 1.0
            if self.rule == "rais":
                uniform, drawn, mean = self._averaged() if self.open else self._rais_moments
                ratio = moment_gain(uniform, drawn, mean, self._window.num)
            else:
                ratio = scale_ratio(self._raw_traces(), self.rule)
            self._lr_scale, self._bad = guard_scale(ratio, self.max_scale)
        return self._lr_scale

    def state_dict(self) -> dict[str, Any]:
        """Counts, what is averaged over steps, the open window if there is one, and the factor of one that is closed.

        A closed window is not kept: its gradient may be long, and all that is still asked of it is the factor.
        """
        before = self._before if self._before is not None and self._usable(self._before) else None
        scale = math.nan if self.open or self._lr_scale is None else float(self._lr_scale)
        return {
            "added": self.added,
            "step": int(self.step),
            "counts": torch.as_tensor(self.counts, device=self.device).cpu().clone(),
            "rais_moments": torch.as_tensor(self._rais_moments, device=self.device).cpu().clone(),
            "lr_scale": torch.tensor(scale, dtype=torch.float64, device="cpu"),
            "before": saved_sums(before),
            "window": saved_sums(self._window if self.open else None),
        }

    def check_state(self, state: dict[str, Any]) -> None:
        """Refuse values that no run can have saved. A window that is open may hold a minibatch that is not finite."""
        for name, limit in (("counts", FROM_0), ("rais_moments", ANY), ("lr_scale", Limit(0.0, finite=False))):
            limit.check(state[name], f"monitor.{name}")
        for name in ("before", "window"):
            for part, high in (("num", 2.0**53), ("share", 1.0)):
                Limit(0.0, high).check(state[name][part], f"monitor.{name}.{part}")
            for part in ("moments", "grad"):
                Limit(-SUM_MAX, SUM_MAX, finite=name == "before").check(state[name][part], f"monitor.{name}.{part}")

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take over what `state_dict` gave."""
        self._before, window = (self._loaded_sums(state[name]) for name in ("before", "window"))
        self.open, self._window = window is not None, self._before if window is None else window
        self.added, self.step, self._bad = state["added"], state["step"], False
        self.counts[:], self._rais_moments[:] = (self._own(state[name]) for name in ("counts", "rais_moments"))
        scale = float(state["lr_scale"])
        self._lr_scale = None if math.isnan(scale) else self._own(state["lr_scale"])[()]

    def _own(self, saved: Tensor) -> Any:
        """A saved tensor as one of the arrays here."""
        return saved.numpy().copy() if self._xp is np else saved.to(self.device, copy=True)

    def _loaded_sums(self, state: dict[str, Tensor]) -> GradientSums | None:
        num, share = float(state["num"]), float(state["share"]) or None
        return GradientSums(num, self._own(state["moments"]), self._own(state["grad"]), share) if num else None


def saved_sums(sums: GradientSums | None) -> dict[str, Tensor]:
    """Sums as tensors on the CPU; `num` is 0 where there are none."""
    found = GradientSums(0, [0.0] * 3, []) if sums is None else sums
    values = {"num": found.num, "moments": found.moments, "grad": found.grad, "share": found.share or 0.0}
    tensors = {k: v if isinstance(v, Tensor) else torch.tensor(v, device="cpu") for k, v in values.items()}
    return {k: v.to("cpu", torch.float64, copy=True) for k, v in tensors.items()}

"""From per-step sums to the variance report: traces, effective minibatch size, efficiency score, LR factor."""

from __future__ import annotations

import math
import warnings
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from ..errors import number_from_0, positive_float, truth
from ..functional.rates import MAX_SCALE, STEADY_MAX, bounded, guard_scale, root, scale_ratio
from ..functional.traces import GradientSums, VarianceTraces
from ..statistics.arrays import Array, Arrays, Number
from ..statistics.limits import ANY, FROM_0, NORM_MAX, Limit
from .observation import Observation
from .smoothing import RaisMoments, SmoothedSums, loaded_sums, saved_sums, usable
from .steady import SteadyMoments
from .summary import RecentWindows

OTHER_SHAPE = (
    "logits of another shape than those of the minibatch before, and no optimizer step between the two: the report and "
    "the learning-rate factor come from the latest alone; pad sequences to one length to have all of them counted"
)
STARTS_AGAIN = (
    "logits of another shape than those of the step before: the average over steps that smoothing makes starts again; "
    "pad sequences to one length, or do without smoothing"
)
SUM_MAX = 1e100  # of sums over a minibatch of what fits into float32: their squares fit into float64


class Monitor:
    """Collects the sums of one optimizer step (one minibatch, or several accumulated) and turns them into numbers.

    These minibatches are a *window*. It opens with the first minibatch after `close` and takes all up to the next
    `close`. `smoothing` averages the sums behind the report over windows; 0 is the paper. Nothing here waits for a
    device. What is carried from step to step is written in place, so that CUDA graphs carry it, too.
    ordered: of several processes, which must come to the same bits.

    Paper: prop:tr_cov_est, eq:n_ems
    """

    def __init__(
        self,
        smoothing: float,
        unbiased: bool,
        max_scale: float | None,
        arrays: Arrays,
        epoch: int = 50,
        ordered: bool = False,
    ) -> None:
        smoothing, self.unbiased = number_from_0("smoothing", smoothing, below=1), truth("unbiased", unbiased)
        self.max_scale = None if max_scale is None else positive_float("max_scale", max_scale)
        self._arrays, self._ordered = arrays, ordered
        self._rule, self._ended = "none", False  # ended: the window is over, and not taken in yet
        self.step: int | Tensor = 0
        self.open, self.added = False, 0  # whether a window is open; minibatches so far
        self.r: Array | None = None  # of the latest minibatch
        # gradient norms left out, and factors replaced by 1
        self._saved_counts = torch.zeros(2, dtype=torch.int64, device=arrays.device)
        counts = arrays.array(self._saved_counts)  # the same memory
        self._left_out, self._replaced = counts[:1], counts[1:]
        self._smoothed, self._rais = SmoothedSums(smoothing, arrays), RaisMoments(arrays)
        self._steady, self._recent = SteadyMoments(arrays), RecentWindows(epoch, arrays)
        self._window: GradientSums | None = None  # the latest
        self._factor: Number | None = None  # of the window, once it was asked for
        self._degenerate: bool | Tensor = False  # whether that factor was replaced by 1

    @property
    def smoothing(self) -> float:
        """The part of the average over windows that each new one leaves; 0: no average."""
        return self._smoothed.smoothing

    @property
    def rule(self) -> str:
        """How the factor follows from the sums."""
        return self._rule

    @rule.setter
    def rule(self, rule: str) -> None:
        self._take_in()
        self._rule = rule

    @property
    def counts(self) -> Tensor:
        """Gradient norms left out, and factors replaced by 1, (2,)."""
        self._take_in()
        return self._saved_counts

    @property
    def recent(self) -> RecentWindows:
        """The latest windows."""
        self._take_in()
        return self._recent

    def add(self, observed: Observation) -> None:
        """Take in a minibatch."""
        self._take_in()
        assert observed.r is not None
        arrays, norms, sums = self._arrays, observed.norms, observed.sums(self._arrays)
        if self._ordered:
            sums = replace(sums, ordered=True)
        self._left_out += len(norms) - arrays.count(norms <= NORM_MAX)
        joins = self.open and self._window is not None and self._joins(self._window, sums)
        self._recent.look(observed.r, norms, joins)
        if joins and self._window is not None:
            sums = self._window + sums
        if self._smoothed.smoothing and not self._smoothed.fits(sums):
            warnings.warn(STARTS_AGAIN, stacklevel=2)
        self.added += 1
        self._window, self.open, self._factor, self.step = sums, True, None, observed.step
        self.r = observed.r

    def _joins(self, window: GradientSums, sums: GradientSums) -> bool:
        """Whether a minibatch joins the open window, or starts a new one."""
        if window.grad.shape != sums.grad.shape:  # sequences, after a step that was skipped or while accumulating
            warnings.warn(OTHER_SHAPE, stacklevel=2)
            return False
        # one that a non-finite minibatch spoilt, whose step was then skipped, is left behind
        return self._arrays.known(lambda: usable(window, self._arrays), otherwise=True)

    def close(self) -> None:
        """End the window: the optimizer has stepped.

        On the host it is taken in with the next minibatch, or when somebody asks: right after a step nothing of all
        this is in the processor's caches.
        """
        self._ended, self.open = self.open or self._ended, False
        if self._arrays.resident:
            self._take_in()

    def _take_in(self) -> None:
        """The window that was ended, if there is one."""
        if not self._ended or self._window is None:
            return
        self._ended = False
        if self._factor is not None and self._degenerate is not False:
            self._replaced += self._degenerate
        if self._smoothed.smoothing:
            self._smoothed.close(self._window)
        if self._rule == "rais":
            self._rais.close(self._window)
        window, num = self._window, self._window.num
        sums = self._arrays.concatenate((window.moments, window.square()[None]))
        if self._rule.startswith("steady"):
            self._steady.close(self._bounded(window, sums), num)
        self._recent.close(sums, 1.0 if self._factor is None else self._factor, num)

    def _bounded(self, window: GradientSums, sums: Array) -> Array:
        """A window's four sums. Of norms that say nothing on how gradients agree, the last is the largest possible."""
        if window.pairs is None or window.num_pairs:
            return sums
        return self._arrays.concatenate((window.moments, window.square_at_most()[None]))

    def sums(self) -> tuple[Tensor, Tensor]:
        """(sum |rg|^2, sum r|g|^2, sum r|g|) and |sum r g|^2 of the latest window: what a log of its own needs."""
        assert self._window is not None
        window, device = self._window, self._arrays.device
        moments, square = (torch.as_tensor(x, device=device) for x in (window.moments, window.square()))
        return moments, square

    @property
    def num(self) -> int:
        """Samples in the current window."""
        return 0 if self._window is None else int(self._window.num)

    def traces(self) -> VarianceTraces:
        """Variance traces of the current window (NaN before the first minibatch)."""
        self._take_in()
        nan = float("nan")
        traces = VarianceTraces(nan, nan, nan, nan, 1) if self._window is None else self._traces(self._window)
        return traces.tensors(torch.float64, self._arrays.device)

    def _traces(self, window: GradientSums) -> VarianceTraces:
        sums = window
        if self._smoothed.smoothing:
            sums = self._smoothed.with_window(window) if self.open else self._smoothed.average or window
        return sums.traces(self.unbiased, self._arrays.number)

    def lr_scale(self) -> Any:
        """The guarded learning-rate factor of this window under the current rule, computed once a window.

        A 0-d tensor where the statistics live on a GPU, a float where they live on the CPU.
        """
        self._take_in()
        if self._window is None and self._factor is None:
            return 1.0
        if self._factor is None:
            assert self._window is not None
            if self._rule.startswith("steady"):
                gain = self._steady.gain(self._window.num)  # finite, and 1 at least: it needs no guard
                self._factor = bounded(root(gain) if self._rule == "steady-sqrt" else gain, high=self.bound)
                self._degenerate = False
            else:
                self._factor, self._degenerate = guard_scale(self._ratio(self._window), self.bound)
        return self._factor

    def _ratio(self, window: GradientSums) -> Number:
        """The factor before it is guarded."""
        if self._rule == "rais":
            return self._rais.gain(window, self.open)
        found: Number = scale_ratio(self._traces(window), self._rule)
        return found

    @property
    def bound(self) -> float:
        """The largest factor."""
        if self.max_scale is not None:
            return self.max_scale
        if self._rule == "steady-sqrt":  # STEADY_MAX is of the gain, before the root
            return math.sqrt(STEADY_MAX)
        return STEADY_MAX if self._rule == "steady" else MAX_SCALE

    def state_dict(self) -> dict[str, Any]:
        """Counts, what is averaged over steps, the open window if there is one, and the factor of one that is closed.

        A closed window is not kept: its gradient may be long, and all that is still asked of it is the factor.
        """
        self._take_in()
        average = self._smoothed.average
        if average is not None and not usable(average, self._arrays):
            average = None
        scale = math.nan if self.open or self._factor is None else float(self._factor)
        return {
            "added": self.added,
            "step": int(self.step),
            "counts": self._saved_counts.cpu().clone(),
            "rais_moments": self._rais.saved.cpu().clone(),
            "steady": self._steady.saved.cpu().clone(),
            "recent": self._recent.state_dict(),
            "lr_scale": torch.tensor(scale, dtype=torch.float64, device="cpu"),
            "before": saved_sums(average, self._arrays),
            "window": saved_sums(self._window if self.open else None, self._arrays),
        }

    def check_state(self, state: dict[str, Any]) -> None:
        """Refuse values that no run can have saved. A window that is open may hold a minibatch that is not finite."""
        for name, limit in (("counts", FROM_0), ("rais_moments", ANY), ("steady", Limit(-SUM_MAX, SUM_MAX))):
            limit.check(state[name], f"monitor.{name}")
        FROM_0.check(state["steady"][:3], "monitor.steady")  # the fourth may be below 0: it estimates a square
        Limit(0.0, 1.0).check(state["steady"][4:], "monitor.steady")
        if not state["lr_scale"].isnan():  # NaN: there is none
            Limit(0.0, self.max_scale or MAX_SCALE).check(state["lr_scale"], "monitor.lr_scale")
        self._recent.check_state(state["recent"], state["added"])
        for name in ("before", "window"):
            for part, high in (("num", 2.0**53), ("share", 1.0), ("num_pairs", 2.0**106)):
                Limit(0.0, high).check(state[name][part], f"monitor.{name}.{part}")
            for part, low in (("moments", 0.0), ("grad", -SUM_MAX), ("pairs", -SUM_MAX)):
                Limit(low, SUM_MAX, finite=name == "before").check(state[name][part], f"monitor.{name}.{part}")

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take over what `state_dict` gave."""
        average, window = (loaded_sums(state[name], self._arrays, self._ordered) for name in ("before", "window"))
        self._smoothed.average, self._window = average, average if window is None else window
        self.open, self.added, self.step = window is not None, state["added"], state["step"]
        self._ended = False
        self._saved_counts.copy_(state["counts"])
        self._rais.saved.copy_(state["rais_moments"])
        self._steady.saved.copy_(state["steady"])
        self._recent.load_state_dict(state["recent"])
        known = not math.isnan(state["lr_scale"])
        scale = state["lr_scale"].clone().to(self._arrays.device)
        self._factor, self._degenerate = self._arrays.number(scale) if known else None, False

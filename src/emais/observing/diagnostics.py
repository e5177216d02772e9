"""The variance report of a run as plain floats."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ..errors import nearest
from ..functional.rates import effective_batch_size, efficiency_score
from ..functional.traces import VarianceTraces
from .handover import Settled
from .monitor import Monitor

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


class Diagnostics:
    """The latest variance report as plain floats. Reading an attribute is the only thing that waits for the GPU.

    tr_is, tr_unif, tr_opt: variance traces; n_ems: effective minibatch size; score: S(W); lr_scale: the factor for
    (or of) the latest optimizer step, before the method's last word (self-paced skips some steps); step; batch_size:
    samples behind the numbers; nonfinite: gradient norms left out of the statistics so far; degenerate: steps so far
    whose factor was replaced by 1. A method may report more.
    `estimator` says in words what the training loss estimates, and whether it is biased.

    Paper: prop:tr_cov_est, eq:n_ems, eq:epsilon_ems, sec:metric
    """

    def __init__(self, monitor: Monitor, settled: Settled, estimator: str, more: Callable[[], dict[str, Any]]) -> None:
        self._monitor, self._settled, self.estimator, self._more = monitor, settled, estimator, more

    def __getattr__(self, name: str) -> float:
        if name.startswith("_"):
            raise AttributeError(name)
        with self._settled:
            more = self._more()
        if name in more:
            return float(more[name])
        known = [*NUMBERS, *more]
        raise AttributeError(f"diagnostics have no {name!r}: they have {', '.join(known)}{nearest(name, known)}")

    def _traces(self) -> VarianceTraces:
        with self._settled:
            return self._monitor.traces()

    @property
    def step(self) -> int:
        """The latest step observed."""
        with self._settled:
            return int(self._monitor.step)

    @property
    def batch_size(self) -> int:
        """Samples of the latest optimizer step (all accumulated minibatches)."""
        with self._settled:
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
        with self._settled:
            return float(effective_batch_size(self._monitor.traces(), self._monitor.num))

    @property
    def score(self) -> float:
        """Efficiency score S(W): 0 optimal, 1 as uniform."""
        return float(efficiency_score(self._traces()))

    @property
    def lr_scale(self) -> float:
        """Guarded learning-rate factor."""
        with self._settled:
            return float(self._monitor.lr_scale())

    @property
    def r(self) -> Tensor:
        """The importance coefficients of the latest minibatch, (N,) on the CPU; none before the first."""
        with self._settled:
            found = () if self._monitor.r is None else self._monitor.r
            return torch.as_tensor(found, dtype=torch.float32).to("cpu", copy=True)

    @property
    def rule(self) -> str:
        """The learning-rate rule in force; "none" until an optimizer is attached."""
        return self._monitor.rule

    @property
    def nonfinite(self) -> int:
        """Gradient norms that were NaN, infinite or above 2^62, and left out of the statistics, so far."""
        with self._settled:
            return int(self._monitor.counts[0])

    @property
    def degenerate(self) -> int:
        """Optimizer steps whose factor could not be computed and was 1, so far."""
        with self._settled:
            return int(self._monitor.counts[1])

    def as_dict(self) -> dict[str, float]:
        """All of it, of one moment, for a logger."""
        with self._settled:
            traces, num, counts = self._monitor.traces(), self._monitor.num, self._monitor.counts.tolist()
            values: dict[str, Any] = dict(zip(("tr_is", "tr_unif", "tr_opt"), traces, strict=True))
            values |= {"n_ems": effective_batch_size(traces, num), "score": efficiency_score(traces)}
            values |= {"lr_scale": self._monitor.lr_scale(), **self._more()}
            whole = {"step": self._monitor.step, "batch_size": num, "nonfinite": counts[0], "degenerate": counts[1]}
            found = {k: float(v) for k, v in values.items()} | {k: int(v) for k, v in whole.items()}
            return {name: found[name] for name in (*NUMBERS, *(k for k in found if k not in NUMBERS))}

    def __repr__(self) -> str:
        numbers = ", ".join(f"{k}={v:.4g}" for k, v in self.as_dict().items())
        return f"Diagnostics({numbers}, rule={self.rule!r}, estimator={self.estimator!r})"

"""Algorithm 1's state: moving mean and variance of each sample's gradient norm, unevenly spaced in time."""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor

from ..errors import EmaisError, check_index, positive_float, positive_int, usable_device
from .arrays import Array, arrays_on
from .limits import FROM_0, NORM_MAX, Limit
from .table import SampleTable, outgrown, step_dtype

STARTS = ("zero", "first")


class EMAScores:
    """Moving statistics of gradient norms, and the importance w = mean + sqrt(var) they give.

    alpha = exp(-(t - t_prev)/tau); mean += (1 - alpha) delta; var = alpha (var + (1 - alpha) delta^2), with
    delta = g - mean. `tau="linear"` is the paper's Linear-tau, tau = t; a number fixes it. All start at 0
    (the paper does not say); `start="first"` takes a sample's first observation as its mean instead.

    mean, var: (M,) float32; last_step: (M,) int32, int64 beyond 2^31 steps and on a device, 0 for a sample never
    observed. 12 bytes per sample, or 16. resident: as of `Engine`.

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
        resident: bool | None = None,
    ) -> None:
        self.num_samples = num_samples = positive_int("num_samples", num_samples)
        if isinstance(tau, str) and tau != "linear":
            raise EmaisError(f'tau must be "linear" or a number above 0, got {tau!r}')
        self.tau = tau if isinstance(tau, str) else positive_float("tau", tau)
        if start not in STARTS:
            raise EmaisError(f"start must be one of {', '.join(STARTS)}, got {start!r}")
        self.start, self.unseen = start, unseen
        self._arrays = arrays_on(usable_device(device), resident)
        columns = {"mean": torch.float32, "var": torch.float32, "last_step": step_dtype(self._arrays)}
        self._table = SampleTable(num_samples, columns, self._arrays)
        self.mean, self.var = self._table["mean"], self._table["var"]

    @property
    def last_step(self) -> Tensor:
        """The latest step in which each sample was observed, (M,); 0 for one that never was."""
        return self._table["last_step"]

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
            step = self._arrays.number(step)
        else:
            step = positive_int("step", step)
            check_index(index, self.num_samples)
        self.learn(step, self._arrays.array(index), self._arrays.array(norms))
        return self.weights(index)

    def learn(self, step: int | Tensor, index: Array, norms: Array) -> tuple[Array, Array]:
        """`update` with arrays as an engine has them, unchecked: samples and their new weights, the last to count."""
        if outgrown(self._table["last_step"], step):
            self._table.widen("last_step", torch.int64)
        change = self._table.update(index, norms, partial(self._move, step))
        return change.index, self._weigh(*change.new)

    def _move(self, step: int | Tensor, g: Array, mean: Array, var: Array, last: Array) -> tuple[Array, Array, Array]:
        """The recurrences, in float32 all through: the weights must have the bits that the saved state gives."""
        arrays = self._arrays
        age = arrays.at_least(step - last, 0)  # minibatches out of order: a later observation of the sample stands
        past = arrays.single(age) / -(step if isinstance(self.tau, str) else self.tau)
        alpha, fresh = arrays.exp(past), -arrays.expm1(past)  # 1 - alpha keeps its digits for a large tau, too
        if self.start == "first":
            first = last == 0
            alpha, fresh = arrays.where(first, 0.0, alpha), arrays.where(first, 1.0, fresh)
        delta = g - mean
        part = fresh * delta
        return mean + part, alpha * (var + part * delta), last + age

    def _weigh(self, mean: Array, var: Array, last: Array) -> Array:
        return self._arrays.where(last > 0, mean + self._arrays.sqrt(var), self.unseen)

    def weights(self, index: Tensor | None = None) -> Tensor:
        """ComputeImportance: w = mean + sqrt(var), (M,) or of some samples; `unseen` for one never observed.

        Paper: alg:ema_is (ComputeImportance)
        """
        columns = self._table.all() if index is None else self._table.rows(self._arrays.array(index))
        return self._arrays.tensor(self._weigh(*columns))

    def state_dict(self) -> dict[str, Tensor]:
        """The three state tensors, copied to the CPU; steps as int64."""
        found = self._table.state_dict()
        return found | {"last_step": found["last_step"].long()}

    def nbytes(self) -> int:
        """Bytes of the three."""
        return self._table.nbytes()

    def limits(self, step: int) -> dict[str, Limit]:
        """What the saved values may be; step: the latest."""
        return {"mean": Limit(0.0, NORM_MAX), "var": FROM_0, "last_step": Limit(0, max(1, step))}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Take over tensors made by `state_dict`; they have been checked by the caller."""
        steps = step_dtype(self._arrays, int(state["last_step"].max()))
        if steps != self.last_step.dtype:
            self._table.widen("last_step", steps)
        self._table.load_state_dict(state)

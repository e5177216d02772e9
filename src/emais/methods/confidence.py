"""Confidence and ConfVar: draw what the model is unsure about, or what it wavers on, and train on the plain mean."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from ..errors import EmaisError
from ..loading.draw import Draw
from ..observing.observation import Observation
from ..statistics.arrays import Array, Number
from ..statistics.limits import FROM_0, Limit
from ..statistics.table import SampleTable
from .weighted import Weighted

_TOLERANCE = 0.02  # half-precision logits leave about 0.005
_ROUNDING = 1e-5  # of a mean of numbers from 0 to 1


class _OwnHistory(Weighted):
    """The history of 1 - p(true class) of each sample; p proportional to w + mean(w); the loss is the plain mean."""

    ignores_r = True
    estimator = "mean(losses) of samples drawn with p: biased towards samples with large p"
    needs_gradients = True
    columns: tuple[str, ...] = ("count", "mean", "m2")
    sample_columns = columns
    unseen = 0.0  # weight of a sample without a history

    def __init__(
        self,
        num_samples: int,
        batch_size: int = 128,
        num_steps: int | None = None,
        seed: int = 0,
        **options: Any,
    ) -> None:
        super().__init__(num_samples, batch_size, num_steps, seed, **options)
        self._history = SampleTable(num_samples, self.columns, self.arrays)
        self.refill()
        self._checked = False

    def signal(self, losses: Tensor, logits: Tensor, grads: Tensor, step: int | Tensor) -> Tensor:
        """1 - p(true class): what softmax - onehot holds, with a minus, at the class; rounding stays inside 0 and 1."""
        doubt = grads.float().amin(1).neg_().clamp_(0, 1)
        if not self._checked:
            self._checked = self._check(losses, logits, grads)
        return doubt

    def _check(self, losses: Tensor, logits: Tensor, grads: Tensor) -> bool:
        """On the first minibatch with a finite gradient. Softmax - onehot sums to 0, and exp(-loss) is p(true), too."""
        g = grads.float()
        off = (losses.float().neg().exp() - (1 + g.amin(1))).abs() + g.sum(1).abs()
        off = off[off.isfinite()]  # sync, once
        if logits.dim() != 2 or logits.shape[1] < 2 or (off > _TOLERANCE).any():
            raise EmaisError(
                f"{self.name} needs p(true class): cross-entropy losses (no label smoothing, no class weights) of "
                f"logits (N, classes) with one label per sample. Multi-label and regression targets have no such "
                f"probability; use emais or rais for them (logits here: {tuple(logits.shape)})"
            )
        return len(off) > 0

    def reduce(self, losses: Tensor, draw: Draw, signal: Tensor | None) -> Tensor:
        """The plain mean, as the paper does."""
        return losses.mean()

    def offset(self) -> Number:
        """mean(w): half of all draws are uniform."""
        return self._sampler.total() / self.num_samples

    def state(self) -> dict[str, Tensor]:
        """The history's moments."""
        return self._history.state_dict()

    def limits(self, step: int) -> dict[str, Limit]:
        """A count, the mean of numbers from 0 to 1, and a sum of squares."""
        known = {"count": FROM_0, "mean": Limit(0, 1 + _ROUNDING), "m2": FROM_0}
        return {name: known[name] for name in self.columns}

    def load_state(self, state: dict[str, Tensor]) -> None:
        """Take over what `state` gave."""
        self._history.load_state_dict(state)
        super().load_state(state)


class Confidence(_OwnHistory):
    """w_i = 1 - mean over the history of p(true class).

    warmup_epochs: epochs without replacement that come first. Further options: see `Engine`. 12.8 bytes per sample.

    >>> Confidence(num_samples=1000, batch_size=10).draw().step
    1
    """

    name = "confidence"
    unseen = 1.0
    sample_columns = columns = ("count", "mean")

    def weigh(self, observed: Observation) -> tuple[Array, Array]:
        """The running mean."""
        assert observed.signal is not None
        change = self._history.update(observed.index, observed.signal, self._move)
        return change.index, self._weight(*change.new)

    def _move(self, doubt: Array, count: Array, mean: Array) -> tuple[Array, ...]:
        return count + 1, mean + (doubt - mean) / (count + 1)

    def _weight(self, count: Array, mean: Array) -> Array:
        """The mean, or `unseen` for a sample without one."""
        seen = count.clip(0, 1)
        return mean * seen + self.unseen * (1 - seen)

    def all_weights(self) -> Array:
        """The same, of all samples."""
        return self._weight(*self._history.all())


class ConfVar(_OwnHistory):
    """w_i = sqrt(var + var^2/(n - 1)) of the history of p(true class), n long; `form="var"`: w_i = var.

    warmup_epochs: epochs without replacement that come first. Further options: see `Engine`. 16.8 bytes per sample.

    >>> ConfVar(num_samples=1000, batch_size=10).draw().step
    1
    """

    name = "confvar"

    def __init__(
        self,
        num_samples: int,
        batch_size: int = 128,
        num_steps: int | None = None,
        seed: int = 0,
        *,
        form: str = "std",
        **options: Any,
    ) -> None:
        if form not in ("std", "var"):
            raise EmaisError(f'form must be "std" (the original) or "var", got {form!r}')
        self.form = form
        super().__init__(num_samples, batch_size, num_steps, seed, **options)

    def weigh(self, observed: Observation) -> tuple[Array, Array]:
        """The running variance."""
        assert observed.signal is not None
        change = self._history.update(observed.index, observed.signal, self._move)
        return change.index, self._spread(*change.new)

    def _move(self, doubt: Array, count: Array, mean: Array, m2: Array) -> tuple[Array, ...]:
        delta = doubt - mean
        mean = mean + delta / (count + 1)
        return count + 1, mean, m2 + delta * (doubt - mean)

    def _spread(self, count: Array, mean: Array, m2: Array) -> Array:
        var = m2 / count.clip(1)
        if self.form == "var":
            return var
        return var**0.5 * (1 + var / (count - 1).clip(1)) ** 0.5  # two roots: the square of var may be too large

    def all_weights(self) -> Array:
        """The same, of all samples."""
        return self._spread(*self._history.all())

    def saved_settings(self) -> dict[str, Any]:
        """With the form."""
        return super().saved_settings() | {"form": self.form}

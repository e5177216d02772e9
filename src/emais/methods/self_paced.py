"""Self-paced learning: of each minibatch only samples with a small loss train, and the bound grows every epoch."""

from __future__ import annotations

import math
import sys
from typing import Any

import torch
from torch import Tensor

from ..engine import Engine
from ..errors import EmaisError, number_from_0, positive_float
from ..loading.draw import Draw
from ..observing.observation import Observation
from ..statistics.arrays import Number
from ..statistics.limits import FROM_0, Limit

LARGEST = 1e30  # how often 1/K may have multiplied


class SelfPaced(Engine):
    """Reshuffled epochs; after the first few, which are plain, a sample trains if loss < 1/K. 1/K starts at a
    percentile of the losses of the first minibatch after them and grows by a factor each epoch. A minibatch of which
    nothing is kept skips its step.

    percentile: share of that minibatch that is kept; growth: of 1/K an epoch; warmup_epochs: plain epochs, on all
    samples; with 0 the losses that set 1/K are those of the random start. Further options: see `Engine`. No bytes a
    sample.

    >>> imp = SelfPaced(4, batch_size=4, warmup_epochs=0)
    >>> z = torch.tensor([[0.0], [1.0], [2.0], [3.0]], requires_grad=True)
    >>> imp.loss(z.squeeze(1), z, imp.draw()).item()
    0.5
    >>> imp.diagnostics.kept
    2.0
    """

    name = "self-paced"
    estimator = "mean(losses) of the samples kept: biased towards easy ones"
    epoch_steps = None
    alone = "which samples are kept is known before the processes have told each other"

    def __init__(
        self,
        num_samples: int,
        batch_size: int = 128,
        num_steps: int | None = None,
        seed: int = 0,
        *,
        percentile: float = 0.6,
        growth: float = 1.2,
        warmup_epochs: float = 2,
        **options: Any,
    ) -> None:
        if isinstance(percentile, bool) or not isinstance(percentile, float) or not 0 < percentile < 1:
            raise EmaisError(f"percentile must be a share above 0 and below 1, got {percentile!r}")
        super().__init__(num_samples, batch_size, num_steps, seed, **options)
        self.percentile, self.growth = percentile, positive_float("growth", growth)
        self.warmup_epochs = number_from_0("warmup_epochs", warmup_epochs)
        self.plain_steps = math.ceil(warmup_epochs * num_samples / batch_size)
        # epochs after which 1/K grows no more: it is larger than any loss, and must stay a number
        self._last = math.ceil(math.log(LARGEST) / math.log(growth)) if growth > 1 else sys.maxsize
        # 1/K of the first epoch after these; NaN: not known yet
        self._start = torch.full((), torch.nan, dtype=torch.float32, device=self.device)
        self._known = False
        # kept of the latest optimizer step, kept so far, steps skipped so far
        self._counts = torch.zeros(3, dtype=torch.float64, device=self.device)
        self._counting = False  # whether minibatches are being accumulated for one optimizer step

    def signal(self, losses: Tensor, logits: Tensor, grads: Tensor, step: int | Tensor) -> Tensor:
        """1 for a sample that is kept, else 0."""
        plain = step <= self.plain_steps
        if self.arrays.known(lambda: plain, otherwise=False):
            return torch.ones_like(losses, dtype=torch.float32)
        if not self._known:
            first = losses.float().quantile(self.percentile).to(self.device)  # sync on the host, once
            unset = self._start.isnan() & (step > self.plain_steps)
            self._start.copy_(torch.where(unset, first, self._start))
            self._known = self.arrays.known(lambda: not self._start.isnan(), otherwise=False)
        kept: Tensor = (losses < self._start * self._grown(step)) | plain
        return kept.float()

    def _grown(self, step: int | Tensor) -> Any:
        """How much 1/K has grown: once for each epoch that is over since the plain ones."""
        epoch = (step - 1 - self.plain_steps) * self.batch_size // self.num_samples
        return self.growth ** self.arrays.number(self.arrays.at_most(epoch, self._last))

    def refresh(self, *args: Any, **options: Any) -> None:
        """There are no statistics to refresh."""

    def reduce(self, losses: Tensor, draw: Draw, signal: Tensor | None) -> Tensor:
        """The mean over the kept; 0 if there are none. A loss that is not finite shows: its gradient may be NaN."""
        assert signal is not None
        shown = torch.where(losses.isfinite(), 0.0, losses.detach())
        return (torch.where(signal > 0, losses, 0.0) + shown).sum() / signal.sum().clamp(min=1)

    def learn(self, observed: Observation) -> None:
        """Count."""
        if observed.signal is None or not observed.trained:
            return
        kept = self.arrays.tensor(observed.signal).sum().double()
        latest = kept + self._counts[0] if self._counting else kept
        self._counting = bool(self.attached.scalers)
        self._counts.copy_(torch.stack((latest, self._counts[1] + kept, self._counts[2])))

    def scale(self, factor: Number) -> Number:
        """0 if nothing was kept. On a device that stops the parameters, while momentum decays."""
        kept = (self._counts[0] > 0).double()
        if self._counting:
            self._counts[2] += 1 - kept
        self._counting = False
        scaled: Number = factor * self.arrays.number(kept)
        return scaled

    def report(self) -> dict[str, Any]:
        """kept: of the latest step; skipped: steps so far with nothing kept; threshold: 1/K now, NaN before."""
        step = torch.tensor(max(1 + self.plain_steps, int(self.monitor.step)), device=self.device)
        return {
            "kept": self._counts[0],
            "kept_so_far": self._counts[1],
            "skipped": self._counts[2],
            "threshold": self._start * self._grown(self.arrays.number(step)),
        }

    def saved_settings(self) -> dict[str, Any]:
        """With the percentile, the growth and the plain epochs."""
        own = {"percentile": self.percentile, "growth": self.growth, "warmup_epochs": self.warmup_epochs}
        return super().saved_settings() | own

    def state(self) -> dict[str, Tensor]:
        """1/K as it started, and the counts."""
        counting = torch.tensor(self._counting, device="cpu")
        return {"start": self._start.cpu().clone(), "counts": self._counts.cpu().clone(), "counting": counting}

    def limits(self, step: int) -> dict[str, Limit]:
        """1/K may not be known yet."""
        return {"start": Limit(finite=False), "counts": FROM_0}

    def load_state(self, state: dict[str, Tensor]) -> None:
        """Take over what `state` gave."""
        self._start.copy_(state["start"])
        self._known = not bool(state["start"].isnan())
        self._counts.copy_(state["counts"])
        self._counting = bool(state["counting"])

"""Audit: plain training that projects what EMAIS-auto would have done with it, and changes nothing."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from ..observing.finding import Finding
from ..observing.observation import Observation
from ..observing.projection import Projection
from ..statistics.arrays import Array
from ..statistics.limits import Limit
from .emais_auto import EMAISAuto


class Audit(EMAISAuto):
    """Draws and trains as SGD-Scan does, and keeps the statistics of EMAIS-auto beside it, without drawing from them.

    Each minibatch tells what its variance would have been under EMAIS-auto: mean(r' |g|^2) - |mean g|^2, with the r'
    that its statistics give before they see the minibatch. `finding()` has the projected effective minibatch size.
    Settings as in `EMAISAuto`: give those of the run that you plan. warmup_epochs changes nothing here.
    Bytes as EMAIS-auto, and at most 80,000 more.

    >>> imp = Audit(num_samples=1000, batch_size=10)
    >>> print(imp.finding())
    It is too early to say after 0 steps (0.0 epochs): it takes 200, to see every sample twice.
    """

    name = "audit"
    rule = "none"
    scans = True

    def __init__(self, num_samples: int, batch_size: int = 128, num_steps: int | None = None, **options: Any) -> None:
        super().__init__(num_samples, batch_size, num_steps, **options)
        # plain training has some statistics after an epoch; the pilot draws by them after its warm-up
        plain = -(-self.num_samples // self.draw_size) if self.scans else self.epoch_steps or 0
        epoch = self.epoch_length
        self._projection = Projection(self.num_samples, self.draw_size, not self.scans, plain, epoch, self.arrays)

    def weigh(self, observed: Observation) -> tuple[Array, Array]:
        """Project from the minibatch, then let the statistics take it in."""
        if observed.r is not None and observed.grad is not None:
            own = self._sampler.tree.coefficients(observed.index)
            self._projection.add(observed.r, own, observed.norms, observed.grad)
        return super().weigh(observed)

    def finding(self) -> Finding:
        """The projected effective minibatch size, with an interval and in words. Waits for a device."""
        with self._settled:
            return self._projection.finding(self._step_size())

    def _step_size(self) -> float:
        """Samples of an optimizer step: several minibatches where gradients are accumulated."""
        size = self.monitor.recent.rows[:, 5].nanmean().item()
        return size if size > 0 else float(self.global_batch_size)

    def report(self) -> dict[str, Any]:
        """With `projected`: n_ems of the finding; NaN before two epochs."""
        return super().report() | {"projected": self._projection.finding(self._step_size()).n_ems}

    def logged(self) -> dict[str, float]:
        """The projected n_ems and its range: NaN before two epochs."""
        found = self.finding()
        names = ("n_ems", "n_ems_low", "n_ems_high")
        return {f"projected_{name}": getattr(found, name) for name in names}

    def nbytes(self) -> int:
        """With what the finding comes from."""
        return super().nbytes() + sum(t.nbytes for t in self._projection.state_dict().values())

    def state(self) -> dict[str, Tensor]:
        """With what the finding comes from."""
        return super().state() | self._projection.state_dict()

    def limits(self, step: int) -> dict[str, Limit]:
        """Those of EMAIS-auto; sums of a minibatch may be anything."""
        return super().limits(step) | {"projected_count": Limit(0, step), "projected": Limit(finite=False)}

    def load_state(self, state: dict[str, Tensor]) -> None:
        """Take over what `state` gave."""
        self._projection.load_state_dict(state)
        super().load_state(state)


class Trial(Audit):
    """EMAIS-auto itself, with the finding of an audit: what the pilot `emais.audit` trains with."""

    rule = "steady"
    scans = False

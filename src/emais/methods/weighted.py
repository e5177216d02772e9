"""What methods that draw in proportion to learned weights share: a sampler, a warm-up in epochs, one hook."""

from __future__ import annotations

import math
import warnings
from typing import Any

import torch
from torch import Tensor

from ..draws.sampler import ExactSampler
from ..engine import Engine
from ..errors import EmaisError, number_from_0, positive_int, usable_device
from ..functional.precision import full_precision
from ..observing.observation import Observation
from ..processes import samples_of_a_draw
from ..statistics.arrays import Array, Number

PLAIN_RUN = (
    "this run has {} minibatch{}, all within the warm-up of {:g} epoch{}, so it is plain training: set {} lower, or "
    "train longer"
)


class Weighted(Engine):
    """Draws with p proportional to w (+ an offset). A method says in `weigh` what w a minibatch gives its samples.

    warmup_epochs: epochs without replacement that come first.
    """

    kappa: float | None = None  # most copies of a sample to expect in a minibatch; None: no bound
    scans = False  # whether all draws are epochs without replacement, and the weights are only kept
    period: int | None = None  # steps between two calls of `reweigh_all`; None: it is never called

    def __init__(
        self,
        num_samples: int,
        batch_size: int = 128,
        num_steps: int | None = None,
        seed: int = 0,
        *,
        warmup_epochs: float = 2,
        **options: Any,
    ) -> None:
        self.refuse_unknown(options)
        warmup_epochs = number_from_0("warmup_epochs", warmup_epochs)
        # made first: it refuses bad settings before anything large is laid out
        device, resident = usable_device(options.get("device", "cpu")), options.get("resident")
        batch_size = positive_int("batch_size", batch_size)
        drawn = samples_of_a_draw(batch_size, options.get("process_group"), options.get("sharded", False))
        if not options.get("sharded"):  # else all processes have to be told of a part that is too small
            self._sampler = ExactSampler(num_samples, drawn, self.kappa, device=device, resident=resident)
        self.epoch_steps = None if self.scans else math.ceil(warmup_epochs * num_samples / drawn)
        super().__init__(num_samples, batch_size, num_steps, seed, **options)
        if options.get("sharded"):
            self._sampler = ExactSampler(num_samples, drawn, self.kappa)
        self.source.sampler = self._sampler
        if type(self).offset is not Weighted.offset:
            if self.kappa is not None:
                raise EmaisError(f"{type(self).__name__} has an offset and a kappa: flattening is defined for w alone")
            self.source.offset = self.offset
        self.warmup_epochs = warmup_epochs
        self._due = 0  # the step after which `reweigh_all` comes next
        self._done = 0  # steps that a resident engine has made, counted without asking the device

    def weigh(self, observed: Observation) -> tuple[Array, Array]:
        """Samples and their new weights, in the engine's arrays; of a sample listed twice the last stays."""
        raise NotImplementedError

    def offset(self) -> Number | None:
        """A number added to all weights when a draw is made."""
        return None

    def reweigh_all(self) -> None:
        """What a method does every `period` steps, at O(M): it computes all weights again."""

    def all_weights(self) -> Array:
        """The weight of every sample, (M,), from the method's state: what a loaded state starts from."""
        raise NotImplementedError

    def refill(self) -> None:
        """Give the sampler the weights of all samples: O(M)."""
        self._sampler.fill(torch.as_tensor(self.all_weights(), device=self.device))

    @property
    def sampler(self) -> ExactSampler:
        """The sampler, with every minibatch observed so far in it."""
        with self._settled:
            return self._sampler

    def probabilities(self) -> Tensor:
        """The distribution that the next draw after the warm-up would come from, (M,) float64: O(M), for analysis."""
        with self._settled:
            return self._sampler.probabilities(self.offset())

    def learn(self, observed: Observation) -> None:
        """Take the new weights into the sampler, and revise them all when that is due."""
        index, weights = self.weigh(observed)
        self._sampler.tree.put(index, weights)
        # on a device `maintain` does this: a CUDA graph cannot do some things only now and then
        if self.period and observed.trained and not self.arrays.resident and observed.step >= self._due:
            self._due = int(observed.step) + self.period
            self.reweigh_all()

    def maintain(self) -> None:
        """`reweigh_all` of a resident engine when it is due: launched on the device, without waiting for it."""
        if self.period and self.arrays.resident:
            if self._done >= self._due:
                self._due = self._done + self.period
                with full_precision():
                    self.reweigh_all()
                    if self.source.ready:
                        self.source.prepare()  # the draw that was made with the old weights
            self._done += 1

    def nbytes(self) -> int:
        """Bytes of state, with the sampler's."""
        return super().nbytes() + self._sampler.nbytes()

    def saved_settings(self) -> dict[str, Any]:
        """With the warm-up."""
        return super().saved_settings() | {"warmup_epochs": self.warmup_epochs}

    def parts_joined(self) -> None:
        """Compute all weights again."""
        self.reweigh_all()

    def load_state(self, state: dict[str, Tensor]) -> None:
        """Fill the sampler; a method takes over its own tensors first. `due` is theirs to save, if they revise."""
        if "due" in state:
            self._due, self._done = int(state["due"]), int(self.source.step)
        self.refill()


def warn_of_plain_run(engine: Engine, steps: int, setting: str) -> None:
    """Say so if a run of so many minibatches ends within its warm-up; setting: how a user sets `warmup_epochs`."""
    if isinstance(engine, Weighted) and 0 < steps <= (engine.epoch_steps or 0):
        epochs = engine.warmup_epochs
        told = PLAIN_RUN.format(steps, "es" * (steps != 1), epochs, "s" * (epochs != 1), setting)
        warnings.warn(told, stacklevel=2)

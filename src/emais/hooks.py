"""What a method may fill in. Each hook has a default that does nothing, so a method writes only what it needs."""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from functools import cache
from typing import Any

import torch
from torch import Tensor

from .errors import EmaisError, UnknownOption
from .loading.draw import Draw, Score
from .observing.observation import Observation
from .statistics.arrays import Number
from .statistics.limits import Limit
from .statistics.per_sample import SampleStatistics


class Hooks:
    """The hooks of a method; docs/your_own_method.md has an example, and says when each is called."""

    name = "engine"
    estimator = "mean(r * losses): unbiased"  # what the training loss is, in words
    needs_gradients = False  # whether `signal` looks at gradients, so that norms alone cannot serve
    ignores_r = False  # whether the training loss is a plain mean
    needs_score = False  # whether the loader takes score=, a look at candidates before the draw
    alone = ""  # why a method cannot train on several processes, in words; empty: it can
    sample_columns: tuple[str, ...] = ()  # what `state` has of each sample, by name, samples last
    epoch_steps: int | None = 0  # steps that come from epochs without replacement; None: all
    candidates: int | None = None  # samples to look at in each step; None: those to train on
    rule = "none"  # of `attach` when none is given; of linear and steady, the Adam family gets the square root

    def learn(self, observed: Observation) -> None:
        """Take in a minibatch that was trained on."""

    def signal(self, losses: Tensor, logits: Tensor, grads: Tensor, step: int | Tensor) -> Tensor | None:
        """A number per sample (N,) that `learn` and `reduce` need besides the gradient norms, without waiting.

        grads (N, D); if the loop gives norms they come as a column (N, 1), unless the method `needs_gradients`.
        """
        return None

    def reduce(self, losses: Tensor, draw: Draw, signal: Tensor | None) -> Tensor:
        """The training loss of a minibatch."""
        if losses.dtype in (torch.half, torch.bfloat16):
            losses = losses.float()  # r/N of a sample that is drawn often is too small for them
        weights = draw.r.to(losses.dtype) / len(losses)  # in the precision of the losses, where the draw is
        return torch.dot(weights.to(losses, non_blocking=True), losses)

    def scale(self, factor: Number) -> Number:
        """Last word on the learning-rate factor of a step; 0 skips it."""
        return factor

    def select(self, batch: Any, draw: Draw, score: Score | None) -> tuple[Any, Draw]:
        """What the loader hands out of a minibatch that has arrived."""
        return batch, draw

    def maintain(self) -> None:
        """Work that falls due between steps. An eager loop has it done by `draw`; call it before each graph replay."""

    def report(self) -> dict[str, Any]:
        """Further numbers for `diagnostics`."""
        return {}

    def logged(self) -> dict[str, float]:
        """Further numbers for loggers, by the names that come after `emais/`."""
        return {}

    def sample_statistics(self) -> SampleStatistics | None:
        """What is known of each sample, for `samples`; None where the method keeps nothing of the kind."""
        return None

    def saved_settings(self) -> dict[str, Any]:
        """Settings that must agree between a saved state and the engine that loads it."""
        return {}

    def state(self) -> dict[str, Tensor]:
        """The method's own tensors, on the CPU."""
        return {}

    def __getstate__(self) -> Any:
        raise EmaisError(
            f"{type(self).__name__} cannot be copied or pickled: save its state_dict(), and load that into one "
            "made alike"
        )

    def nbytes(self) -> int:
        """Bytes of state that the method keeps."""
        return sum(t.numel() * t.element_size() for t in self.state().values())

    def load_state(self, state: dict[str, Tensor]) -> None:
        """Take over what `state` gave; names, shapes, dtypes and the values that `limits` speaks of were checked."""

    def parts_joined(self) -> None:
        """A loaded state was put together from parts: compute again what follows from all samples together."""

    def limits(self, step: int) -> dict[str, Limit]:
        """What the values of a saved tensor may be, by its name in `state`; step: the latest of that state."""
        return {}

    # ---- settings

    @classmethod
    @cache
    def settings(cls) -> list[str]:
        """Names of all settings that the constructor takes."""
        signatures = [inspect.signature(c.__init__) for c in cls.__mro__ if issubclass(c, Hooks)]
        open_ended = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
        named = [p.name for s in signatures for p in s.parameters.values() if p.kind not in open_ended]
        return sorted(set(named) - {"self"})

    @classmethod
    def refuse_unknown(cls, options: Iterable[str]) -> None:
        """Say that a keyword is unknown, before anything large is laid out."""
        for option in set(options).difference(known := cls.settings()):
            raise UnknownOption(cls.name, option, known)

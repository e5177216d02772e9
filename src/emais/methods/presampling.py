"""Presampling: look at many uniformly drawn candidates, train on the few that matter."""

from __future__ import annotations

import copy
from collections import UserDict
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from ..draws.uniforms import Uniforms, mix
from ..engine import Engine
from ..errors import EmaisError, positive_int
from ..loading.draw import Draw, DrawRecord, Score
from ..loading.engine_loader import EngineLoader
from ..observing.observation import Observation
from ..observing.scoring import score_norms
from ..statistics.limits import FROM_0, Limit

_DECAY = 0.9  # of the moving average behind the switch


class Presampling(Engine):
    """Each step draws `presample` candidates uniformly, scores them by their logit-gradient norm in a forward pass
    without gradients, and draws N of them with q proportional to it, with replacement; r = 1/(presample q).

    The loader takes the scoring pass: ``imp.loader(dataset, score=f)`` with f(batch) -> (losses, logits), or where
    data is indexed directly ``imp.draw(f)`` with f(index), which must augment a sample as training will. The model
    runs in evaluation mode there, without gradients, whatever f does (see `emais.observing.scoring`).

    switch: the original's: uniform minibatches while sampling would gain too little to pay. Default: always on, as
    the EMAIS paper ran it. batch_statistics: BatchNorm normalises candidates by their own statistics, as it does in
    training, and not by its averages. Further options: see `Engine`. No bytes per sample.

    >>> Presampling(num_samples=10_000, batch_size=128).presample
    1024
    """

    name = "presampling"
    needs_score = True
    alone = "each process would choose among its own candidates alone"

    def __init__(
        self,
        num_samples: int,
        batch_size: int = 128,
        num_steps: int | None = None,
        seed: int = 0,
        *,
        presample: int = 1024,
        switch: bool = False,
        batch_statistics: bool = False,
        **options: Any,
    ) -> None:
        self.presample, self.switch = positive_int("presample", presample), bool(switch)
        self.batch_statistics = bool(batch_statistics)
        if self.presample < positive_int("batch_size", batch_size):
            raise EmaisError(f"presample={presample} is below batch_size={batch_size}: the batch is drawn out of it")
        self.candidates = self.presample
        super().__init__(num_samples, batch_size, num_steps, seed, **options)
        if self.switch and self.arrays.resident:
            raise EmaisError("switch=True decides on the CPU in every step: make the engine without device=")
        self._uniforms = Uniforms(mix(self.seed, 1) >> 1, 1, self.batch_size, self.device)
        self._tau = 0.0  # moving average of sqrt(B sum q^2): how much a minibatch gains
        self._on = not self.switch

    def loader(self, dataset: Any, *, score: Score | None = None, **options: Any) -> EngineLoader:
        """As of `Engine`; score(batch) -> (losses, logits) of the candidates."""
        if score is None:
            raise EmaisError(
                "presampling scores its candidates in a forward pass: imp.loader(dataset, score=f) with "
                "f(batch) -> (losses, logits), one loss per sample"
            )
        return super().loader(dataset, score=score, **options)

    def draw(self, score: Score | None = None) -> Draw:
        """The next draw: score(index) -> (losses, logits) of the candidates. Without it, the candidates themselves."""
        candidates = super().draw()
        return candidates if score is None else self._choose(candidates, score, candidates.index)[1]

    def _look(
        self, losses: Tensor, logits: Tensor | None, draw: Draw, given: dict[str, Tensor | None]
    ) -> tuple[DrawRecord, Tensor, Tensor | None]:
        own = isinstance(draw, Draw) and draw._record.owner is self
        if own and len(draw) == self.presample != self.batch_size:
            raise EmaisError(
                f"these are all {len(draw)} candidates, not the {self.batch_size} to train on: imp.draw(f) with "
                "f(index) -> (losses, logits) chooses them"
            )
        return super()._look(losses, logits, draw, given)

    def select(self, batch: Any, draw: Draw, score: Score | None) -> tuple[Any, Draw]:
        """Of the candidates that have arrived, those to train on."""
        assert score is not None
        place, chosen = self._choose(draw, score, batch)
        return _take(batch, place, self.presample), chosen

    def _choose(self, candidates: Draw, score: Score, batch: Any) -> tuple[Tensor, Draw]:
        with self._settled:  # the switch must know what happened so far
            on = self._on
        if not on:
            place = torch.arange(self.batch_size, device=self.device)
            return place, self._draw_at(candidates, place, torch.ones_like(candidates.r.index_select(0, place)))
        norms = score_norms(score, batch, self.batch_statistics).detach()
        if len(norms) != self.presample:
            raise EmaisError(f"score must return one loss for each of {self.presample} candidates, got {len(norms)}")
        norms = norms.to(self.device)  # sync, to the CPU: the batch is cut there
        place, r = choose_candidates(norms, self._uniforms(candidates.step)[0])
        if self.switch:
            self._judge(norms)
        return place, self._draw_at(candidates, place, r)

    def _draw_at(self, candidates: Draw, place: Tensor, r: Tensor) -> Draw:
        """The candidates at these places, with this r."""
        index = candidates.index.index_select(0, place)
        return self.make_draw(candidates.step, self.arrays.array(index), self.arrays.array(r))

    def learn(self, observed: Observation) -> None:
        """While the switch is off, the minibatch itself says what sampling would gain."""
        if self.switch and not self._on and observed.trained:
            self._judge(self.arrays.tensor(observed.norms))

    def _judge(self, norms: Tensor) -> None:
        q = distribution(norms)
        self._tau = _DECAY * self._tau + (1 - _DECAY) * float((len(q) * q.square().sum()).sqrt())
        self._on = self._tau > (self.presample + 3 * self.batch_size) / (3 * self.batch_size)

    def report(self) -> dict[str, Any]:
        """on: whether the next step scores candidates; benefit: the moving average that the switch looks at."""
        return {"on": self._on, "benefit": self._tau}

    def saved_settings(self) -> dict[str, Any]:
        """With the number of candidates and how they are looked at."""
        own = {"presample": self.presample, "switch": self.switch, "batch_statistics": self.batch_statistics}
        return super().saved_settings() | own

    def state(self) -> dict[str, Tensor]:
        """What the switch knows."""
        tau = torch.tensor(self._tau, dtype=torch.float64, device="cpu")
        return {"tau": tau, "on": torch.tensor(self._on, device="cpu")}

    def limits(self, step: int) -> dict[str, Limit]:
        """The switch's moving average is of numbers from 0."""
        return {"tau": FROM_0}

    def load_state(self, state: dict[str, Tensor]) -> None:
        """Take over what `state` gave."""
        self._tau, self._on = float(state["tau"]), bool(state["on"])


def distribution(norms: Tensor) -> Tensor:
    """q proportional to the norms (B,), float64; uniform if all are 0. A norm that is not finite counts as the largest.

    >>> distribution(torch.tensor([1.0, 3.0, torch.nan, 0.0]))
    tensor([0.1429, 0.4286, 0.4286, 0.0000], dtype=torch.float64)
    """
    norms = norms.double()
    finite = norms.isfinite()
    top = torch.where(finite, norms, 0.0).amax()
    norms = torch.where(finite, norms, top)
    return torch.where(top > 0, norms, 1.0) / torch.where(top > 0, norms.sum(), float(len(norms)))


def choose_candidates(norms: Tensor, u: Tensor) -> tuple[Tensor, Tensor]:
    """Places (N,) among candidates with these norms (B,), drawn with `distribution`, and r = 1/(B q) (N,) float32.

    u (N,) are uniform numbers in [0, 1).
    """
    q = distribution(norms)
    ends = q.cumsum(0)
    place = torch.searchsorted(ends, u * ends[-1], right=True)
    return place, (1 / (len(q) * q.index_select(0, place))).float()


def _take(batch: Any, place: Tensor, size: int) -> Any:
    """The samples at these places of a collated batch of `size`: tensors are indexed, containers entered, and a list
    or tuple with one entry per sample is picked from.
    """
    if isinstance(batch, Tensor) and batch.dim() and len(batch) == size:
        return batch.index_select(0, place.to(batch.device))
    if isinstance(batch, Mapping):
        taken = {k: _take(v, place, size) for k, v in batch.items()}
        return _like(batch, taken)
    if isinstance(batch, (list, tuple)) and len(batch) == size and not _columns(batch, size):
        return type(batch)(batch[i] for i in place.tolist())
    if isinstance(batch, tuple) and hasattr(batch, "_fields"):
        return type(batch)(*(_take(v, place, size) for v in batch))
    if isinstance(batch, (list, tuple)):
        return type(batch)(_take(v, place, size) for v in batch)
    what = f"tensor of shape {tuple(batch.shape)}" if isinstance(batch, Tensor) else type(batch).__name__
    raise EmaisError(
        f"cannot pick samples out of a {what}: the batch of {size} candidates must be collated to tensors with one "
        "row a sample, to lists with one entry per sample, or to tuples, lists and dicts of these"
    )


def _like(batch: Mapping[Any, Any], taken: dict[Any, Any]) -> Any:
    """A mapping of the same kind with these entries: a copy with its own attributes, or a new one."""
    if isinstance(batch, dict | UserDict) and getattr(batch, "__dict__", None) is not batch:
        same = copy.copy(batch)
        same.update(taken)
        return same
    try:
        made = type(batch)(taken)  # type: ignore[call-arg]
    except Exception:  # a kind that is made of something else
        return taken
    return made if made.keys() == taken.keys() else taken


def _columns(batch: Any, size: int) -> bool:
    """Whether a list as long as the batch is made of columns: tensors that are as long as the batch, too."""
    return all(isinstance(v, Tensor) and v.dim() > 0 and len(v) == size for v in batch)

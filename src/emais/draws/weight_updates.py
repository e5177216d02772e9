"""Changes of weights that several processes make at the same place, each of its own samples."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ..errors import EmaisError
from .given_weights import some_weights


@dataclass(frozen=True)
class WeightUpdate:
    """What one process tells the others when it changes weights."""

    drawn: int  # the step that it has drawn up to
    delivered: int | None  # minibatches that its loop has got; None: not known
    loaded: str | None  # a name for the state that was loaded since the last update
    samples: np.ndarray
    values: np.ndarray
    problem: str | None = None  # why its update cannot be made

    @classmethod
    def of(cls, index: Any, weights: Any, num_samples: int, **where: Any) -> WeightUpdate:
        """An update as it was given; one that cannot be made travels, too, so that nobody waits for it."""
        try:
            samples, values = some_weights(index, weights, num_samples)
        except EmaisError as error:
            return cls(samples=np.empty(0, np.int64), values=np.empty(0), problem=str(error), **where)
        return cls(samples=samples, values=np.ascontiguousarray(values), **where)


def check_together(updates: list[WeightUpdate]) -> None:
    """Raise EmaisError on every process if the updates, in the order of ranks, do not belong together."""
    for rank, update in enumerate(updates):
        if update.problem:
            raise EmaisError(f"rank {rank} gave an update that cannot be made, so nobody makes one: {update.problem}")
    steps = {rank: update.delivered for rank, update in enumerate(updates) if update.delivered is not None}
    if len(set(steps.values())) > 1:
        told = ", ".join(f"rank {rank} is at step {step}" for rank, step in steps.items())
        raise EmaisError(
            f"the processes call update() at different steps: {told}. Each must call it at the same place of the loop"
        )
    if len({update.loaded for update in updates}) > 1:
        told = ", ".join(f"rank {rank} has loaded {update.loaded or 'none'}" for rank, update in enumerate(updates))
        raise EmaisError(f"the processes have different states: {told}. Load the state of rank 0 on all of them")


def all_changes(updates: list[WeightUpdate]) -> tuple[np.ndarray, np.ndarray]:
    """Samples and weights of all updates, in the order of ranks: of a repeated sample the last weight stays."""
    return np.concatenate([u.samples for u in updates]), np.concatenate([u.values for u in updates])

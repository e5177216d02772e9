"""The samples worth looking at: the hardest, the most unstable, and those never seen, as plain data."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import TypeAlias

import torch
from torch import Tensor

from ..errors import EmaisError, positive_int
from ..statistics.per_sample import SampleStatistics

Losses: TypeAlias = Tensor | Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Sample:
    """One sample. mean, deviation: of its gradient norm, NaN if it was never seen; last_step: 0 if never.

    weight: its importance; relative_probability: how many times as often as by uniform sampling it is drawn, M p (of an
    audit: would be drawn); loss: None unless losses were given.
    """

    index: int
    mean: float
    deviation: float
    last_step: int
    weight: float
    relative_probability: float
    loss: float | None = None


@dataclass(frozen=True)
class Samples:
    """hardest: largest mean first; unstable: largest deviation first; never_seen: by index.

    Each list has at most as many samples as were asked for; `num_never_seen` counts all of them. step: the latest step
    when the lists were made; num_samples: M.
    """

    method: str
    step: int
    num_samples: int
    num_never_seen: int
    hardest: list[Sample] = field(repr=False)
    unstable: list[Sample] = field(repr=False)
    never_seen: list[Sample] = field(repr=False)

    def __str__(self) -> str:
        """The first indices of each list."""
        lists = {"hardest": self.hardest, "most unstable": self.unstable, "never seen": self.never_seen}
        told = "; ".join(f"{name}: {_first(samples)}" for name, samples in lists.items())
        return f"Samples of {self.method} at step {self.step}, by index. {told}"


def _first(samples: list[Sample]) -> str:
    """Some of their indices."""
    return ", ".join(str(sample.index) for sample in samples[:5]) + ", …" * (len(samples) > 5) or "none"


def refuse_samples(method: str) -> EmaisError:
    """What an engine without statistics of single samples says."""
    return EmaisError(
        f"{method} keeps no statistics of single samples: train with emais, emais-auto or audit to have samples(), or "
        "rank the losses of a forward pass yourself"
    )


def pick_samples(
    method: str, step: int, statistics: SampleStatistics | None, count: int, losses: Losses | None
) -> Samples:
    """The lists, from what a method knows; the outcome is on the CPU."""
    count = positive_int("count", count)
    if statistics is None:
        raise refuse_samples(method)
    with torch.no_grad():
        seen = statistics.last_step > 0
        unseen = (~seen).nonzero().squeeze(1)  # sync on a device
        orders = [_largest(column, seen, count) for column in (statistics.mean, statistics.deviation)]
        orders.append(unseen[:count])
        every = torch.cat(orders)
        given = None if losses is None else _losses_of(every.cpu(), losses, len(seen))
    rows = iter(_rows(statistics, every, given))
    lists = [list(islice(rows, len(order))) for order in orders]
    return Samples(method, step, len(seen), len(unseen), *lists)


def _largest(column: Tensor, seen: Tensor, count: int) -> Tensor:
    """Indices of the largest values among the samples that were seen; of equal ones the lower index first."""
    values = torch.where(seen, column, -math.inf)
    last = values.topk(min(count, len(values))).values[-1]  # the smallest that is listed: which of its equals are?
    above, equal = ((chosen & seen).nonzero().squeeze(1) for chosen in (values > last, values == last))
    index = torch.cat((above, equal[: count - len(above)]))
    return index[values[index].argsort(descending=True, stable=True)]


def _losses_of(index: Tensor, losses: Losses, num_samples: int) -> list[float]:
    """The losses of these samples. A function is asked once, for each sample once."""
    if isinstance(losses, Tensor):
        if losses.shape != (num_samples,):
            raise EmaisError(
                f"losses must have one number per sample, ({num_samples},), got {tuple(losses.shape)}: or give a "
                "function from indices (n,) to losses (n,)"
            )
        found: list[float] = losses.detach().float().cpu()[index].tolist()
        return found
    if not callable(losses):
        raise EmaisError(
            f"losses must be a tensor ({num_samples},), or a function from indices (n,) to losses (n,), got "
            f"{type(losses).__name__}"
        )
    once, places = index.unique(return_inverse=True)
    asked = losses(once)
    if not isinstance(asked, Tensor) or asked.shape != once.shape:
        got = tuple(asked.shape) if isinstance(asked, Tensor) else type(asked).__name__
        raise EmaisError(
            f"losses must give a tensor with one loss per index, ({len(once)},), got {got}: compute them with "
            'reduction="none"'
        )
    found = asked.detach().float().cpu()[places].tolist()
    return found


def _rows(statistics: SampleStatistics, index: Tensor, losses: list[float] | None) -> list[Sample]:
    """The samples with what is known of them."""
    last = statistics.last_step[index]
    mean, deviation = (
        torch.where(last > 0, column[index], math.nan) for column in (statistics.mean, statistics.deviation)
    )
    relative = statistics.probabilities[index] * len(statistics.last_step)
    columns = (index, mean, deviation, last, statistics.weights[index], relative)
    given: Sequence[float | None] = [None] * len(index) if losses is None else losses
    return [Sample(*row) for row in zip(*(column.tolist() for column in columns), given, strict=True)]

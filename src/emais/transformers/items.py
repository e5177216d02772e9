"""How many items (tokens with a label) the loss of a step is divided by, when samples are not drawn alike."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..errors import EmaisError
from ..loading.draw import Draw

UNCOUNTED = -1
DrawnItems = tuple[Any, Any, Any]  # of a minibatch: index, r and n of its samples, in numpy
Gather = Callable[[Tensor], Tensor]  # the rows of all processes, from those of this one


class ExpectedItems:
    """The number of items that a uniform draw of so many samples has on average, from earlier minibatches.

    Trainer divides the summed loss by the number of items in the minibatches of a step. That number depends on what was
    drawn: where long samples are drawn more often it is too large, and the loss too small. Here it is the number of
    samples times n. Once every sample was seen, n is the mean over the data set of the latest count of each; before
    that, sum(r n_i) / sum(r) over earlier minibatches. The step's own draw has no part in n, so the loss is unbiased.
    Where all r are 1 the number is Trainer's own, and so is the loss. It keeps 4 bytes per sample.

    docs/guides/transformers.md has the mathematics.

    >>> from emais import EMAIS
    >>> imp, items = EMAIS(num_samples=8, batch_size=4), ExpectedItems(8)
    >>> items.of_step([imp.draw()], [torch.tensor([5, 1, 2, 2])])
    10.0
    """

    def __init__(self, num_samples: int) -> None:
        self.counts = np.full(num_samples, UNCOUNTED, dtype=np.int32)  # of each sample, the latest
        self._total, self._unseen = 0, num_samples  # items of all that were seen, and how many were not
        self._weighted, self._weight = 0.0, 0.0  # sum of r n_i, and of r
        self._ones: bool | None = None  # whether all samples so far had one item; None before the first step

    @property
    def mean(self) -> float:
        """Items of a sample, on average; NaN before the first minibatch."""
        if not self._unseen:
            return self._total / len(self.counts)
        return self._weighted / self._weight if self._weight else math.nan

    def of_ones(self, samples: int) -> float | None:
        """The number for so many samples of one item each; None once some had more or fewer: then take `of_step`."""
        if self._ones is None:
            self._ones = True
        return float(samples) if self._ones else None

    def of_step(
        self, draws: Sequence[Draw], counts: Sequence[Tensor], gather: Gather | None = None, apart: bool = False
    ) -> float:
        """What to divide the sum of r times the losses by; counts: of each minibatch its n_i, (N,) on the CPU.

        gather: where several processes train together, what brings rows of all of them, in the order of ranks. The
        number is then that of all their samples; apart: of those of this process alone.
        """
        if self._ones:  # and those of all other samples, as far as is known
            self.counts[:], self._total, self._unseen = 1, len(self.counts), 0
        self._ones = False
        pairs = zip(draws, counts, strict=True)
        own: list[DrawnItems] = [(draw.index.numpy(), draw.r.numpy(), count.numpy()) for draw, count in pairs]
        before, parts = self.mean, own if gather is None else _of_all(own, gather)
        for index, r, n in parts:
            self._add(index, r, n)
        counted = own if apart else parts
        if all(bool((r == 1).all()) for _, r, _ in parts):
            found = sum(float(n.sum()) for _, _, n in counted)
        else:
            mean = self.mean if math.isnan(before) else before  # the very first step has only itself
            found = sum(len(n) for _, _, n in counted) * mean
        return found or 1.0  # no item at all: the loss is 0, whatever it is divided by

    def _add(self, index: Any, r: Any, n: Any) -> None:
        if self._unseen:
            r = r.astype(np.float64)
            self._weighted += float(r @ n)
            self._weight += float(r.sum())
        elif bool((self.counts[index] == n).all()):
            return  # as they were
        once = np.unique(index)
        old = self.counts[once]
        self.counts[index] = n
        if self._unseen:
            self._unseen -= int((old == UNCOUNTED).sum())
            old = np.maximum(old, 0)
        self._total += int(self.counts[once].sum()) - int(old.sum())

    def state_dict(self) -> dict[str, Any]:
        """The counts, and the sums that hold until all are known."""
        sums = {"weighted": self._weighted, "weight": self._weight, "ones": self._ones}
        return {"counts": torch.from_numpy(self.counts.copy()), **sums}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from there."""
        counts = state["counts"].numpy()
        if counts.shape != self.counts.shape:
            raise EmaisError(
                f"the state counts the items of {len(counts)} samples, the data set has {len(self.counts)}"
            )
        self.counts[:] = counts
        self._total, self._unseen = int(np.maximum(counts, 0).sum()), int((counts == UNCOUNTED).sum())
        self._weighted, self._weight = float(state["weighted"]), float(state["weight"])
        self._ones = state.get("ones", False)


def _of_all(own: Sequence[DrawnItems], gather: Gather) -> list[DrawnItems]:
    """The minibatches of all processes: each with the samples of all ranks, as one process would have drawn them."""
    rows = torch.from_numpy(np.stack([np.stack(part, 1).astype(np.float64) for part in own]))  # (minibatches, N, 3)
    told = gather(rows.flatten(0, 1)).cpu().numpy()
    whole = told.reshape(-1, *rows.shape).swapaxes(0, 1).reshape(len(own), -1, 3)
    return [(part[:, 0].astype(np.int64), part[:, 1], part[:, 2]) for part in whole]

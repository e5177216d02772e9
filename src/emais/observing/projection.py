"""What another sampler would have done on the minibatches of a run: sums of each step, in a ring, and the finding."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ..statistics.arrays import Array, Arrays
from ..statistics.limits import NORM_MAX
from .finding import Finding
from .stretch import Stretch

LOOK_BACK = 1000  # steps that a number comes from
FEWEST = 20  # and where epochs are shorter than this, more than one of them, but at most half of what there is
ROW_LENGTH = 5


class Projection:
    """Estimates from the minibatches of a run what a sampler would have had, whoever drew them.

    A row has, of one minibatch drawn with r: mean(r r' |g|^2) and mean(r |g|^2), the second moments under the sampler
    and under uniform draws; (E|g|)^2 and |E g|^2, each from pairs of different samples, so that nothing is plugged in;
    and mean(r/r'). r' = 1/(M p') are the coefficients that the sampler gives, before it has seen the minibatch.

    mean(r/r') is 1 on average where every sample may come. Within an epoch without replacement only those come that
    were not there yet. Their statistics are the oldest, so that it is a little off, and `finding` divides it out.

    replaced: whether samples are drawn with replacement; plain: steps before the first that counts, which fill the
    statistics; epoch: steps of one, of all processes together.
    """

    def __init__(
        self, num_samples: int, batch_size: int, replaced: bool, plain: int, epoch: int, arrays: Arrays
    ) -> None:
        self._arrays, self._num_samples, self._batch_size = arrays, num_samples, batch_size
        self._same = 0.0 if replaced else 1 / num_samples  # pairs of a sample with itself that never come
        self._replaced, self._plain, self._epoch = replaced, plain, -(-num_samples // batch_size)
        self._length = min(max(epoch, FEWEST), LOOK_BACK)  # steps behind a number; the ring has those before it, too
        self.rows = torch.full((2 * self._length, ROW_LENGTH), math.nan, dtype=torch.float64, device=arrays.device)
        self.count = torch.zeros(1, dtype=torch.int64, device=arrays.device)  # minibatches so far
        self._rows, self._count = map(arrays.array, (self.rows, self.count))  # the same memory

    def add(self, r: Array, own: Array, norms: Array, grad: Array) -> None:
        """A minibatch: r (N,) of its draw, own (N,) the sampler's r', norms (N,), grad (D,) the sum of r g."""
        arrays, n = self._arrays, len(norms)
        # one that is infinite would give a warning beside its NaN
        size = arrays.double(arrays.where(norms <= NORM_MAX, norms, math.nan))
        vector = arrays.double(grad)
        part = r * size
        squares, uniform, total = part @ part, part @ size, part.sum()
        pairs = max(1, n * (n - 1))  # one sample has none: the means below are then taken as 0
        norm, mean = ((square - squares) / pairs for square in (total * total, vector @ vector))
        norm, mean = (x + self._same * (uniform / n - x) for x in (norm, mean))
        self._rows[self._count % len(self.rows)] = arrays.stack(  # type: ignore[assignment]
            ((own * part) @ size / n, uniform / n, norm, mean, (r / own).sum() / n)
        )
        self._count += 1

    def finding(self, batch_size: float) -> Finding:
        """What the latest epoch says; batch_size: samples of an optimizer step. Waits for a device."""
        steps, rows = int(self.count), self.rows.cpu()
        kept = min(steps, len(rows))
        rows = rows[torch.arange(steps - kept, steps, device="cpu") % len(rows)]
        recent = rows[-self._length :].isfinite().all(1)
        usable = max(0, min(steps - self._plain, kept))
        latest, before = self._split(rows[kept - usable :])
        return Finding.of(
            latest,
            before,
            batch_size,
            steps=steps,
            epochs=steps * self._batch_size / self._num_samples,
            needed=self._plain + max(self._epoch, 2),
            share=self._batch_size / self._num_samples,
            measured=self._replaced,
            finite=not kept or bool(2 * recent.sum() > len(recent)),
        )

    def _split(self, rows: Tensor) -> tuple[Stretch, Stretch]:
        """The latest stretch, and as many steps before it as there are."""
        length = min(self._length, max(self._epoch, len(rows) // 2))
        cut = max(0, len(rows) - length)
        latest, before = (Stretch.of(part[part.isfinite().all(1)]) for part in (rows[cut:], rows[:cut]))
        return latest, before

    def state_dict(self) -> dict[str, Tensor]:
        """All of it, copied to the CPU."""
        return {"projected": self.rows.cpu().clone(), "projected_count": self.count.cpu().clone()}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Take over what `state_dict` gave."""
        self.rows.copy_(state["projected"])
        self.count.copy_(state["projected_count"])

"""What runs in every step: the loader that hands the trainer its batches, and the loss of a training step."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from lightning.pytorch import LightningModule, Trainer
from torch import Tensor
from torch.utils.data import DataLoader

from ..engine import Engine
from ..loading.draw import Draw
from .processes import batches_of_an_epoch


class TrainLoader:
    """In place of the train DataLoader: as long as that one, yields batches alone, and keeps their draws for `loss`.

    A draw is kept under the place of its batch in the epoch, which the trainer counts, too. So it does not matter how
    many batches are fetched ahead of the one that trains. begin: called when an epoch begins.
    """

    def __init__(self, engine: Engine, given: DataLoader[Any], trainer: Trainer, begin: Callable[[], None]) -> None:
        self.engine, self._trainer, self._begin = engine, trainer, begin
        processes = engine.global_batch_size // engine.batch_size
        self._loader, self._length = engine.loader(given), batches_of_an_epoch(given, processes)
        self._draws: dict[int, Draw] = {}

    def __len__(self) -> int:
        """Batches of an epoch in this process, as without importance sampling: `drop_last` counts."""
        return self._length

    def __iter__(self) -> Iterator[Any]:
        # a generator: the trainer makes iterators before it knows where the epoch begins, and not all are used
        begin = self._trainer.fit_loop.batch_idx + 1  # above 0 after a resume inside an epoch
        self._begin()
        self.engine.passes.go_on_at(begin)
        self._draws = {}
        for place, (batch, draw) in zip(range(begin, self._length), self._loader, strict=False):
            now = self._trainer.fit_loop.batch_idx
            self._draws = {at: kept for at, kept in self._draws.items() if at >= now} | {place: draw}
            yield batch

    def draw(self) -> Draw:
        """The draw of the batch that is being trained on."""
        return self._draws[self._trainer.fit_loop.batch_idx]

    def observed(self) -> bool:
        """Whether `loss` was called for the batch that is being trained on."""
        return self.draw()._record.used

    @property
    def dataset(self) -> Any:
        """The train data set."""
        return self._loader.dataset

    @property
    def batch_size(self) -> int:
        """Samples of a batch."""
        return self._loader.batch_size

    @property
    def num_workers(self) -> int:
        """Worker processes that fetch batches."""
        return self._loader.num_workers

    def state_dict(self) -> dict[str, Any]:
        """Empty. The trainer takes a loader with this method for one that can resume; the callback has the state."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Nothing to do: the callback has the state."""


def train_loader(module: LightningModule) -> TrainLoader | None:
    """Our loader, if a trainer is training this module on it at present."""
    try:
        trainer = module.trainer
    except RuntimeError:  # no trainer has this module
        return None
    found = trainer.train_dataloader if getattr(trainer, "training", False) else None
    return found if isinstance(found, TrainLoader) else None


def loss(module: LightningModule, losses: Tensor, logits: Tensor, **options: Any) -> Tensor:
    """The loss of a training step: mean(r * losses), after the minibatch was observed.

    losses (N,): one number per sample (reduction="none"); logits (N, ...): what the losses were computed from. Without
    the callback, and in validation, it is ``losses.mean()``. Options are those of `Engine.loss`.
    """
    loader = train_loader(module)
    if loader is None:
        return losses.mean()
    return loader.engine.loss(losses, logits, loader.draw(), **options)

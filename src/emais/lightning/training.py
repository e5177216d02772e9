"""What runs in every step: the loader that hands the trainer its batches, and the loss of a training step."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.utilities import CombinedLoader
from torch import Tensor
from torch.utils.data import DataLoader

from ..engine import Engine
from ..hooks import Hooks
from ..loading.draw import Draw
from ..loading.loader import Loader, WithoutSampler
from .checks import check_first, check_length, check_unobserved


class TrainLoader(WithoutSampler):
    """In place of the train DataLoader: as long as that one, and keeps the draws of batches that train for `loss`.

    The trainer takes its batches from `training_pass`. Whoever else iterates over this loader has a look at the data:
    a pass over `plain`, which draws nothing from the engine.

    A draw is kept under the place of its batch in the epoch, which the trainer counts, too. So it does not matter how
    many batches are fetched ahead of the one that trains. plain: what this process would have trained on without
    importance sampling. begin: called when an epoch begins.
    """

    def __init__(
        self,
        engine: Engine,
        given: DataLoader[Any],
        plain: DataLoader[Any],
        trainer: Trainer,
        begin: Callable[[], None],
    ) -> None:
        self.engine, self._given, self._plain, self._trainer, self._begin = engine, given, plain, trainer, begin
        self._length = len(plain)
        self._loader: Loader | None = engine.loader(given)
        self._draws: dict[int, Draw] = {}
        self._weighted = -1  # the place of the latest batch whose coefficients were used without observing it

    def __len__(self) -> int:
        """Batches of an epoch in this process, as without importance sampling: `drop_last` counts."""
        return self._length

    def __iter__(self) -> Iterator[Any]:
        return iter(self._plain)

    def training_pass(self) -> Iterator[Any]:
        """The batches of an epoch, or those that are left of one that is resumed; for the trainer alone."""
        # a generator: the trainer makes iterators before it knows where the epoch begins, and not all are used
        check_length(self._given, self.engine.num_samples, "so far")  # it may have grown since
        begin = self._trainer.fit_loop.batch_idx + 1  # above 0 after a resume inside an epoch
        self._begin()
        self.engine.passes.go_on_at(begin)
        self._draws, self._weighted = {}, -1
        self._loader = self._loader or self.engine.loader(self._given)
        for place, (batch, draw) in zip(range(begin, self._length), self._loader, strict=False):
            now = self._trainer.fit_loop.batch_idx
            self._draws = {at: kept for at, kept in self._draws.items() if at >= now} | {place: draw}
            yield batch

    def close(self) -> None:
        """Let go of worker processes: they end when nobody has their DataLoader. The next pass makes another."""
        self._loader = None

    # ---- the batch that is being trained on

    def draw(self) -> Draw:
        """Its draw."""
        return self._draws[self._trainer.fit_loop.batch_idx]

    def used(self) -> bool:
        """Whether `loss` was called for it."""
        place = self._trainer.fit_loop.batch_idx
        return self._weighted == place or self._draws[place]._record.used

    def loss(self, losses: Tensor, logits: Tensor, observe: bool, options: dict[str, Any]) -> Tensor:
        """Its training loss; observe=False: without a word to the engine."""
        draw = self.draw()
        if observe:
            check_first(draw)
            return self.engine.loss(losses, logits, draw, **options)
        check_unobserved(losses, draw, options)
        self._weighted = self._trainer.fit_loop.batch_idx
        # not the method's own, which may need a signal of the observation
        return losses.mean() if self.engine.ignores_r else Hooks.reduce(self.engine, losses, draw, None)

    # ---- what others read

    @property
    def dataset(self) -> Any:
        """The train data set."""
        return self._given.dataset

    @property
    def batch_size(self) -> int:
        """Samples of a batch."""
        return self.engine.batch_size

    @property
    def num_workers(self) -> int:
        """Worker processes that fetch batches."""
        return self._given.num_workers

    @property
    def collate_fn(self) -> Any:
        """What makes a batch of samples."""
        return self._given.collate_fn

    @property
    def drop_last(self) -> bool:
        """Whether an epoch leaves out what does not fill a batch."""
        return self._given.drop_last

    @property
    def pin_memory(self) -> bool:
        """Whether batches come in pinned memory."""
        return self._given.pin_memory


class _TrainingPasses:
    """What the trainer iterates over: each pass is one of its epochs."""

    def __init__(self, loader: TrainLoader) -> None:
        self.loader = loader

    def __iter__(self) -> Iterator[Any]:
        return self.loader.training_pass()

    def __len__(self) -> int:
        return len(self.loader)

    @property
    def dataset(self) -> Any:
        """The train data set, for a tuner that wants its length."""
        return self.loader.dataset

    def state_dict(self) -> dict[str, Any]:
        """Empty. The trainer takes a loader with this method for one that can resume; the callback has the state."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Nothing to do: the callback has the state."""


class TrainSource(CombinedLoader):
    """Has the trainer train on the passes of a TrainLoader, and shows everybody else the TrainLoader itself.

    The trainer makes a CombinedLoader of any loader. It iterates over `flattened`, and `trainer.train_dataloader` is
    `iterables`. So a hook that iterates over `trainer.train_dataloader` never gets the trainer's own pass.
    """

    def __init__(self, loader: TrainLoader) -> None:
        super().__init__(_TrainingPasses(loader), "max_size_cycle")  # the trainer's own mode

    @property
    def iterables(self) -> Any:
        """The TrainLoader, unless a strategy has put something else in its place."""
        found = super().iterables
        return found.loader if isinstance(found, _TrainingPasses) else found


class StepUnderWay:
    """On the module while a batch trains, so that `loss` need not ask the trainer; a copy of it knows nothing."""

    NAME = "_emais_step"

    def __init__(self, loader: TrainLoader | None = None) -> None:
        self.loader = loader

    def __reduce__(self) -> tuple[type[StepUnderWay], tuple[()]]:
        return StepUnderWay, ()


def train_loader(module: LightningModule) -> TrainLoader | None:
    """Our loader, if a trainer is training this module on it at present."""
    step = vars(module).get(StepUnderWay.NAME)
    if step is not None and step.loader is not None:
        return step.loader  # type: ignore[no-any-return]
    try:
        trainer = module.trainer
    except RuntimeError:  # no trainer has this module
        return None
    found = trainer.train_dataloader if getattr(trainer, "training", False) else None
    return found if isinstance(found, TrainLoader) else None


def loss(module: LightningModule, losses: Tensor, logits: Tensor, *, observe: bool = True, **options: Any) -> Tensor:
    """The loss of a training step: mean(r * losses), after the minibatch was observed.

    losses (N,): one number per sample (reduction="none"); logits (N, ...): what the losses were computed from. Without
    the callback, and in validation, it is ``losses.mean()``. Each batch is observed once: for further losses on it,
    as of a second forward pass or another head, pass observe=False. Other options are those of `Engine.loss`.
    """
    loader = train_loader(module)
    return losses.mean() if loader is None else loader.loss(losses, logits, observe, options)

"""What the Trainer takes for its training DataLoader: minibatches that carry their draws."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, MutableMapping
from typing import Any

from accelerate.data_loader import BatchSamplerShard
from torch.utils.data import BatchSampler
from transformers import TrainerCallback

from ..errors import EmaisError
from ..loading.draw import Draw
from ..loading.fetching import as_it_is
from ..loading.loader import Loader

KEY = "emais_draw"  # of the draw in a minibatch, until the training step takes it out


def draw_of(batch: Any) -> Draw:
    """The draw that a minibatch carries."""
    if KEY not in batch:
        raise EmaisError(
            "the minibatch has no draw: get_train_dataloader was replaced in a subclass, or minibatches are changed on "
            "their way. Leave it as ImportanceMixin has it, with the mixin first among the base classes"
        )
    draw: Draw = batch[KEY]
    return draw


def sizes(plain: Any, processes: int) -> tuple[int, int]:
    """Of a Trainer's DataLoader: samples of a minibatch on one process, and minibatches of an epoch."""
    batches, samples = plain.batch_sampler, len(plain.dataset)
    size = int(batches.batch_size)
    if isinstance(batches, BatchSamplerShard) and batches.split_batches:
        size //= processes  # it is the size on all processes together
    whole = size * processes
    return size, samples // whole if batches.drop_last else -(-samples // whole)


def check_same_length(found: int, samples: int) -> None:
    """Refuse a data set of another length than the statistics are of."""
    if found != samples:
        raise EmaisError(
            f"train_dataset has {found} samples now, and the statistics of this run are of {samples}: leave its length "
            "alone while train() runs; the next train() begins new statistics with the data set as it is then"
        )


class Stream:
    """The minibatches of one run, pass after pass; asked for an entry, it gives the next one, whatever its number."""

    def __init__(self, loader: Loader) -> None:
        self._loader, self._samples = loader, len(loader.dataset)
        self._passes: Generator[tuple[Any, Draw], None, None] | None = None

    def __len__(self) -> int:
        """Samples, as of any data set."""
        return len(self._loader.dataset)

    def __getitems__(self, _: list[int]) -> Any:
        if self._passes is None:
            self._passes = self._endless()
        batch, draw = next(self._passes)
        if not isinstance(batch, MutableMapping):
            raise EmaisError(
                f"the data collator made a {type(batch).__name__} of a minibatch: have it return a dict with the names "
                "of the model's arguments, as all collators of transformers do"
            )
        batch[KEY] = draw
        return batch

    def _endless(self) -> Generator[tuple[Any, Draw], None, None]:
        while True:
            check_same_length(len(self), self._samples)  # it may have grown since
            yield from self._loader

    def close(self) -> None:
        """End the pass under way, and with it the worker processes."""
        self._passes, passes = None, self._passes
        if passes is not None:
            passes.close()


class DrawnBatches:
    """`length` minibatches an epoch, each with its draw under `KEY`.

    An epoch of the Trainer is only a number of minibatches: the stream behind it goes on where it was, also after a
    resume. There the Trainer has accelerate make a DataLoader that leaves out the first minibatches, from the
    attributes of this object. The one made from these takes the next minibatches of the stream, so what the loaded
    state has behind it is not skipped once more.
    """

    sampler, prefetch_factor, num_workers = None, None, 0  # the stream has workers of its own
    collate_fn = staticmethod(as_it_is)

    def __init__(self, loader: Loader, length: int) -> None:
        self.dataset, self.batch_size = Stream(loader), loader.batch_size
        self.batch_sampler = BatchSampler(range(length), 1, drop_last=False)

    def __len__(self) -> int:
        return len(self.batch_sampler)

    def __iter__(self) -> Iterator[Any]:
        for numbers in self.batch_sampler:
            yield self.dataset.__getitems__(numbers)


class PlainLooks(TrainerCallback):
    """Shows callbacks the Trainer's own DataLoader: a look at it draws nothing from the engine.

    begin: called with the number of optimizer steps that the Trainer has planned.
    """

    def __init__(self, begin: Callable[[int], None]) -> None:
        self._begin = begin

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """The Trainer has just told its callbacks which loader it trains on."""
        self._begin(state.max_steps)

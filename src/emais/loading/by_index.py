"""A data set that is read by index, with a length that the user gives."""

from __future__ import annotations

from typing import Any

from torch.utils.data import Dataset

from ..errors import EmaisError, positive_int

GIVE_LENGTH = "give the number of all samples, emais.ByIndex(dataset, length=M)"


class ByIndex(Dataset[Any]):
    """`dataset` as torch's map-style data sets are: sample i is dataset[i], and its length is the one given here.

    It is for data sets that can be read by index but subclass IterableDataset, such as StreamingDataset of
    mosaicml-streaming and of LitData. torch would iterate over them, and their len() may be the share of one process.

    length: the samples that the engine draws from: all of them, or with sharded=True those of this process's part.

    >>> len(ByIndex("abc", length=3)), ByIndex("abc", length=3)[1]
    (3, 'b')
    """

    def __init__(self, dataset: Any, length: int) -> None:
        if not is_indexable(dataset):
            raise EmaisError(f"{type(dataset).__name__} cannot be read by index: pass a data set with __getitem__")
        self.dataset, self.length = dataset, positive_int("length", length)

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> Any:
        return self.dataset[index]

    def __getitems__(self, indices: list[int]) -> list[Any]:
        """A whole minibatch, at once if the data set can do that."""
        many = getattr(self.dataset, "__getitems__", None)
        found: list[Any] = [self.dataset[i] for i in indices] if many is None else many(indices)
        return found


def is_indexable(dataset: Any) -> bool:
    """Whether a data set gives samples by index, one by one or many at once.

    >>> is_indexable([1, 2]), is_indexable(iter([1, 2])), is_indexable(Dataset())
    (True, False, False)
    """
    own = getattr(type(dataset), "__getitem__", None)
    if own in (None, Dataset.__getitem__):  # the one of torch's base class raises an error
        return hasattr(dataset, "__getitems__")
    # that of a streamed Hugging Face data set takes the name of a column, and says so
    return getattr(own, "__annotations__", {}).get("column_name") not in (str, "str")

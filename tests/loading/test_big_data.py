"""Data that is read by index where it lies: memory-mapped arrays, and data sets that subclass IterableDataset."""

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset

import emais
from emais import EmaisError

M, N = 40, 8
WORKERS = pytest.mark.parametrize("workers", [0, 2])


class FromFile(Dataset):
    """Rows of an array that stays on the disk. "c": torch warns about arrays that cannot be written to."""

    def __init__(self, path):
        self.rows = np.load(path, mmap_mode="c")

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        return self.rows[i], i


class ByIndexFirst:
    """The part of a streaming data set that is read by index."""

    def __getitem__(self, i):
        assert type(i) is int
        if not 0 <= i < M:
            raise IndexError(i)
        return {"x": torch.tensor(float(i)), "i": i}


class Streaming(ByIndexFirst, IterableDataset):
    """As in mosaicml-streaming and LitData: read by index, iterated over, and as long as the part of one process."""

    def __init__(self, length=M):
        self.length = length

    def __len__(self):
        return self.length

    def __iter__(self):
        raise AssertionError("it must be read by index")


class WithoutLength(ByIndexFirst, IterableDataset):
    """A data set that does not know its length."""

    def __iter__(self):
        raise AssertionError("it must be read by index")


class Together(Streaming):
    """It reads a whole minibatch at once."""

    def __getitems__(self, indices):
        return [{"x": torch.tensor(float(i)), "i": i} for i in indices]

    def __getitem__(self, i):
        raise AssertionError("a minibatch is read at once")


def observed(loader, imp):
    """Minibatches of a pass, with their draws."""
    found = []
    for batch, draw in loader:
        z = torch.zeros(len(draw), 1, requires_grad=True)
        imp.loss(z.squeeze(1), z, draw)
        found.append((batch, draw.index))
    assert len(found) == M // N
    return found


@pytest.fixture
def path(tmp_path):
    np.save(tmp_path / "rows.npy", np.arange(M * 3, dtype=np.float32).reshape(M, 3))
    return tmp_path / "rows.npy"


@WORKERS
def test_a_memory_mapped_array_in_a_data_set(path, workers):
    imp, dataset = emais.EMAIS(M, N), FromFile(path)
    for (rows, i), index in observed(imp.loader(dataset, num_workers=workers), imp):
        assert torch.equal(i, index)
        assert torch.equal(rows, torch.from_numpy(np.array(dataset.rows))[index])


@WORKERS
def test_a_memory_mapped_array_as_it_is(path, workers):
    imp, rows = emais.EMAIS(M, N), np.load(path, mmap_mode="c")
    for batch, index in observed(imp.loader(rows, num_workers=workers), imp):
        assert torch.equal(batch, torch.from_numpy(np.array(rows))[index])


@WORKERS
@pytest.mark.parametrize(
    "dataset",
    [
        Streaming(),
        Together(),
        emais.ByIndex(Streaming(length=M // 2), length=M),
        emais.ByIndex(Together(length=M // 2), length=M),
        emais.ByIndex(WithoutLength(), length=M),
        DataLoader(Streaming(), batch_size=N),
        DataLoader(emais.ByIndex(Streaming(length=M // 2), length=M), batch_size=N, shuffle=True),
    ],
    ids=["as it is", "whole minibatches", "part", "part, whole", "no length", "DataLoader", "part in a DataLoader"],
)
def test_an_iterable_data_set_that_can_be_indexed(dataset, workers):
    imp = emais.EMAIS(M, N)
    for batch, index in observed(imp.loader(dataset, num_workers=workers), imp):
        assert torch.equal(batch["i"], index)
        assert torch.equal(batch["x"], index.float())


@WORKERS
def test_a_weighted_sampler_over_one(workers):
    sampler = emais.WeightedSampler(torch.ones(M), N)
    dataset = emais.ByIndex(Streaming(5), M)
    loader = sampler.loader(dataset, num_workers=workers)
    assert all(torch.equal(draw.index, batch["i"]) for batch, draw in loader)
    plain = DataLoader(dataset, batch_sampler=sampler, num_workers=workers)
    assert [len(batch["i"]) for batch in plain] == [N] * len(sampler)
    with pytest.raises(EmaisError, match=f"has 5 samples, the sampler {M} weights.*emais.ByIndex"):
        sampler.loader(Streaming(5))


def test_a_length_that_is_another():
    with pytest.raises(EmaisError, match=f"has 20 samples.*num_samples={M}.*emais.ByIndex\\(dataset, length=M\\)"):
        emais.EMAIS(M, N).loader(Streaming(length=20))
    with pytest.raises(EmaisError, match="has 20 samples"):
        emais.EMAIS(M, N).loader(emais.ByIndex(Streaming(), length=20))
    with pytest.raises(EmaisError, match=r"WithoutLength has no len.*emais.ByIndex\(dataset, length=M\)"):
        emais.EMAIS(M, N).loader(WithoutLength())


class Stream(IterableDataset):
    """It can be iterated over, and nothing else."""

    def __iter__(self):
        return iter(range(M))


@pytest.mark.parametrize(
    ("dataset", "length", "told"),
    [
        (Stream(), M, "Stream cannot be read by index"),
        (iter(range(3)), 3, "range_iterator cannot be read by index"),
        (Streaming(), 0, "length must be a whole number of at least 1, got 0"),
        (Streaming(), 2.5, "length must be"),
    ],
)
def test_what_cannot_be_read_by_index(dataset, length, told):
    with pytest.raises(EmaisError, match=told):
        emais.ByIndex(dataset, length)

"""Data read by index: Hugging Face data sets as Arrow files on the disk, and streaming data sets in Lightning."""

import datasets
import pytest
import torch
from lightning_task import Net, data, parameters, quiet, sampling, train_loader, trainer
from torch.utils.data import IterableDataset

import emais

pytestmark = quiet
M, N = 60, 10
WORKERS = pytest.mark.parametrize("workers", [0, 2])
FORMAT = pytest.mark.parametrize("format_", [None, "torch"])


@pytest.fixture
def stored(tmp_path):
    """Memory-mapped, from a folder."""
    table = {"i": list(range(M)), "x": [[float(i), i / 2] for i in range(M)], "text": [f"number {i}" for i in range(M)]}
    datasets.Dataset.from_dict(table).save_to_disk(tmp_path / "set")
    found = datasets.load_from_disk(tmp_path / "set")
    assert found.cache_files
    return found


def rows(samples):
    """The minibatch of some rows."""
    x = torch.stack([torch.as_tensor(sample["x"], dtype=torch.float32) for sample in samples])
    return torch.tensor([int(sample["i"]) for sample in samples]), x, [sample["text"] for sample in samples]


def right(batch, index):
    i, x, text = batch
    assert torch.equal(i, index)
    assert torch.equal(x, torch.stack([index, index / 2], 1).float())
    assert text == [f"number {k}" for k in index.tolist()]


@WORKERS
@FORMAT
def test_an_engine_draws_from_one(stored, workers, format_):
    imp, steps = emais.EMAIS(len(stored), N), 0
    loader = imp.loader(stored.with_format(format_), num_workers=workers, collate_fn=rows)
    for _ in range(3):
        for batch, draw in loader:
            right(batch, draw.index)
            z = batch[1].clone().requires_grad_()
            imp.loss(z.square().sum(1), z, draw)
            steps += 1
    assert steps == 3 * M // N
    assert imp.diagnostics.score < 1


@WORKERS
@FORMAT
def test_a_weighted_sampler_draws_from_one(stored, workers, format_):
    sampler = emais.WeightedSampler(1.0 + torch.arange(M), N)
    dataset = stored.with_format(format_)
    for batch, draw in sampler.loader(dataset, num_workers=workers, collate_fn=rows):
        right(batch, draw.index)


def test_a_streamed_one_is_refused(stored):
    streamed = stored.to_iterable_dataset().with_format("torch")
    with pytest.raises(emais.EmaisError, match=r"IterableDataset.*picks samples by index"):
        emais.EMAIS(M, N).loader(streamed)
    with pytest.raises(emais.EmaisError, match="cannot be read by index"):
        emais.ByIndex(streamed, M)


class Streaming(IterableDataset):
    """As the data sets of streaming libraries are: it can be iterated over, and read by index."""

    def __iter__(self):
        raise AssertionError("it must be read by index")

    def __getitem__(self, i):
        return data()[i]

    def __len__(self):
        return len(data())


@pytest.mark.filterwarnings("ignore:Your `IterableDataset` has `__len__` defined")  # Lightning, of the first
@pytest.mark.parametrize("dataset", [Streaming(), emais.ByIndex(Streaming(), len(data()))], ids=["as it is", "ByIndex"])
def test_lightning_trains_on_a_streaming_data_set_as_on_any_other(dataset):
    plain, streamed = (Net(schedule=False) for _ in range(2))
    trainer(sampling()).fit(plain, train_loader())
    trainer(sampling()).fit(streamed, train_loader(dataset, shuffle=None))
    assert torch.equal(parameters(plain), parameters(streamed))

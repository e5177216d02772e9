"""`imp.loader(dataloader)`: what is taken over from a DataLoader, and which DataLoaders are refused."""

import random

import pytest
import torch
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    Dataset,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
    default_collate,
)

import emais
from emais import EmaisError


class Noisy(Dataset):
    """Its index and a random number, as an augmentation has it."""

    def __len__(self):
        return 40

    def __getitem__(self, i):
        return i, random.random()


class Endless(IterableDataset):
    def __iter__(self):
        return iter(range(40))


def ones(samples):
    return torch.ones(len(samples))


def nothing(worker):
    """A worker_init_fn."""


def engine(**settings):
    return emais.EMAIS(40, 8, **settings)


def drawn(imp, loader):
    """The batches of a pass, observed."""
    found = []
    for batch, draw in loader:
        z = torch.zeros(len(draw), 1, requires_grad=True)
        imp.loss(z.squeeze(1), z, draw)
        found.append((batch, draw.index.tolist()))
    return found


def test_all_options_are_taken_over():
    options = {
        "num_workers": 2,
        "collate_fn": ones,
        "timeout": 30,
        "worker_init_fn": nothing,
        "multiprocessing_context": "fork",
        "prefetch_factor": 3,
        "persistent_workers": True,
    }
    imp, dataset = engine(), Noisy()
    loader = imp.loader(DataLoader(dataset, batch_size=8, shuffle=True, **options))
    made, context = loader.dataloader, options.pop("multiprocessing_context")
    assert loader.dataset is dataset
    assert made.multiprocessing_context.get_start_method() == context
    assert made.dataset._collate is options.pop("collate_fn")
    assert {name: getattr(made, name) for name in options} == options
    assert all(torch.equal(batch, torch.ones(8)) for batch, _ in drawn(imp, loader))
    assert made.pin_memory is False
    assert imp.loader(DataLoader(dataset, batch_size=8, pin_memory=True)).dataloader.pin_memory is True


def test_every_option_that_torch_has_is_taken_over_or_known_to_be_ours():
    """A release of torch with one more option fails here, until somebody has decided what becomes of it."""
    loader = DataLoader(Noisy(), batch_size=8)
    ours = {"batch_size", "shuffle", "sampler", "batch_sampler", "drop_last", "dataset", "generator"}
    taken = emais.loading.sources.take_over(loader, 8, {"num_workers": 1})
    known = {"num_workers", "collate_fn", "pin_memory", "timeout", "worker_init_fn", "multiprocessing_context"}
    known |= {"prefetch_factor", "persistent_workers", "pin_memory_device", "in_order"}
    assert taken.keys() - {"in_order"} == known - {"in_order"}  # torch 2.6 has no in_order
    assert not taken.keys() & ours


def test_options_given_beside_it_win():
    own = DataLoader(Noisy(), batch_size=8, num_workers=2, collate_fn=ones, persistent_workers=True, prefetch_factor=4)
    imp = engine()
    assert imp.loader(own, num_workers=1).num_workers == 1
    loader = imp.loader(own, num_workers=0, collate_fn=default_collate)  # torch would refuse prefetch_factor=4 then
    assert loader.num_workers == 0
    assert all(batch[0].tolist() == index for batch, index in drawn(imp, loader))
    with pytest.raises(EmaisError, match="shuffle"):
        imp.loader(own, shuffle=True)


def test_it_draws_as_a_loader_over_the_data_set_does():
    """The same samples, whatever the order and the generator of the DataLoader were."""
    own = DataLoader(Noisy(), batch_size=8, shuffle=True, generator=torch.Generator().manual_seed(5))
    runs = [drawn(imp := engine(seed=3), imp.loader(source)) for source in (Noisy(), own)]
    assert [index for _, index in runs[0]] == [index for _, index in runs[1]]


def test_the_generator_of_a_dataloader_does_not_seed_the_workers():
    """They are seeded from (seed, step), so that a resume is exact."""
    made = []
    for seed in (1, 2):
        own = DataLoader(Noisy(), batch_size=8, num_workers=1, generator=torch.Generator().manual_seed(seed))
        imp = engine()
        made.append([batch[1].tolist() for batch, _ in drawn(imp, imp.loader(own))])
    assert made[0] == made[1]


@pytest.mark.parametrize("drop_last", [False, True])
def test_drop_last_changes_nothing(drop_last):
    imp = emais.EMAIS(40, 16)
    loader = imp.loader(DataLoader(Noisy(), batch_size=16, drop_last=drop_last))
    assert len(loader) == 3
    assert [len(index) for _, index in drawn(imp, loader)] == [16, 16, 16]


@pytest.mark.parametrize("sampler", [SequentialSampler, RandomSampler])
def test_a_batch_sampler_as_torch_makes_it_is_no_other(sampler):
    dataset = Noisy()
    own = DataLoader(dataset, batch_sampler=BatchSampler(sampler(dataset), 8, drop_last=True))
    assert len(engine().loader(own)) == 5


class OwnOrder(SequentialSampler):
    """A sampler that is nearly torch's."""


class OwnBatches(BatchSampler):
    """Minibatches that are nearly torch's."""


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"sampler": WeightedRandomSampler([1.0] * 40, 40)}, r"WeightedRandomSampler with replacement of 40 samples"),
        ({"sampler": SubsetRandomSampler(range(9))}, r"SubsetRandomSampler of 9 samples.*Subset"),
        ({"sampler": RandomSampler(range(40), replacement=True)}, "RandomSampler with replacement"),
        ({"sampler": RandomSampler(range(40), num_samples=10)}, "RandomSampler of 10 samples"),
        ({"sampler": SequentialSampler(range(10))}, "SequentialSampler of 10 samples"),
        ({"sampler": OwnOrder(range(40))}, "OwnOrder"),
        ({"sampler": list(range(40))}, "list of 40 samples"),
    ],
)
def test_a_sampler_of_its_own_is_refused(options, words):
    with pytest.raises(EmaisError, match=words) as caught:
        engine().loader(DataLoader(Noisy(), batch_size=8, **options))
    assert "imp.loader(dataloader.dataset" in str(caught.value)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"batch_sampler": OwnBatches(range(40), 8, False)}, "batch_sampler=OwnBatches.*batch_size="),
        ({"batch_sampler": [[1, 2], [3]]}, "batch_sampler=list"),
        ({"batch_size": None}, "batch_size=None"),
        ({}, r"batch_size=1, the engine batch_size=8: make the engine with batch_size=1$"),
        ({"batch_size": 64}, r"make the engine with batch_size=64$"),
    ],
)
def test_minibatches_of_its_own_are_refused(options, words):
    with pytest.raises(EmaisError, match=words):
        engine().loader(DataLoader(Noisy(), **options))


def test_a_data_set_that_cannot_be_drawn_from_is_refused():
    with pytest.raises(EmaisError, match="Endless is an IterableDataset"):
        engine().loader(DataLoader(Endless(), batch_size=8))
    with pytest.raises(EmaisError, match=r"has 40 samples.*num_samples=50"):
        emais.EMAIS(50, 8).loader(DataLoader(Noisy(), batch_size=8))


def test_a_dataloader_that_iterates_in_its_own_way_is_refused():
    class Moves(DataLoader):
        def __iter__(self):
            return iter(())

    with pytest.raises(EmaisError, match=r"Moves iterates in a way of its own.*DataLoader that it was made from"):
        engine().loader(Moves(Noisy(), batch_size=8))


def test_presampling_takes_the_batch_size_that_it_trains_on():
    imp = emais.create("presampling", 40, batch_size=8, presample=16)

    def score(batch):
        z = torch.zeros(16, 1, requires_grad=True)
        return (z * (1.0 + batch[0][:, None])).sum(1), z

    loader = imp.loader(DataLoader(Noisy(), batch_size=8, shuffle=True), score=score)
    assert [len(batch[0]) for batch, _ in drawn(imp, loader)] == [8] * 5


def test_what_other_libraries_read_of_a_loader():
    """A sampler is not among it: what somebody made of one would have no draws."""
    imp = emais.EMAIS(60, batch_size=8)
    loader = imp.loader(DataLoader(range(60), batch_size=8, drop_last=True, collate_fn=list))
    assert (loader.collate_fn, loader.drop_last, loader.pin_memory) == (list, False, False)
    for name in ("sampler", "batch_sampler"):
        assert not hasattr(loader, name)
        with pytest.raises(emais.EmaisError, match=f"has no {name}, because the engine draws the samples"):
            getattr(loader, name)

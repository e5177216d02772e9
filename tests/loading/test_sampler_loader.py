"""`WeightedSampler.loader`: a minibatch comes with its own draw, whatever a loop leaves out and whoever prefetches."""

import gc
import inspect
import random
import time
import weakref

import pytest
import torch
from torch.utils.data import DataLoader, Dataset, WeightedRandomSampler, get_worker_info

from emais import EmaisError, WeightedSampler

M, N, LENGTH = 100, 10, 10
ANY_ORDER = pytest.mark.skipif("in_order" not in inspect.signature(DataLoader).parameters, reason="torch 2.6 lacks it")
OPTIONS = pytest.mark.parametrize(
    "options",
    [
        {},
        {"num_workers": 1, "prefetch_factor": 3},
        {"num_workers": 2},
        {"num_workers": 2, "persistent_workers": True},
        pytest.param({"num_workers": 2, "in_order": False}, marks=ANY_ORDER),
    ],
    ids=["0 workers", "1 worker", "2 workers", "persistent", "any order"],
)


class Itself(Dataset):
    """Sample i is i, with a random number as an augmentation has it. slow: in the first worker."""

    def __init__(self, length=M, slow=False, broken=()):
        self.length, self.slow, self.broken = length, slow, broken

    def __len__(self):
        return self.length

    def __getitem__(self, i):
        if i in self.broken:
            raise OSError(f"sample {i} cannot be read")
        if self.slow and get_worker_info().id == 0:
            time.sleep(0.01)
        return i, random.random()


def make(samples=M, **settings):
    return WeightedSampler(1.0 + torch.arange(samples) % 7, N, **settings)


def check(batch, draw, weights):
    """The draw is that of the batch, with r of the weights that it was drawn by."""
    assert torch.equal(batch[0], draw.index)
    r = weights.sum() / (M * weights[draw.index])
    torch.testing.assert_close(draw.r.double(), r, rtol=1e-6, atol=0)


# ---- r belongs to the batch


@OPTIONS
def test_every_batch_has_its_own_draw(options):
    sampler = make()
    loader = sampler.loader(Itself(), **options)
    for _ in range(3):
        steps = []
        for batch, draw in loader:
            check(batch, draw, sampler.weights)
            steps.append(draw.step)
        assert len(steps) == len(loader) == LENGTH
        assert sorted(steps) == list(range(sampler.step - 9, sampler.step + 1))
        assert options.get("in_order") is False or steps == sorted(steps)


@ANY_ORDER
def test_batches_that_arrive_in_another_order_have_their_own_draws():
    sampler, steps = make(), []
    for batch, draw in sampler.loader(Itself(slow=True), num_workers=2, in_order=False):
        check(batch, draw, sampler.weights)
        steps.append(draw.step)
    assert steps[0] == 2
    assert sorted(steps) == list(range(1, LENGTH + 1))


@OPTIONS
@pytest.mark.parametrize("skipped", [{0}, {3, 4}, {9}, {0, 5, 9}], ids=str)
def test_a_batch_that_a_loop_skips_shifts_nothing(options, skipped):
    """Also if the loop is left early then, and another pass begins."""
    sampler = make()
    loader = sampler.loader(Itself(), **options)
    for last in (5, LENGTH, LENGTH):
        for k, (batch, draw) in enumerate(loader):
            if k not in skipped:
                check(batch, draw, sampler.weights)
            if k == last:
                break


@pytest.mark.parametrize("workers", [0, 2])
def test_r_is_that_of_the_draw_while_weights_change(workers):
    sampler = make()
    ahead = 2 * workers
    weights = dict.fromkeys(range(1, ahead + 2), sampler.weights)  # by the step of a draw made with them
    for _ in range(3):
        for batch, draw in sampler.loader(Itself(), num_workers=workers):
            if draw.step in weights:
                check(batch, draw, weights[draw.step])
            sampler.update(draw.index, torch.rand(N) + 0.1)
            weights[sampler._drawn + 1] = sampler.weights
    assert len(weights) > 20


def test_without_replacement_there_is_no_r():
    sampler = make(replacement=False)
    for batch, draw in sampler.loader(Itself()):
        assert torch.equal(batch[0], draw.index)
        assert len(set(draw.index.tolist())) == N
        assert draw.r.isnan().all()


def test_draws_are_those_of_the_batch_sampler():
    alone, loaded, direct = make(), make(), make()
    batches = [*alone, *alone]
    loader = loaded.loader(Itself(), num_workers=2)
    assert [draw.index.tolist() for _ in range(2) for _, draw in loader] == batches
    drawn = [direct.draw() for _ in batches]
    assert [draw.index.tolist() for draw in drawn] == batches
    assert [draw.step for draw in drawn] == list(range(1, 21))
    for draw in drawn:
        check((draw.index,), draw, direct.weights)


@OPTIONS
@pytest.mark.parametrize("last", [1, 5, 9, 10])
def test_what_was_drawn_ahead_comes_first_in_the_next_pass(options, last):
    sampler, steps = make(), []
    loader = sampler.loader(Itself(), **options)
    for _, draw in loader:
        steps.append(draw.step)
        if len(steps) == last:
            break
    assert sampler.step == last
    steps += [draw.step for _, draw in loader]
    assert sorted(steps) == list(range(1, last + LENGTH + 1))


def test_a_pass_as_batch_sampler_and_one_over_a_loader():
    """Each begins with what the other has left."""
    sampler = make()
    for _, draw in sampler.loader(Itself(), num_workers=2):
        if draw.step == 3:
            break
    expected = make()
    first = list(expected)
    assert list(sampler)[:7] == first[3:]
    assert sampler.step == 13
    assert [draw.step for _, draw in sampler.loader(Itself())] == list(range(14, 24))


def test_a_pass_that_another_one_has_ended_cannot_go_on():
    sampler = make()
    one, other = iter(sampler.loader(Itself())), iter(sampler)
    next(one)
    next(other)
    with pytest.raises(EmaisError, match="a newer pass of this sampler has begun"):
        next(one)


def test_a_loader_that_is_dropped_is_gone():
    """And with it its workers, at once: no cycle waits for the garbage collector."""
    loader = make().loader(Itself())
    next(iter(loader))
    gone = weakref.ref(loader.dataloader)
    gc.disable()
    try:
        del loader
        assert gone() is None
    finally:
        gc.enable()


def test_random_numbers_in_workers_depend_on_seed_and_step_alone():
    found = []
    for workers in (1, 2):
        found.append([noise.tolist() for (_, noise), _ in make().loader(Itself(), num_workers=workers)])
    assert found[0] == found[1]
    assert found[0] != [noise.tolist() for (_, noise), _ in make(seed=1).loader(Itself(), num_workers=1)]


@pytest.mark.parametrize("workers", [0, 2])
def test_a_batch_that_cannot_be_fetched_shifts_nothing(workers):
    sampler = make()
    broken = make().draw().index[:1].tolist()
    steps = []
    for _ in range(60):
        try:
            for batch, draw in sampler.loader(Itself(broken=broken), num_workers=workers):
                check(batch, draw, sampler.weights)
                steps.append(draw.step)
            break
        except OSError:
            continue
    assert steps
    assert len(set(steps)) == len(steps)
    assert 1 not in steps


# ---- resuming


@OPTIONS
def test_resume_is_exact_from_every_batch(options):
    def train(sampler, passes, states=None):
        log = []
        for _ in range(passes):
            for (batch, noise), draw in sampler.loader(Itself(), **options):
                assert torch.equal(batch, draw.index)
                noise = noise.tolist() if options else []
                log.append((draw.step, batch.tolist(), draw.r.tolist(), noise))
                if options.get("in_order", True):
                    sampler.update(draw.index, 1.0 + draw.index % (2 + draw.step))
                if states is not None:
                    states.append(sampler.state_dict())
        return log

    states = []
    log = train(make(), 2, states)
    for k in (1, 4, 9, 10, 13):
        sampler = make()
        sampler.load_state_dict(states[k - 1])
        assert sampler.step == k
        assert len(sampler) == LENGTH
        assert sampler.loader(Itself()).remaining == (LENGTH - k % LENGTH)
        again = train(sampler, 2 if k < LENGTH else 1)
        assert sorted(again) == sorted(log[k:])
        assert options.get("in_order") is False or again == log[k:]


def test_a_state_saved_in_a_dataloader_counts_what_was_handed_to_it():
    """As a batch sampler it cannot know more: a resume leaves out what the workers had prefetched."""
    sampler = make()
    batches = iter(DataLoader(Itself(), batch_sampler=sampler, num_workers=2))
    next(batches)
    state = sampler.state_dict()
    assert (state["step"], state["passes"]["delivered"], len(state["passes"]["step"])) == (5, 5, 0)
    resumed = make()
    resumed.load_state_dict(state)
    assert list(resumed) == list(make())[5:]


# ---- what is refused


@pytest.mark.parametrize("length", [M - 1, 5 * M])
def test_a_data_set_of_another_length(length):
    way = f"the data set has {length} samples, the sampler {M} weights: make it with one weight for each sample"
    with pytest.raises(EmaisError, match=way):
        make().loader(Itself(length))
    with pytest.raises(EmaisError, match=way):
        make().loader(DataLoader(Itself(length), batch_size=N))


def test_a_data_set_that_has_grown():
    dataset = Itself()
    loader = make().loader(dataset)
    dataset.length += 1
    with pytest.raises(EmaisError, match="has 101 samples, the sampler 100 weights"):
        next(iter(loader))


def test_options_of_a_dataloader_are_taken_over():
    own = DataLoader(Itself(), batch_size=N, shuffle=True, num_workers=2, persistent_workers=True)
    loader = make().loader(own)
    assert (loader.num_workers, loader.ahead, loader.batch_size) == (2, 4, N)
    assert loader.dataset is own.dataset
    assert loader.dataloader.persistent_workers
    assert make().loader(own, num_workers=0).num_workers == 0


def dataloader(**options):
    return DataLoader(Itself(), **options)


@pytest.mark.parametrize(
    ("given", "options", "message"),
    [
        (Itself(), {"shuffle": True}, "shuffle is the sampler's to decide"),
        (Itself(), {"num_worker": 2}, "num_worker"),
        (dataloader(batch_size=5), {}, "batch_size=5, the sampler batch_size=10: make the sampler with batch_size=5"),
        (dataloader(batch_sampler=make()), {}, r"batch_sampler=WeightedSampler.*sampler\.loader\(dataloader\.dataset"),
        (
            dataloader(batch_size=N, sampler=WeightedRandomSampler([1.0] * M, M)),
            {},
            r"WeightedRandomSampler with replacement.*the sampler draws.*sampler\.loader\(",
        ),
        (iter([1]), {}, "needs __getitem__ and __len__"),
    ],
)
def test_what_a_loader_cannot_be_made_of(given, options, message):
    with pytest.raises(EmaisError, match=message):
        make().loader(given, **options)

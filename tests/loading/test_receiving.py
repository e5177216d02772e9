"""`WeightedSampler.receive`: a call that is left out is found, whatever fetches ahead; indices can be compared."""

import warnings

import pytest
import torch
from torch.utils.data import DataLoader, Dataset

from emais import EmaisError, WeightedSampler

LENGTH = 12  # minibatches of a pass
MISSED = "receive\\(\\) was not called for an earlier minibatch of this pass"
OPTIONS = pytest.mark.parametrize(
    "options",
    [{}, {"num_workers": 1, "prefetch_factor": 3}, {"num_workers": 2, "persistent_workers": True}],
    ids=["0 workers", "1 worker", "2 workers"],
)


class Itself(Dataset):
    """Sample i is i."""

    def __len__(self):
        return 60

    def __getitem__(self, i):
        return i


def make(**options):
    sampler = WeightedSampler(torch.ones(60), 5)
    return sampler, DataLoader(Itself(), batch_sampler=sampler, **options)


def one_pass(sampler, loader, missed=(), index=False):
    """A pass whose loop leaves receive() out for some of its minibatches."""
    for k, batch in enumerate(loader):
        if k not in missed:
            assert torch.equal(sampler.receive(batch if index else None).index, batch)


def ahead(seen):
    """A loop that fetches one minibatch before it hands out the last, as accelerate does."""
    seen = iter(seen)
    held = next(seen)
    for batch in seen:
        yield held
        held = batch
    yield held


def in_groups(seen, size):
    """A loop that fetches so many minibatches first, as a Trainer does that accumulates gradients."""
    group = []
    for batch in seen:
        group.append(batch)
        if len(group) == size:
            yield from group
            group = []
    yield from group


@OPTIONS
@pytest.mark.parametrize("missed", range(1, LENGTH - 1))
def test_a_call_that_was_left_out_is_found_at_the_next_one(options, missed):
    """Also among the last minibatches, which were drawn long before they arrive."""
    sampler, loader = make(**options)
    one_pass(sampler, loader)
    with pytest.raises(EmaisError, match=MISSED):
        one_pass(sampler, loader, [missed])


@OPTIONS
def test_the_next_pass_says_that_the_last_calls_were_left_out(options):
    sampler, loader = make(**options)
    one_pass(sampler, loader, [LENGTH - 2, LENGTH - 1])
    with pytest.raises(EmaisError, match="was not called for 2 minibatches of the last pass"):
        one_pass(sampler, loader)
    one_pass(sampler, loader)  # it was said


@OPTIONS
def test_a_first_call_that_was_left_out_is_warned_about(options):
    """It looks like a loop that fetches one minibatch ahead and was left before the last one."""
    sampler, loader = make(**options)
    for k, _ in enumerate(loader):
        if k:
            sampler.receive()
    with pytest.warns(UserWarning, match="1 minibatch of the last pass was not received"):
        next(iter(loader))


@OPTIONS
@pytest.mark.parametrize("fetch", [iter, ahead, lambda seen: in_groups(seen, 5)], ids=["plain", "ahead", "groups"])
def test_loops_that_miss_nothing_hear_nothing(options, fetch):
    sampler, loader = make(**options)
    for _ in range(3):
        one_pass(sampler, fetch(loader))
    assert sampler.step == 3 * LENGTH


@OPTIONS
@pytest.mark.parametrize("last", [1, 5, LENGTH - 1, LENGTH])
def test_a_loop_may_be_left_early(options, last):
    """What was not received comes first afterwards; among the last minibatches a warning says so."""
    sampler, loader = make(**options)
    steps = []
    for _ in loader:
        steps.append(sampler.receive().step)
        if len(steps) == last:
            break
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "1 minibatch of the last pass was not received")
        steps += [sampler.receive().step for _ in loader]
    assert steps == list(range(1, last + LENGTH + 1))


@OPTIONS
def test_indices_are_compared_if_they_are_given(options):
    sampler, loader = make(**options)
    one_pass(sampler, loader, index=True)
    with pytest.raises(EmaisError, match="this is the minibatch of step 16, and that of step 15 was not received"):
        one_pass(sampler, loader, [2], index=True)


def test_indices_that_belong_to_no_minibatch():
    sampler, _ = make()
    batches = iter(sampler)
    batch = next(batches)
    for wrong in (batch[::-1], batch[:-1], [60] * 5):
        with pytest.raises(EmaisError, match="step 1 has the samples"):
            sampler.receive(wrong)
    assert sampler.receive(batch).step == 1


def test_a_thread_that_fetches_more_and_more_needs_the_indices():
    """The number of minibatches on their way says nothing then."""
    sampler, _ = make()
    batches, waiting, steps = iter(sampler), [], []
    for _ in range(4):
        waiting += [next(batches), next(batches)]
        steps.append(sampler.receive(waiting.pop(0)).step)
    assert steps == [1, 2, 3, 4]


def test_an_older_pass_that_is_dropped_takes_nothing_from_a_newer_one():
    sampler, _ = make()
    older, newer = iter(sampler), iter(sampler)
    next(older)
    batch = next(newer)
    del older
    assert sampler.receive(batch).step == 2

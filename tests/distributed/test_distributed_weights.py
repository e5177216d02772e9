"""WeightedSampler on several processes: the draws of one process, whoever prefetches; resuming; errors on all."""

import copy
import inspect

import pytest
import torch
import torch.distributed as dist
from process_pool import run_apart
from torch.utils.data import DataLoader
from weighted_runs import (
    BATCH,
    SAMPLES,
    alone,
    any_order,
    at_different_steps,
    beside_each_other,
    different_states,
    first_weights,
    leaves_early,
    looks,
    loop,
    made,
    make,
    own_samples,
    refused,
    together,
)

from emais import WeightedSampler

pytestmark = pytest.mark.launched

# ---- draws


@pytest.mark.parametrize("replacement", [True, False])
@pytest.mark.parametrize("workers", [[0, 0], [2, 2], [0, 2], [1, 0]], ids=str)
def test_draws_are_those_of_one_process_that_prefetches_as_much(pair, workers, replacement):
    """Weights change after every minibatch, each process changing those of its own samples."""
    results = pair(loop, size=2, workers=workers, replacement=replacement)
    expected = alone(workers=max(workers), replacement=replacement)
    assert together(results) == expected["draws"]
    assert torch.equal(results[0]["weights"], results[1]["weights"])
    assert torch.equal(results[0]["weights"], expected["weights"])
    assert [result["len"] for result in results] == [SAMPLES // BATCH] * 2


@pytest.mark.parametrize("every", [3, 100])
def test_draws_as_a_batch_sampler_and_with_rare_updates(pair, every):
    results = pair(loop, size=2, workers=[1, 0], plain=True, every=every)
    assert together(results) == alone(workers=1, plain=True, every=every)["draws"]


@pytest.mark.parametrize("workers", [[0, 2], [2, 0]], ids=str)
@pytest.mark.parametrize("update", [True, False])
def test_a_loop_that_is_left_early(pair, workers, update):
    """What was not delivered comes first in the next pass, on all processes."""
    results = pair(leaves_early, size=2, workers=workers, update=update)
    assert together(results) == leaves_early(workers=2, update=update)["draws"]


@pytest.mark.parametrize("workers", [[0, 2], [2, 0], [0, 0]], ids=str)
def test_a_loop_over_a_batch_sampler_that_is_left_early(pair, workers):
    """Nobody knows then how far it came, so the pass counts as a whole one, on all processes."""
    results = pair(leaves_early, size=2, workers=workers, plain=True, update=False)
    one = make()
    expected = [batch for _ in range(3) for batch in list(one)[:3]]
    assert [index for _, index, _ in together(results)] == expected


@pytest.mark.parametrize("workers", [[0, 2], [2, 0]], ids=str)
def test_updates_where_a_loop_over_a_batch_sampler_is_left_early(pair, workers):
    results = pair(leaves_early, size=2, workers=workers, plain=True)
    twice = pair(leaves_early, size=2, workers=[2, 2], plain=True)
    assert together(results) == together(twice)


@pytest.mark.skipif("in_order" not in inspect.signature(DataLoader).parameters, reason="torch 2.6 lacks it")
def test_updates_where_minibatches_arrive_in_another_order(pair):
    """Each process is at the same place of its loop, with a minibatch of its own."""
    (one, weights), (other, same) = pair(any_order)
    assert one[0] == 2
    assert sorted(one) == sorted(other) == list(range(1, SAMPLES // BATCH + 1))
    assert torch.equal(weights, same)


def test_r_is_that_of_the_whole_minibatch(pair):
    for draws in (result["draws"] for result in pair(loop, size=2, steps=1)):
        [(_, index, r)] = draws
        assert len(index) == BATCH // 2
        p = first_weights() / first_weights().sum()
        torch.testing.assert_close(torch.tensor(r).double(), 1 / (SAMPLES * p[index]), rtol=1e-6, atol=0)


def three(rank, pipe):
    pipe.send(loop(rank, 3, steps=20, workers=rank)["draws"])


def test_three_processes_with_workers_of_their_own(tmp_path):
    found = [{"draws": sent} for sent, _ in run_apart(three, 3, tmp_path)]
    assert together(found) == alone(steps=20, workers=2)["draws"]


def test_a_process_may_change_no_weights_or_those_of_others(pair):
    for weights, p in pair(own_samples, counts=(3, 1)):
        assert weights[:4].tolist() == [20, 10, 10, 4]
        assert torch.equal(p, weights / weights.sum())
    for weights, _ in pair(own_samples, counts=(0, 2)):
        assert weights[:3].tolist() == [20, 20, 3]


def test_looking_starts_no_collective(pair):
    one, other = pair(looks)
    assert torch.equal(one, other)


def test_samplers_beside_each_other(pair):
    (one, changed), (other, same) = pair(beside_each_other)
    assert one != other
    assert (changed, same) == (3.0, 2.0)
    assert len(one) == SAMPLES // 4


# ---- resuming


def go_on(pair, size, **options):
    return pair(loop, size=2, **options) if size == 2 else [loop(**options)]


@pytest.mark.parametrize("plain", [False, True])
@pytest.mark.parametrize(("before", "after"), [(2, 1), (1, 2), (2, 2)])
def test_saved_on_some_and_continued_on_others(pair, before, after, plain):
    """In the middle of a pass of 8, and at its end."""
    expected = loop(steps=28, plain=plain, every=1)["draws"]
    saved = go_on(pair, before, steps=28, plain=plain)[0]["states"]
    for k in (5, 8, 11):
        rest = go_on(pair, after, state=saved[k], steps=28 - k, plain=False)
        assert [index for _, index, _ in together(rest)] == [index for _, index, _ in expected[k:]]


@pytest.mark.parametrize("workers", [[2, 0], [0, 2]], ids=str)
def test_minibatches_that_workers_had_drawn_come_first(pair, workers):
    """Also those that rank 0 keeps only because another process has drawn them; no pass ends here."""
    options = {"steps": 40, "num_batches": 400}
    expected = loop(workers=2, **options)["draws"]
    saved = pair(loop, size=2, workers=workers, **options)[0]["states"][25]
    assert saved["passes"]["step"].tolist() == [26, 27, 28, 29]
    options["steps"] = 15
    for size, fetching in ((2, workers[::-1]), (1, 2)):
        rest = go_on(pair, size, state=saved, workers=fetching, **options)
        assert together(rest) == expected[25:]


def test_as_a_batch_sampler_rank_0_saves_what_it_has_not_given_out(pair):
    """Its own loop has no workers, so it knows what was delivered, and another process draws ahead."""
    saved = pair(loop, size=2, workers=[0, 2], plain=True, num_batches=400)[0]["states"][25]
    assert saved["passes"]["step"].tolist() == [26, 27, 28, 29]
    assert saved["passes"]["delivered"] == 25
    rest = loop(state=saved, steps=5, workers=2, plain=True, num_batches=400)
    expected = loop(steps=30, workers=2, plain=True, num_batches=400)
    assert [index for _, index, _ in rest["draws"]] == [index for _, index, _ in expected["draws"][25:]]


def test_a_state_of_another_minibatch_size(pair):
    state = loop(batch=10, steps=1)["states"][1]
    for message in pair.errors(loop, size=2, state=state):
        assert "the state has 10 samples a step over all processes, this sampler 2 x 6 = 12" in message
        assert "batch_size=5" in message


# ---- what is refused


@pytest.mark.parametrize(
    ("name", "values"),
    [("seed", [0, 1]), ("batch_size", [4, 6]), ("num_batches", [5, 6]), ("replacement", [True, False])],
)
def test_settings_that_differ(pair, name, values):
    for message in pair.errors(made, **{name: values}):
        assert f"disagree about {name}: rank 0 has {values[0]!r}, rank 1 has {values[1]!r}" in message


def test_weights_that_differ(pair):
    other = first_weights()
    other[5] += 1e-12
    for message in pair.errors(made, weights=[first_weights(), other]):
        assert "disagree about weights (their hash): rank 0 has '" in message


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"group": "none"}, "is one of 2, and the sampler was made without process_group="),
        ({"group": 3}, "group of torch.distributed, got a int"),
        ({"timeout": 0}, "timeout must be a finite number above 0"),
        ({"batch_size": 60, "replacement": False}, "batch_size=120 weights above 0, got 96"),
    ],
    ids=str,
)
def test_settings_that_are_refused(pair, settings, told):
    for message in pair.errors(made, **settings):
        assert told in message


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"weights": [first_weights(), -first_weights()]}, "weights must be 0 or from"),
        ({"replacement": [False, "no"]}, "replacement must be True or False"),
        ({"num_batches": [5, 0]}, "num_batches must be a whole number"),
        ({"timeout": [20.0, -1]}, "timeout must be a finite number above 0"),
    ],
    ids=lambda given: next(iter(given)) if isinstance(given, dict) else "",
)
def test_what_one_process_refuses_is_told_to_the_others(pair, settings, told):
    for rank, message in enumerate(pair.errors(made, **settings)):
        assert told in message
        assert ("the sampler was refused on rank 1: EmaisError: " in message) == (rank == 0)


def test_a_keyword_that_one_process_does_not_know(pair):
    (_, told), (_, refused) = pair.outcomes(made_with, unknown=[{}, {"sed": 3}])
    assert "the sampler was refused on rank 1: TypeError: " in told
    assert refused.startswith("TypeError")


def made_with(rank, unknown):
    made(rank, **unknown)


class Picky(WeightedSampler):
    """One of a user's own, that rank 1 refuses to make after all."""

    def __init__(self, *args, **options):
        super().__init__(*args, **options)
        if self._peers.rank == 1:
            raise RuntimeError("not here")


def made_picky(rank):
    Picky(first_weights(), 4, process_group=dist.group.WORLD, timeout=20.0)


def test_what_a_class_of_the_users_own_refuses(pair):
    (_, told), (_, refused) = pair.outcomes(made_picky)
    assert "the sampler was refused on rank 1: RuntimeError: not here" in told
    assert refused.startswith("RuntimeError: not here")


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (
            (([1], 2.0), ([1], -2.0)),
            "rank 1 gave an update that cannot be made, so nobody makes one: weights must be 0",
        ),
        (
            (([SAMPLES], 2.0), ([1], 2.0)),
            "rank 0 gave an update that cannot be made, so nobody makes one: indices must",
        ),
        (((range(50), 0.0), (range(50, SAMPLES), 0.0)), "this would make all weights 0"),
    ],
)
def test_an_update_that_cannot_be_made_changes_nothing_anywhere(pair, given, told):
    changed = first_weights()
    changed[:2] = 5.0
    for message, weights in pair(refused, given=given):
        assert told in message
        assert torch.equal(weights, changed)


def test_updates_at_different_steps(pair):
    for message in pair.errors(at_different_steps):
        assert "at different steps: rank 0 is at step 2, rank 1 is at step 3" in message


@pytest.mark.parametrize("both", [True, False])
def test_states_that_differ(pair, both):
    for message in pair.errors(different_states, both=both):
        assert "the processes have different states: rank 0 has loaded step 0 with weights" in message
        assert both == ("rank 1 has loaded none" not in message)


def test_a_sampler_that_was_made_before_the_other_processes_were_known(pair):
    for message in pair.errors(iterated_later):
        assert "the sampler was made without process_group=" in message


def copied(rank):
    copy.deepcopy(make(2))


def test_a_sampler_with_a_group_cannot_be_copied(pair):
    for message in pair.errors(copied):
        assert "a sampler with a process_group cannot be copied or pickled" in message


def iterated_later(rank):
    sampler = make(2)
    sampler._grouped = False  # as one that was made before dist.init_process_group
    next(iter(sampler))

"""Several processes are one: the same draws, the same parameters, and statistics that are equal to the bit."""

import random

import pytest
import torch
from replicated_runs import (
    BATCH,
    beside_other_groups,
    counted,
    differences,
    draws_within_the_lag,
    drew_something_else,
    made_alone,
    noise,
    train,
    train_to_the_end,
    two_loaders,
    watching_threads,
    whole,
)

pytestmark = pytest.mark.launched

METHODS = ("sgd-scan", "sgd-uni", "rais", "confidence", "confvar", "emais", "emais-auto", "audit")


def check_replicas(results):
    """All that two processes have is equal to the bit, but for how many minibatches each has drawn ahead."""
    first, second = results
    assert torch.equal(first["parameters"], second["parameters"])
    assert first["factors"] == second["factors"]
    assert not [p for p in differences(first["state"], second["state"]) if not p.startswith((".passes", ".step"))]


def check_as_one(results, alone, tolerance):
    drawn, expected = whole(results), whole([alone])
    assert drawn.keys() == expected.keys()
    for step in expected:
        assert drawn[step][0] == expected[step][0], step
        assert drawn[step][1] == pytest.approx(expected[step][1], rel=1e-5)
    assert torch.allclose(results[0]["parameters"], alone["parameters"], rtol=0, atol=tolerance)
    assert results[0]["factors"] == pytest.approx(alone["factors"], rel=1e-4)


@pytest.mark.parametrize("optimizer", ["sgd", "adamw"])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-6), (torch.float64, 1e-8)], ids=["f32", "f64"])
def test_two_processes_are_one(pair, optimizer, dtype, tolerance):
    options = {"optimizer": optimizer, "dtype": dtype, "steps": 300}
    results, alone = pair(train, **options), train(size=1, **options)
    check_replicas(results)
    check_as_one(results, alone, tolerance)
    assert len(set(results[0]["factors"])) > 100
    assert max(max(r) for _, r in whole(results).values()) > 1.2


@pytest.mark.parametrize("workers", [[2, 2], [0, 2]], ids=str)
def test_workers_change_nothing_but_the_lag(pair, workers):
    """One process with two workers draws as far ahead as the process that has the most of them."""
    results = pair(train, workers=workers, steps=150, num_steps=150)
    check_replicas(results)
    assert [result["lag"] for result in results] == [4, 4]
    check_as_one(results, train(size=1, workers=2, steps=150, num_steps=150), 1e-6)


def test_passes_of_an_epoch_do_not_depend_on_who_prefetches(pair):
    some, none = pair(train, workers=[0, 1], steps=60), pair(train, workers=[1, 0], steps=60)
    check_replicas(some)
    assert whole(some) == whole(none)
    assert torch.equal(some[0]["parameters"], none[0]["parameters"])


def test_a_draw_waits_only_for_what_its_lag_lets_it_know(pair):
    assert pair(draws_within_the_lag) == [[3, 4], 2]


def test_accumulation_without_sync(pair):
    results, alone = pair(train, accumulate=3, steps=150), train(size=1, accumulate=3, steps=150)
    check_replicas(results)
    check_as_one(results, alone, 1e-6)
    assert len(results[0]["factors"]) == 50
    assert results[0]["state"]["monitor"]["recent"]["rows"][0, 5] == 3 * BATCH


@pytest.mark.parametrize("method", METHODS)
def test_every_method_that_takes_a_group(pair, method):
    results, alone = pair(train, method=method, steps=90), train(size=1, method=method, steps=90)
    check_replicas(results)
    check_as_one(results, alone, 1e-6)


@pytest.mark.parametrize("method", ["emais", "emais-auto"])
def test_a_gradient_that_is_not_finite_on_one_process(pair, method):
    results = pair(train, method=method, steps=90, spoil=(1, 70))
    check_replicas(results)
    assert results[0]["state"]["monitor"]["counts"][0] == 1
    assert torch.isfinite(results[0]["parameters"]).all()


def test_replicas_stay_equal_when_one_draws_something_else(pair):
    results = pair(drew_something_else)
    check_replicas(results)
    assert results[0]["draws"] != pair(train, steps=80)[0]["draws"]


@pytest.mark.parametrize(("method", "signal"), [("emais", 0), ("confidence", 4)])
def test_one_collective_a_step_of_few_bytes(pair, method, signal):
    for trained, looked_at in pair(counted, method=method):
        assert len(trained) == 20
        assert max(trained) <= 64 + (16 + signal) * BATCH // 2 + 4 * 3
        assert looked_at == []


@pytest.mark.parametrize("workers", [0, 1])
def test_random_numbers_of_samples_differ_between_processes(pair, workers):
    """Also after a common seed; and the process has its own random numbers as if no sample had taken any."""
    (one, mine), (other, theirs) = pair(noise, workers=workers)
    for kind in range(3):
        assert len({x[kind] for batch in one + other for x in batch}) == 3 * BATCH
    random.seed(5)
    assert mine == theirs
    assert mine[2] == random.random()
    assert pair(noise, workers=workers)[1][0] == other, "they follow from the seed and the step"


def test_an_older_loader_keeps_its_lag(pair):
    (lag, drawn), (other_lag, others) = pair(two_loaders)
    assert lag == other_lag == 2
    assert drawn == others


def test_nobody_watches_an_engine_that_is_gone(pair):
    assert pair(watching_threads) == [0, 0]


def test_other_groups_of_some_processes_do_no_harm(pair):
    one, other = pair(beside_other_groups)
    assert torch.equal(one, other)


def test_a_group_of_one_process_is_that_process(pair):
    """An engine of its own beside other processes: its draws are those of an engine without a group."""
    for rank, (result, lag) in enumerate(pair(made_alone)):
        alone = train(size=1, steps=60, seed=rank)
        assert result["draws"] == alone["draws"]
        assert torch.equal(result["parameters"], alone["parameters"])
        assert lag == 0
        assert not differences(result["state"], alone["state"])


def test_a_run_of_effective_steps_ends_together(pair):
    """Where it ends follows from the factors, which are the same everywhere."""
    options = {"num_steps": 300, "effective_steps": True, "warmup_epochs": 0.5}
    results = pair(train_to_the_end, workers=[0, 1], **options)
    check_replicas(results)
    assert 50 < len(results[0]["draws"]) < 300
    assert results[0]["state"]["effective"] >= 300

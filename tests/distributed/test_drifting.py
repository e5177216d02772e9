"""Processes that no longer train alike, at the same step: an error on all of them. And what they may do alone."""

import pytest
import torch
from replicated_runs import Run, continued, train
from sharded_runs import EQUAL, PartRun

import emais

pytestmark = pytest.mark.launched

AT = 10  # minibatches


def runs(rank, sharded, **options):
    return PartRun(rank, EQUAL, **options) if sharded else Run(rank, 2, **options)


def leaves_a_pass(rank, sharded, workers, all_leave):
    """Two passes, of which rank 1, or both, leave the first early."""
    run = runs(rank, sharded, workers=workers)
    for _ in range(2):
        for batch, draw in run.loader:
            run.minibatch(batch, draw, 1, None)
            run.step()
            if draw.step == AT and (rank or all_leave):
                break
    return run.imp.step


@pytest.mark.parametrize(("sharded", "workers"), [(False, [0, 0]), (False, [0, 1]), (True, [1, 0])])
def test_a_pass_that_one_process_leaves_early(pair, sharded, workers):
    for message in pair.errors(leaves_a_pass, sharded=sharded, workers=workers, all_leave=False):
        assert f"in different passes over their loaders at step {AT + 1}" in message
        assert f"that of rank 0 after 0, that of rank 1 after {AT}. Leave a loop early on all processes" in message


@pytest.mark.parametrize("sharded", [False, True])
def test_a_pass_that_all_leave_early(pair, sharded):
    whole = 640 // 16
    assert pair(leaves_a_pass, sharded=sharded, workers=[0, 1], all_leave=True) == [AT + whole] * 2


def steps_another_time(rank, sharded, accumulate, skip):
    """Rank 1 accumulates other numbers of minibatches, or makes no step after one."""
    run = runs(rank, sharded)
    for k, (batch, draw) in enumerate(run.loader, 1):
        run.minibatch(batch, draw, 1, None)
        if k % accumulate == 0 and draw.step != skip:
            run.step()


@pytest.mark.parametrize("sharded", [False, True])
@pytest.mark.parametrize(("accumulate", "skip"), [([1, 2], 0), (1, [0, AT])], ids=["accumulates", "skips"])
def test_steps_that_one_process_makes_alone(pair, sharded, accumulate, skip):
    at = 1 if skip == 0 else AT
    errors = pair.errors(steps_another_time, sharded=sharded, accumulate=accumulate, skip=skip)
    for rank, message in enumerate(errors):
        assert f"made different optimizer steps: before step {at + 1}" in message
        assert f"latest one of rank {rank} came after {at - rank} minibatches and had the factor 1.0" in message


def loads(rank, sharded, states, parameters):
    run = runs(rank, sharded, dtype=torch.float64)
    run.imp.load_state_dict(states[rank])
    torch.nn.utils.vector_to_parameters(parameters, run.net.parameters())
    return run.train(3).result()["factors"]


@pytest.mark.parametrize("sharded", [False, True])
def test_states_of_different_runs(pair, sharded):
    """At the same step, and after the warm-up, where the factors differ."""
    found = [train(size=1, steps=60, dtype=torch.float64, optimizer=name) for name in ("sgd", "adamw")]
    states, parameters = [one["state"] for one in found], found[0]["parameters"]
    for message in pair.errors(loads, sharded=sharded, states=[states, states], parameters=parameters):
        assert "loaded different states: rank 0 has loaded another one than rank 1" in message
    same = pair(loads, sharded=sharded, states=[[states[0]] * 2] * 2, parameters=parameters)
    assert same[0] == same[1]


def looks_back(rank):
    """Rank 0 saves its state between two minibatches and loads it again, and reads numbers whenever it likes."""
    run = Run(rank, 2)
    for _ in range(3):
        for batch, draw in run.loader:
            run.minibatch(batch, draw, 1, None)
            _ = run.imp.summary() if rank == 0 else None
            run.step()
            if draw.step % 7 == 0:
                break
        if rank == 0:
            run.imp.load_state_dict(run.imp.state_dict())
    return run.imp.step


def test_one_process_may_load_its_own_state(pair):
    assert pair(looks_back) == [21, 21]


def test_the_states_of_each_process_are_alike(pair):
    """Each may go on from its own, as long as the statistics are equal."""
    saved = pair(train, steps=50, workers=[0, 1], dtype=torch.float64)
    states, parameters = ([one[name] for one in saved] for name in ("state", "parameters"))
    found = pair(continued, size=2, state=states, parameters=parameters, steps=10, workers=[0, 1], dtype=torch.float64)
    assert found[0]["factors"] == found[1]["factors"]


def makes_a_loader(rank, sharded, seconds):
    imp = emais.EMAIS(
        [640, 320][sharded], batch_size=4, process_group=torch.distributed.group.WORLD, sharded=sharded, timeout=seconds
    )
    imp.loader(torch.arange([640, 320][sharded] + rank))
    for _ in range(2):
        draw = imp.draw()
        z = torch.ones(4, 3, requires_grad=True)
        imp.loss(z.sum(1), z, draw)


@pytest.mark.parametrize("sharded", [False, True])
def test_a_loader_that_one_process_refuses(pair, sharded):
    told, refused = pair.errors(makes_a_loader, sharded=sharded, seconds=20.0)
    assert "the loader was refused on rank 1: EmaisError: the data set has" in told
    assert refused.startswith("EmaisError: the data set has")

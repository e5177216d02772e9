"""Three, four and eight processes do what one does, and a state goes on with any number of them."""

import pytest
import torch
import torch.distributed as dist
from process_pool import Pool, run_apart
from replicated_runs import SAMPLES, continued, engine, train, whole
from sharded_runs import UNEQUAL, column, read_back, through_files
from test_replicated import check_as_one, check_replicas

import emais

pytestmark = pytest.mark.launched

ALONE = {torch.float32: 1e-6, torch.float64: 1e-8}  # how far parameters may be from those of one process


@pytest.fixture
def pool(tmp_path):
    """pool(size): so many processes, started when they are first asked for."""
    made = {}

    def of(size):
        if size not in made:
            made[size] = Pool(size, tmp_path)
        return made[size]

    yield of
    for one in made.values():
        one.close()


def check(results, alone, dtype):
    for other in results[1:]:
        check_replicas([results[0], other])
    check_as_one(results, alone, ALONE[dtype])


def test_four_processes_are_one(pool):
    for dtype, optimizer, steps in ((torch.float32, "sgd", 300), (torch.float64, "adamw", 90)):
        options = {"dtype": dtype, "optimizer": optimizer, "steps": steps}
        results = pool(4)(train, size=4, **options)
        check(results, train(size=1, **options), dtype)
        assert len(set(results[0]["factors"])) > steps / 3
        assert max(max(r) for _, r in whole(results).values()) > 1.2


def test_four_processes_of_which_two_have_workers(pool):
    """All draw as far ahead as these do: four minibatches, which is little only beside many samples."""
    options = {"optimizer": "adamw", "steps": 300, "num_steps": 300}
    results = pool(4)(train, size=4, workers=[0, 2, 0, 2], **options)
    assert [result["lag"] for result in results] == [4] * 4
    check(results, train(size=1, workers=2, **options), torch.float32)


def test_parts_of_two_processes_go_on_with_three(pool, tmp_path):
    folder, cuts = tmp_path / "checkpoint", (0, 150, 500, SAMPLES)
    states = pool(2)(through_files, folder=folder, cuts=UNEQUAL, batch=24)
    found = pool(3)(read_back, folder=folder, cuts=cuts, batch=24)
    for name in ("mean", "var", "last_step"):
        assert torch.equal(column(found, name), column(states, name))


def in_different_numbers_of_groups(rank, pipe):
    group = dist.new_group([0, 1])
    if rank == 0:
        dist.new_group([0], use_local_synchronization=True)
    if rank < 2:
        with pytest.raises(emais.EmaisError) as raised:
            engine(size=2, group=group, timeout=1.0)
        pipe.send(str(raised.value))


def test_members_of_different_numbers_of_groups(tmp_path):
    for told, _ in run_apart(in_different_numbers_of_groups, 3, tmp_path)[:2]:
        assert "members of this group belong to different numbers of groups: make the same on all" in told


def test_three_processes_are_one(pool):
    for dtype in ALONE:
        options = {"dtype": dtype, "batch": 24, "steps": 90}
        check(pool(3)(train, size=3, **options), train(size=1, **options), dtype)


def test_three_processes_of_which_one_has_workers(pool):
    """All draw as far ahead as it does: two minibatches."""
    options = {"batch": 24, "steps": 60, "num_steps": 60}
    results = pool(3)(train, size=3, workers=[0, 1, 0], **options)
    assert [result["lag"] for result in results] == [2, 2, 2]
    check(results, train(size=1, workers=1, **options), torch.float32)


def go_through(pool, parts, workers=0, **options):
    """Train on one number of processes after the other, (processes, steps) each, from rank 0's last state."""
    drawn, saved = {}, None
    for size, steps in parts:
        given = {"size": size, "steps": steps, "dtype": torch.float64, **options}
        given["workers"] = workers if size == 1 else [workers] + [0] * (size - 1)
        function = train
        if saved is not None:
            function = continued
            given |= {"state": saved["state"], "parameters": saved["parameters"]}
        results = [function(**({"rank": 0} | given))] if size == 1 else pool(size)(function, **given)
        for other in results[1:]:
            check_replicas([results[0], other])
        drawn |= whole(results)
        saved = results[0]
    return drawn, saved


@pytest.mark.parametrize(
    ("parts", "batch", "workers"),
    [
        ([(4, 60), (2, 40), (1, 20)], 16, 0),
        ([(2, 60), (3, 40)], 24, 0),
        ([(1, 60), (8, 12)], 16, 0),
        ([(4, 60), (2, 20), (1, 20), (4, 20)], 16, 1),
    ],
    ids=["4-2-1", "2-3", "1-8", "4-2-1-4 with workers"],
)
def test_a_state_goes_from_any_number_of_processes_to_any_other(pool, parts, batch, workers):
    steps = sum(part for _, part in parts)
    options = {"batch": batch, "num_steps": steps, "method": "emais-auto"}
    drawn, ended = go_through(pool, parts, workers, **options)
    alone = train(size=1, steps=steps, dtype=torch.float64, workers=workers, **options)
    expected = whole([alone])
    assert {step: index for step, (index, _) in drawn.items()} == {step: index for step, (index, _) in expected.items()}
    for step, (_, r) in expected.items():
        assert drawn[step][1] == pytest.approx(r, rel=1e-5)
    assert torch.allclose(ended["parameters"], alone["parameters"], rtol=0, atol=ALONE[torch.float64])
    assert ended["factors"] == pytest.approx(alone["factors"][-parts[-1][1] :], rel=1e-4)

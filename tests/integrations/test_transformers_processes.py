"""A Trainer on two processes does what one process does with as many samples a step."""

import json

import pytest
import tiny
import torch
import trainer_runs
from places import ROOT
from torchrun import torchrun

EXACT = [case for case in trainer_runs.CASES if case not in ("factors", "apart")]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("runs")


@pytest.fixture(scope="module")
def alone(folder):
    """All cases on one process."""
    return {case: trainer_runs.run(folder / "one", case) for case in trainer_runs.CASES}


@pytest.fixture(scope="module")
def together(folder, alone):
    """What both processes tell, after `alone` has left its checkpoints."""
    torchrun(trainer_runs.__file__, folder, folder=folder)
    return [json.loads((folder / f"rank{rank}.json").read_text("utf-8")) for rank in (0, 1)]


def draws(found, number):
    """Index (0) or r (1) of each step, of all processes in the order of ranks."""
    return {step: [x for run in found for x in run["seen"][step][number]] for step in found[0]["seen"]}


def assert_alike(one, found, bound=1e-6):
    """A run on one process, and what several tell of the same run, or of a part of it."""
    steps = found[0]["seen"]
    assert draws(found, 0) == {step: one["seen"][step][0] for step in steps}
    for step, r in draws(found, 1).items():
        assert r == pytest.approx(one["seen"][step][1], rel=1e-5)
    assert [run["steps"] for run in found] == [one["steps"]] * len(found)
    for run in found:
        torch.testing.assert_close(torch.tensor(run["weights"]), torch.tensor(one["weights"]), rtol=0, atol=bound)


@pytest.mark.parametrize("case", EXACT)
def test_two_processes_are_as_one(alone, together, case):
    one, found = alone[case], [run[case] for run in together]
    assert any(set(r) != {1.0} for r in draws(found, 1).values())  # it did draw by importance
    assert_alike(one, found)
    assert [row[0] for row in found[0]["logs"]] == pytest.approx([row[0] for row in one["logs"]], rel=1e-5)
    for step, (_, _, _, items) in one["seen"].items():  # tokens of all processes
        assert [run["seen"][step][3] for run in found] == [items, items]


@pytest.mark.parametrize("case", trainer_runs.CASES)
def test_both_processes_end_alike(together, case):
    first, second = (run[case] for run in together)
    assert first["weights"] == second["weights"]
    assert first["summary"] == second["summary"]
    assert [row[1:] for row in first["logs"]] == [row[1:] for row in second["logs"]]
    assert draws([first], 0) != draws([second], 0)


def test_factors_of_sequences(alone, together):
    """Where only norms are known, pairs of samples on one process stand for all pairs: close, not equal."""
    one, two = alone["factors"]["logs"], together[0]["factors"]["logs"]
    assert any(row[2] != 1 for row in two)
    assert [row[2] for row in two] == pytest.approx([row[2] for row in one], rel=0.05)


def test_each_process_by_its_own_tokens(together):
    """With average_tokens_across_devices=False, as Trainer does it; once draws differ, by the tokens of any draw."""
    tokens = [len(row) - 1 for row in tiny.texts()["input_ids"]]
    kinds = set()
    for run in together:
        for index, r, _, items in run["apart"]["seen"].values():
            plain = set(r) == {1.0}
            kinds.add(plain)
            own = sum(tokens[k] for k in index)
            assert items == (own if plain else pytest.approx(len(index) * sum(tokens) / len(tokens)))
    assert kinds == {True, False}


@pytest.mark.parametrize("case", trainer_runs.RESUMED)
def test_a_resume_is_exact(together, case):
    for run in together:
        whole, again = run[case], run[f"{case}, again"]
        assert again["seen"] == {step: whole["seen"][step] for step in again["seen"]}
        assert 0 < len(again["seen"]) < len(whole["seen"])
        for name in ("weights", "summary", "steps", "logs"):
            assert again[name] == whole[name]


@pytest.mark.parametrize("case", [case for case in trainer_runs.RESUMED if case in EXACT])
def test_a_resume_with_another_number_of_processes(folder, alone, together, case):
    more = [run[f"{case}, from one"] for run in together]
    assert min(map(int, more[0]["seen"])) > 1
    assert_alike(alone[case], more)
    checkpoint = folder / "two" / case / "checkpoint-3"
    assert_alike(alone[case], [trainer_runs.run(folder / "fewer", case, 1, checkpoint)])


def test_a_run_that_ends_early(alone, together):
    assert [run["early"]["steps"] for run in (alone, *together)] == [23, 23, 23]


def test_what_is_refused(together):
    for run in together:
        assert "self-paced takes no process_group yet" in run["self-paced"]
        assert "dispatch_batches=True lets one process read the data of all" in run["dispatched"]


def test_one_file_is_saved(folder, together):
    saved = sorted(path.name for path in (folder / "two" / "classes" / "checkpoint-3").glob("emais*"))
    assert saved == ["emais.pt"]


def test_the_example(tmp_path):
    path = ROOT / "examples" / "distributed_transformers.py"
    shown = torchrun(path, folder=tmp_path)
    assert "2 processes, 32 samples a step" in shown
    assert "alike on all of them: True" in shown
    assert len(path.read_text("utf-8").splitlines()) < 80

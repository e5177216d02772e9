"""A loop with accelerate on two processes does what one process does with as many samples a step."""

import json
import re

import accelerate_runs
import pytest
import torch
from accelerate.state import AcceleratorState, GradientState
from places import ROOT
from torchrun import torchrun


def forget():
    """accelerate keeps one configuration for all accelerators of a process."""
    AcceleratorState._reset_state(reset_partial_state=True)
    GradientState._reset_state()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("runs")


@pytest.fixture(scope="module")
def alone(folder):
    """All cases on one process. The model is that of rank 0, as under DDP."""
    found = {}
    for case, settings in accelerate_runs.CASES.items():
        forget()
        found[case] = accelerate_runs.Run(*settings).train(folder / "one" / case)
    yield found
    forget()


@pytest.fixture(scope="module")
def together(folder, alone):
    """What both processes tell, after `alone` has left its states."""
    torchrun(accelerate_runs.__file__, folder, folder=folder)
    return [json.loads((folder / f"rank{rank}.json").read_text("utf-8")) for rank in (0, 1)]


def assert_alike(one, found):
    for step in found[0]["seen"]:
        index, r = one["seen"][step]
        assert [i for run in found for i in run["seen"][step][0]] == index
        assert [x for run in found for x in run["seen"][step][1]] == pytest.approx(r, rel=1e-5)
    for run in found:
        torch.testing.assert_close(torch.tensor(run["weights"]), torch.tensor(one["weights"]), rtol=0, atol=1e-6)
        assert run["numbers"] == pytest.approx(one["numbers"], rel=1e-5)


@pytest.mark.parametrize("case", accelerate_runs.CASES)
def test_two_processes_are_as_one(alone, together, case):
    one, found = alone[case], [run[case] for run in together]
    assert any(set(r) != {1.0} for _, r in one["seen"].values())
    assert one["numbers"][0] != len(one["seen"])  # the factor reached the optimizer
    assert_alike(one, found)
    assert found[0]["steps"] == one["steps"] == accelerate_runs.STEPS // accelerate_runs.CASES[case][1]
    for name in ("weights", "numbers"):
        assert found[0][name] == found[1][name]


@pytest.mark.parametrize("case", accelerate_runs.CASES)
def test_a_resume_is_exact(folder, alone, together, case):
    for run in together:
        whole, again = run[case], run[f"{case}, again"]
        assert again["seen"] == {step: whole["seen"][step] for step in again["seen"]}
        assert len(again["seen"]) == accelerate_runs.STEPS // 2
        assert (again["weights"], again["numbers"]) == (whole["weights"], whole["numbers"])
    assert_alike(alone[case], [run[f"{case}, from one"] for run in together])  # a state of one process, on two
    forget()
    assert_alike(alone[case], [accelerate_runs.resumed(case, folder / "two" / case)])  # and the other way


def weights_and_factor(shown):
    """The line of an example that every engine must end with, to the bit."""
    return re.search(r"^sum of weights 0x[0-9a-fp.+]+, factor 0x[0-9a-fp.+]+$", shown, re.M)[0]


def test_the_example(tmp_path):
    path = ROOT / "examples" / "distributed_accelerate.py"
    shown = torchrun(path, folder=tmp_path)
    assert "2 processes, 32 samples a minibatch" in shown
    assert "alike on all of them: True" in shown
    assert weights_and_factor(shown) == weights_and_factor(
        torchrun(ROOT / "examples" / "distributed_ddp.py", folder=tmp_path)
    )
    assert len(path.read_text("utf-8").splitlines()) < 80

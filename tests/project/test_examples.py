"""Every example, and the loop that the README shows, runs as it stands; the plain loop changes in five lines."""

import difflib
import json
import re
import runpy

import pytest
import torch
from places import ROOT

# run by tests/distributed, tests/integrations and tests/ray_train
ELSEWHERE = {path.stem for path in (ROOT / "examples").glob("distributed_*.py")} | {"11_tensorboard", "13_trl"}
TOLD = {"05_weighted_sampling": "of the rare classes"}  # by examples without importance sampling of losses


EXAMPLES = sorted(path for path in (ROOT / "examples").glob("*.py") if path.stem not in ELSEWHERE)
PAIR = [ROOT / "examples" / "01_five_lines" / name for name in ("before.py", "after.py")]


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda p: p.stem)
def test_example_runs_and_reports(path, capsys):
    runpy.run_path(str(path), run_name="__main__")
    assert TOLD.get(path.stem, "S(W)") in capsys.readouterr().out


def test_the_plain_loop_changes_in_five_lines():
    """And in the import: three lines are replaced, two are added, each has its number."""
    before, after = (path.read_text("utf-8").splitlines() for path in PAIR)
    changes = [line for line in difflib.ndiff(before, after) if line[:2] in ("+ ", "- ")]
    new = [line[2:] for line in changes if line[0] == "+"]
    assert new[0] == "import emais"
    assert [re.search(r"# (\d)  ", line)[1] for line in new[1:]] == list("12345")
    assert len(changes) - len(new) == 3


@pytest.mark.parametrize("path", PAIR, ids=lambda path: path.stem)
def test_the_pair_of_the_plain_loop_learns(path, capsys):
    runpy.run_path(str(path), run_name="__main__")
    losses = [float(loss) for loss in re.findall(r"training loss ([\d.]+)", capsys.readouterr().out)]
    assert len(losses) == 10
    assert losses[-1] < 0.2 < losses[0]


def test_a_resumed_run_is_the_run_that_was_never_stopped(capsys):
    runpy.run_path(str(ROOT / "examples" / "12_resume.py"))
    told = capsys.readouterr().out
    assert "the same parameters to the bit: True; the same log: True" in told
    assert f"at steps {list(range(20, 301, 20))}" in told


def test_examples_are_short():
    paths = [path for path in (ROOT / "examples").rglob("*.py") if not path.stem.startswith("distributed_")]
    assert [path.name for path in paths if len(path.read_text("utf-8").splitlines()) >= 80] == []


def test_the_notebook_runs(capsys):
    """Its code cells, one after the other; what it prints is not kept in it."""
    cells = json.loads((ROOT / "examples" / "tour.ipynb").read_text("utf-8"))["cells"]
    names: dict[str, object] = {}
    for cell in (cell for cell in cells if cell["cell_type"] == "code"):
        assert cell["outputs"] == []
        exec("".join(cell["source"]), names)
    told = capsys.readouterr().out
    assert "a minibatch of 32 acts like one of" in told
    steps = {method: imp.step for method, (imp, _, _) in names["runs"].items()}
    assert steps["sgd-scan"] == 1500 > steps["emais-auto"]
    assert max(error for _, _, error in names["runs"].values()) < 6


def test_weighted_sampling_helps_rare_classes():
    recall = runpy.run_path(str(ROOT / "examples" / "05_weighted_sampling.py"))["recall"]
    rare = {way: few for way, (few, _) in recall.items()}
    assert rare["by class"] > rare["as they are"] + 10
    assert rare["by loss"] > rare["as they are"]


def test_the_readme_loop_runs():
    """Its first code block, with a data set and a model of one's own."""
    block = re.search(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.S)
    x = torch.randn(300, 6)
    names = {
        "dataset": torch.utils.data.TensorDataset(x, (x[:, 0] > 0).long()),
        "model": torch.nn.Linear(6, 2),
        "torch": torch,
        "epochs": 2,
    }
    names["optimizer"] = torch.optim.SGD(names["model"].parameters(), lr=0.1)
    names["scheduler"] = torch.optim.lr_scheduler.CosineAnnealingLR(names["optimizer"], 2)
    exec(block.group(1), names)
    assert names["imp"].diagnostics.step == 2 * 3

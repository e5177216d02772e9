"""The example pair and the guide for Lightning run, and the pair differs in the three lines that the guide claims."""

import difflib
import re
import runpy
import sys

import pytest
from lightning_task import quiet
from places import DOCS, ROOT
from scripts import run_script, torchrun

PAIR = [ROOT / "examples" / "07_lightning" / name for name in ("before.py", "after.py")]
# of a page that is run as it stands
pytestmark = [*quiet, pytest.mark.filterwarnings("ignore:The dirpath has changed")]


@pytest.mark.parametrize("path", PAIR, ids=lambda path: path.stem)
def test_an_example_runs_and_learns(path, capsys):
    runpy.run_path(str(path), run_name="__main__")
    shown = capsys.readouterr().out
    assert float(re.search(r"'accuracy': ([\d.]+)", shown)[1]) > 0.85
    assert ("emais/n_ems" in shown) == (path.stem == "after")


def test_the_examples_differ_in_three_lines():
    before, after = (path.read_text("utf-8").splitlines() for path in PAIR)
    changes = [line for line in difflib.ndiff(before, after) if line[:2] in ("+ ", "- ")]
    assert [line[0] for line in changes].count("+") == 3
    assert [line[0] for line in changes].count("-") == 2  # one of the three is the import
    assert max(len(before), len(after)) < 80


def weights_and_factor(shown):
    return re.search(r"^sum of weights 0x[0-9a-fp.+]+, factor 0x[0-9a-fp.+]+$", shown, re.M)[0]


def by_torchrun():
    """What plain DistributedDataParallel prints, trained alike."""
    found = run_script(torchrun(2, ROOT / "examples" / "distributed_ddp.py"))
    assert found.returncode == 0, found.stderr[-3000:]
    return found.stdout


def test_the_example_on_two_processes_runs():
    """Lightning starts the second process itself."""
    path = ROOT / "examples" / "distributed_lightning.py"
    done = run_script([sys.executable, str(path)])
    assert done.returncode == 0, done.stderr[-3000:]
    assert "2 processes, 32 samples a step, S(W)" in done.stdout
    assert weights_and_factor(done.stdout) == weights_and_factor(by_torchrun())  # to the bit
    assert "378 steps; alike on all processes: True" in done.stdout  # 6 epochs of ceil(2000 / 32)
    assert len(path.read_text("utf-8").splitlines()) < 80


def test_the_guide_runs(tmp_path, monkeypatch, capsys):
    """Its blocks check with `assert` what the text says."""
    monkeypatch.chdir(tmp_path)
    names = {"__name__": "the guide"}
    blocks = re.findall(r"^```python\n(.*?)^```$", (DOCS / "guides" / "lightning.md").read_text("utf-8"), re.S | re.M)
    for number, block in enumerate(blocks, 1):
        exec(compile(block, f"lightning.md, block {number}", "exec"), names)
    assert "samples had the variance of" in capsys.readouterr().out

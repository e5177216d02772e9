"""Examples and guides of transformers, TRL and accelerate run, and the pair for the Trainer differs in two lines."""

import difflib
import re
import runpy

import pytest
from accelerate.state import AcceleratorState, GradientState
from places import DOCS, ROOT

TRAINER, LOOP = (
    [ROOT / "examples" / folder / f"{name}.py" for name in ("before", "after")]
    for folder in ("08_transformers", "09_accelerate")
)


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path, monkeypatch):
    """They write their files into the present folder, and accelerate keeps one configuration in a process."""
    monkeypatch.chdir(tmp_path)
    forget_configuration()  # that of a test before
    yield
    forget_configuration()


def forget_configuration():
    AcceleratorState._reset_state(reset_partial_state=True)
    GradientState._reset_state()


@pytest.mark.parametrize("path", TRAINER, ids=lambda path: path.stem)
def test_an_example_of_the_trainer_runs_and_learns(path, capsys):
    runpy.run_path(str(path), run_name="__main__")
    shown = capsys.readouterr().out
    assert float(re.search(r"^error ([\d.]+) %", shown, re.M)[1]) < 10
    assert ("emais/n_ems" in shown) == (path.stem == "after")


@pytest.mark.parametrize("path", LOOP, ids=lambda path: path.stem)
def test_an_example_of_a_loop_runs(path, capsys, tmp_path):
    runpy.run_path(str(path), run_name="__main__")
    assert ("S(W)" in capsys.readouterr().out) == (path.stem == "after")
    saved = [file.name for file in (tmp_path / "out" / "accelerate").iterdir()]
    assert ("custom_checkpoint_0.pkl" in saved) == (path.stem == "after")


def test_the_examples_of_the_trainer_differ_in_two_lines():
    before, after = (path.read_text("utf-8").splitlines() for path in TRAINER)
    changes = [line[0] for line in difflib.ndiff(before, after) if line[:2] in ("+ ", "- ")]
    assert (changes.count("+"), changes.count("-")) == (2, 2)
    assert len(after) < 80


@pytest.mark.filterwarnings("ignore:`gradient_checkpointing` is deprecated:FutureWarning")  # of TRL
def test_the_example_of_trl_runs_and_learns(capsys):
    path = ROOT / "examples" / "13_trl.py"
    runpy.run_path(str(path), run_name="__main__")
    shown = capsys.readouterr().out
    assert float(re.search(r"^accuracy of tokens ([\d.]+) %", shown, re.M)[1]) > 95
    assert "'emais/n_ems'" in shown
    assert len(path.read_text("utf-8").splitlines()) < 80


@pytest.mark.filterwarnings("ignore:`gradient_checkpointing` is deprecated:FutureWarning")  # of TRL
@pytest.mark.parametrize("name", ["transformers", "trl", "accelerate"])
def test_the_guide_runs(name):
    """Its blocks check with `assert` what the text says."""
    names = {"__name__": "the guide"}
    text = (DOCS / "guides" / f"{name}.md").read_text("utf-8")
    for number, block in enumerate(re.findall(r"^```python\n(.*?)^```$", text, re.S | re.M), 1):
        exec(compile(block, f"{name}.md, block {number}", "exec"), names)
    assert {"transformers": "MyTrainer", "trl": "EmaisError", "accelerate": "resumed"}[
        name
    ] in names  # the last block has run

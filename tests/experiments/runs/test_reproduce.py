"""`emais reproduce LABEL`: what is recorded, in the files of the data sets or in the label's own, is not run again."""

import json
from dataclasses import asdict

import pytest
from places import RESULTS

from emais.experiments.commands import reproduce
from emais.experiments.runs import runner
from emais.experiments.runs.catalogue import ITEMS
from emais.experiments.runs.record import LAYOUT

STUDY = ITEMS["auto_study"]
CURVES = {"step": [1, 2], "loss": [1.0, 0.5], "lr": [0.1, 0.01], "n_ems": [200.0, 300.0], "score": [0.5, 0.25]}


def lines(configs):
    about = {"test_error": 9.5, "ms_per_step": 0.5, "layout": LAYOUT, "curves": CURVES | {"test_step": [2]}}
    return "".join(json.dumps(asdict(config) | about) + "\n" for config in configs)


@pytest.fixture
def no_training(monkeypatch):
    monkeypatch.setattr(runner, "load", lambda *args: pytest.fail("data were loaded"))
    monkeypatch.setattr(runner, "run_group", lambda *args: pytest.fail("a run was trained"))


def test_the_file_of_a_label_counts(tmp_path, no_training, capsys):
    (tmp_path / "auto_study.jsonl").write_text(lines(STUDY.configs(2)))
    reproduce("auto_study", tmp_path, 2, "cpu", None, None)
    out = capsys.readouterr().out
    assert "still to be done" not in out
    assert "Not run yet" not in out
    assert out.count("| 2 | 9.50 ± 0.00 |") == len(STUDY.settings)
    assert [path.name for path in tmp_path.iterdir()] == ["auto_study.jsonl"]


def test_a_run_that_is_in_two_files_counts_once(tmp_path, no_training, capsys):
    first, *others = STUDY.configs(1)
    (tmp_path / "auto_study.jsonl").write_text(lines([first, *others]))
    (tmp_path / "fmnist.jsonl").write_text(lines([first]))
    reproduce("auto_study", tmp_path, 1, "cpu", None, None)
    assert capsys.readouterr().out.count("| 1 | 9.50 |") == len(STUDY.settings)


def test_what_the_file_of_a_label_lacks_is_run(tmp_path, monkeypatch):
    asked = []
    monkeypatch.setattr(
        "emais.experiments.commands.run_all", lambda configs, *args, **kwargs: asked.extend(configs) or []
    )
    first, *others = STUDY.configs(1)
    (tmp_path / "auto_study.jsonl").write_text(lines([first]))
    reproduce("auto_study", tmp_path, 1, "cpu", None, None)
    assert asked == others


def test_the_committed_study_is_not_run_again(no_training, capsys):
    reproduce("auto_study", RESULTS, None, "cpu", None, None)
    captured = capsys.readouterr()
    assert captured.err == ""
    assert captured.out.count("| 6250 | EMAIS-auto*") == len(STUDY.settings)
    assert "LeNet5, 5 seeds each" in captured.out

"""The command line: help, version, errors as one line, and the exit statuses."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterable
from dataclasses import fields
from pathlib import Path

import pytest
from places import ROOT
from torch import nn

import emais
from emais.cli import main
from emais.experiments import demo
from emais.experiments.config import Config
from emais.experiments.data import load
from emais.experiments.files import write_whole
from emais.experiments.runs import logit_study, runner
from emais.experiments.runs.logit_study import SNAPSHOTS, read_study, write_study
from emais.experiments.runs.store import Results


def stop(*_: object) -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize(("argv", "word"), [(["--help"], "demo"), (["demo", "--help"], "--seeds")])
def test_help(argv: list[str], word: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(argv)
    assert caught.value.code == 0
    assert word in capsys.readouterr().out


def test_help_of_train_has_all_keys_and_their_defaults(capsys):
    with pytest.raises(SystemExit):
        main(["train", "--help"])
    told = " ".join(capsys.readouterr().out.split())
    for key in fields(Config):
        if isinstance(key.default, (str, int, float)) and key.default:
            assert f"{key.name} ({key.default})" in told
        elif key.name != "options":
            assert key.name in told


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["--version"])
    assert (caught.value.code, capsys.readouterr().out) == (0, f"emais {emais.__version__}\n")


@pytest.mark.parametrize("argv", [[], ["dance"], ["demo", "--data", "mnist"], ["demo", "--seeds", "many"]])
def test_usage_errors(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(argv)
    assert caught.value.code == 2
    assert "usage: emais" in capsys.readouterr().err


def test_demo_hands_its_options_on(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[object, ...]] = []
    monkeypatch.setattr(demo, "run_demo", lambda *args: calls.append(args))
    assert main(["demo"]) == 0
    argv = ["demo", "--data", "fmnist", "--seeds", "2", "--steps", "9", "--out", "a.html", "--folder", "here"]
    assert main(argv) == 0
    assert calls == [
        ("digits", None, None, Path("out/demo.html"), None),
        ("fmnist", 2, 9, Path("a.html"), Path("here")),
    ]


@pytest.mark.parametrize(
    ("option", "value", "words"),
    [("--seeds", "0", "seeds must be"), ("--steps", "-1", "steps must be"), ("--out", ".", "cannot write")],
)
def test_errors_are_one_line(option: str, value: str, words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", option, value]) == 2
    message = capsys.readouterr().err
    assert message.startswith("emais: error: ")
    assert words in message
    assert message.count("\n") == 1


def test_page_under_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "taken").write_text("a file")
    assert main(["demo", "--out", str(tmp_path / "taken" / "demo.html")]) == 2
    assert "cannot make the folder" in capsys.readouterr().err


def test_ctrl_c(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(demo, "run_all", lambda *args, **kwargs: stop())
    assert main(["demo", "--out", str(tmp_path / "demo.html")]) == 130
    assert capsys.readouterr().err.endswith("emais: stopped\n")


RUN = ["train", "data=digits", "model=perceptron", "method=sgd-scan", "batch_size=32", "num_steps=5"]


def test_ctrl_c_keeps_finished_runs_and_says_so(tmp_path, monkeypatch, capsys):
    """And prints what is there."""
    monkeypatch.chdir(tmp_path)
    real = runner.run_group
    monkeypatch.setattr(runner, "run_group", lambda group, *args: stop() if group[0].seed else real(group, *args))
    assert main([*RUN, "seed=1,1"]) == 130
    left = "still to be done: finished runs are kept, the same command goes on with the others.\n"
    assert capsys.readouterr() == (f"1 run is {left}", "emais: stopped\n")
    assert main([*RUN, "seed=0-2"]) == 130
    out, err = capsys.readouterr()
    assert "(1 seed)\n" in out
    assert f"2 runs are {left}" in out
    assert "All runs: out/runs.jsonl" in out
    assert err == "emais: stopped\n"


def test_ctrl_c_shows_the_table_so_far(tmp_path, monkeypatch, capsys):
    lines = (ROOT / "results" / "fmnist.jsonl").read_text().splitlines(keepends=True)
    today = next(line for line in lines if '"model": "lenet5"' in line)
    (tmp_path / "fmnist.jsonl").write_text(lines[0] + today)  # both SGD-Scan, 6250 steps, seed 0; lenet5-relu first
    monkeypatch.setattr("emais.experiments.commands.run_all", lambda *args, **kwargs: stop())
    assert main(["reproduce", "tab:res_fmnist", "--seeds", "1", "--results", str(tmp_path)]) == 130
    out, err = capsys.readouterr()
    assert "| 1e-3 | 6250 | 12.10 | – |" in out
    assert out.endswith(
        "\n26 runs are still to be done: finished runs are kept, the same command goes on with the others.\n"
    )
    assert err == "emais: stopped\n"


def test_train_takes_the_rule_that_a_method_has_in_the_library(tmp_path, capsys):
    path = tmp_path / "runs.jsonl"
    words = [word.replace("sgd-scan", "emais-auto,emais") for word in RUN]
    assert main([*words, "--results", str(path), "--device", "cpu"]) == 0
    assert [json.loads(line)["rule"] for line in path.read_text().splitlines()] == ["steady", None]
    assert main([*words, "rule=linear", "--results", str(path), "--device", "cpu"]) == 0
    assert [json.loads(line)["rule"] for line in path.read_text().splitlines()][2:] == ["linear", "linear"]
    assert "rule=steady" in capsys.readouterr().out


def test_words_may_come_after_options(tmp_path, capsys):
    path = tmp_path / "runs.jsonl"
    assert main([*RUN[:2], "--results", str(path), *RUN[2:], "--device", "cpu", "seed=3"]) == 0
    assert '"seed": 3' in path.read_text()
    for wrong in ([*RUN, "--devise", "cpu"], ["demo", "seed=3"]):
        with pytest.raises(SystemExit):
            main(wrong)
        assert (
            f"unrecognized arguments: {' '.join(wrong[-2:]) if len(wrong) > 2 else wrong[-1]}"
            in capsys.readouterr().err
        )


def test_lines_that_train_skips_are_counted_once(tmp_path, capsys):
    path = tmp_path / "runs.jsonl"
    assert main([*RUN, "--results", str(path)]) == 0
    with path.open("a") as file:
        file.write("{}\nnothing\n")
    capsys.readouterr()
    assert main([*RUN, "lr=0.02", "--results", str(path)]) == 0
    assert capsys.readouterr().err == f"emais: warning: skipped 2 lines of {path}: not whole, or of another kind\n"


@pytest.mark.parametrize(
    "command",
    ["train data=fmnist model=lenet5 method=emais num_steps=2", "demo --data fmnist --seeds 1 --steps 2"],
)
def test_a_folder_that_is_not_there(command, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main([*command.split(), "--folder", "nowhere"]) == 2
    assert "the folder nowhere does not exist: say where the data are (--folder DIR" in capsys.readouterr().err


def test_help_on_budgets(capsys):
    with pytest.raises(SystemExit):
        main(["reproduce", "--help"])
    assert "start no run after so long; what is running is finished" in " ".join(capsys.readouterr().out.split())


def test_train_reproduce_and_report(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    words = ["data=digits", "model=perceptron", "method=sgd-scan,emais", "batch_size=32", "num_steps=20", "seed=0-1"]
    words += ["weight_decay=1e-3,1e-4"]
    assert main(["train", *words, "--device", "cpu"]) == 0
    out = capsys.readouterr().out
    assert "emais        digits perceptron sgd lr=0.01 weight_decay=0.0001 T=20 batch_size=32: test error" in out
    assert out.count("(2 seeds)") == 4  # two methods, two weight decays
    assert (
        len(re.findall(r" %, N_ems 32, S\(W\) 1.00, step \d+\.\d\d ms \(", out)) == 4
    )  # too short to leave the warm-up
    assert out.endswith("A page of them: emais report --results out/runs.jsonl\n")
    assert len((tmp_path / "out" / "runs.jsonl").read_text().splitlines()) == 8
    assert "Nothing was left to run" not in out
    assert main(["train", *words, "--device", "cpu"]) == 0
    assert "Nothing was left to run" in capsys.readouterr().out
    assert main(["reproduce", "--list"]) == 0
    assert "tab:res_fmnist" in capsys.readouterr().out
    assert main(["reproduce", "tab:res_fmnist"]) == 2
    assert "there is no folder results here" in capsys.readouterr().err
    assert main(["reproduce", "tab:res_fmnst"]) == 2
    assert "did you mean 'tab:res_fmnist'" in capsys.readouterr().err
    assert main(["reproduce", "tab:res_fmist", "--results", "new"]) == 2
    assert "did you mean 'tab:res_fmnist'" in capsys.readouterr().err
    assert main(["report"]) == 2
    message = capsys.readouterr().err
    assert "there are no results in results, where chestxray14.jsonl, cifar10.jsonl" in message
    assert "--results out/runs.jsonl" in message
    assert main(["report", "--results", "out/runs.jsonl"]) == 0
    assert capsys.readouterr() == ("The report: out/report.html\n", "")
    assert "perceptron" in (tmp_path / "out" / "report.html").read_text()
    assert main(["report", "--results", "out/run.jsonl"]) == 2
    assert "there are no results in out/run.jsonl: give a file that `emais train`" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("method=emais-auto powers=1:x", "powers must be .* got 'x'"),
        ("method=emais warmup_epochs=abc", "warmup_epochs must be .* got 'abc'"),
        ("method=emais smoothing=abc", "smoothing must be .* got 'abc'"),
        ("method=emais unbiased=abc", "unbiased must be True or False, got 'abc'"),
        ("method=emais kappa=1,abc", "kappa must be .* got 'abc'"),
        ("method=emais --device tpu", "device must be cpu or cuda, got 'tpu'"),
        ("method=emais --device cpu:x", "device 'cpu:x' cannot be used here"),
        ("method=emais seed=99999999999999999999999", "seed must be a whole number"),
        ("method=emais --results .", "is a folder: give a file"),
    ],
)
def test_bad_settings_are_refused_before_anything_is_trained(words, message, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    argv = ["train", "data=digits", "model=perceptron", "num_steps=5", "batch_size=8", *words.split()]
    assert main(argv) == 2
    assert re.search(message, capsys.readouterr().err)
    assert not (tmp_path / "out" / "runs.jsonl").exists()


def test_a_network_that_does_not_take_the_images(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["train", "data=digits", "model=lenet5", "method=emais", "num_steps=5"]) == 2
    assert "lenet5 does not take images of (1, 8, 8) such as those of digits" in capsys.readouterr().err


def test_settings_that_differ_in_their_schedule_are_told_apart(tmp_path, capsys):
    assert main([*RUN, "schedule=steps,effective", "--results", str(tmp_path / "runs.jsonl")]) == 0
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("sgd-scan")]
    assert ["schedule=effective" in line for line in lines] == [False, True]


def test_a_resnet_follows_nobody(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["train", "data=digits", "model=resnet18", "method=sgd-uni", "follow=emais", "num_steps=3"]) == 2
    assert (
        "only lenet5, lenet5-relu, perceptron can follow EMAIS's minibatch sizes, got resnet18"
        in capsys.readouterr().err
    )
    assert not (tmp_path / "out" / "runs.jsonl").exists()


def test_a_missing_data_set_keeps_nobody_from_the_others(tmp_path, monkeypatch, capsys):
    """And all data sets share one budget."""
    asked = []

    def run_all(configs, path, *, budget, **_):
        asked.append((path.name, budget))
        if path.name == "fmnist.jsonl":
            raise emais.EmaisError("no such data")
        time.sleep(0.01)
        return []

    monkeypatch.setattr("emais.experiments.commands.run_all", run_all)
    argv = ["reproduce", "fig:score_and_trvars", "--results", str(tmp_path), "--budget", "3"]
    assert main(argv) == 2
    out, err = capsys.readouterr()
    assert "no such data" in err
    assert "5 runs are still to be done" in out
    assert sorted(name for name, _ in asked) == ["cifar10.jsonl", "fmnist.jsonl"]
    assert all(0 < budget <= 3 for _, budget in asked)
    assert asked[1][1] < asked[0][1]


TIMES = ("tab:per_iter_time", "tab:res_time_fmnist", "tab:res_time_cinic10", "tab:res_time_nih")


def test_tables_of_times(tmp_path, monkeypatch, capsys):
    """From the benchmarks beside the results, wherever the command is given."""
    results = ROOT / "results"
    monkeypatch.chdir(tmp_path)
    assert main(["reproduce", "--list"]) == 0
    listed = capsys.readouterr().out
    for label in TIMES:
        assert f"\n{label} " in listed
        assert main(["reproduce", label, "--results", str(results)]) == 0
        assert "\n| paper, " in capsys.readouterr().out
        assert main(["reproduce", label]) == 2
        message = capsys.readouterr().err
        assert f"nothing was measured for {label} yet" in message
        assert "python benchmarks/step.py" in message
        assert "python benchmarks/single.py --model" in message


def test_options_that_do_not_apply_are_named(capsys):
    results = str(ROOT / "results")
    for option in (["--seeds", "2"], ["--budget", "3"]):
        assert main(["reproduce", "tab:per_iter_time", "--results", results, *option]) == 0
        assert "--seeds and --budget do not apply" in capsys.readouterr().out
    assert main(["reproduce", "tab:per_iter_time", "--results", results]) == 0
    assert "do not apply" not in capsys.readouterr().out


def studied(steps: Iterable[int], **layout: int) -> str:
    """The file of a study; without a layout, of the network that was called lenet5 then."""
    found = {"model": "lenet5", "method": "emais", "norms": {}, "minibatches": []} | layout
    return "".join(json.dumps(found | {"step": step}) + "\n" for step in steps)


@pytest.mark.parametrize(
    "there", [None, "", "{}\n", studied([5000], layout=2) + '{"step": 25', studied(SNAPSHOTS)], ids=range(5)
)
def test_a_study_that_is_not_whole_is_made_again(there, tmp_path, monkeypatch, capsys):
    made = []
    monkeypatch.setattr("emais.experiments.commands.write_study", lambda *args: made.append(args[0]))
    path = tmp_path / "full_logit.jsonl"
    if there is not None:
        path.write_text(there)
    argv = ["reproduce", "fig:full_logit_grad", "--results", str(tmp_path)]
    assert main(argv) == 0
    assert made == [path]
    path.write_text(studied(SNAPSHOTS, layout=2))
    assert main([*argv, "--seeds", "2"]) == 0
    assert made == [path]
    assert "do not apply" in capsys.readouterr().out


def test_a_study_goes_on_after_a_torn_line(tmp_path, monkeypatch):
    path = tmp_path / "full_logit.jsonl"
    path.write_text(studied(SNAPSHOTS) + '{"step": 25')
    monkeypatch.setattr(logit_study, "load", lambda *args: load("digits"))
    monkeypatch.setattr(logit_study, "snapshots", lambda data, steps, *args: ((step, nn.Identity()) for step in steps))
    monkeypatch.setattr(logit_study, "study", lambda *args: {"norms": {}, "minibatches": []})
    write_study(path, SNAPSHOTS, 0, "cpu", None)
    assert [(r["step"], r["model"]) for r in read_study(path)] == [(step, "lenet5") for step in SNAPSHOTS]
    older = [r["step"] for r in read_study(path, "lenet5-relu")]
    assert older == list(SNAPSHOTS)
    assert len(read_study(path, None)) == 2 * len(SNAPSHOTS)


def test_a_study_checks_the_device_first(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("emais.experiments.runs.logit_study.load", lambda *args: pytest.fail("data were loaded"))
    argv = ["reproduce", "fig:full_logit_grad", "--results", str(tmp_path), "--device"]
    assert main([*argv, "cpu:x"]) == 2
    assert "device 'cpu:x' cannot be used here" in capsys.readouterr().err
    (tmp_path / "taken").write_text("a file")
    with pytest.raises(emais.EmaisError, match="cannot be written"):
        write_study(tmp_path / "taken" / "study.jsonl", SNAPSHOTS, 0, "cpu", None)


def test_labels_of_both_kinds_are_known(tmp_path, capsys):
    assert main(["reproduce", "fig:full_logit_gradd", "--results", str(tmp_path)]) == 2
    assert "did you mean 'fig:full_logit_grad" in capsys.readouterr().err


def test_a_folder_for_a_file_and_a_file_for_a_folder(tmp_path, capsys):
    run = ["train", "data=digits", "model=perceptron", "method=emais", "--results", str(tmp_path)]
    for command, option, name in (
        (run, "--results", "runs.jsonl"),
        (["report", "--out", str(tmp_path)], "--out", "report.html"),
    ):
        assert main(command) == 2
        wanted = f"{tmp_path} is a folder: give a file, e.g. {option} {tmp_path / name}"
        assert wanted in capsys.readouterr().err
    file = tmp_path / "fmnist.jsonl"
    file.touch()
    assert main(["reproduce", "tab:res_fmnist", "--results", str(file)]) == 2
    assert f"{file} is a file: give the folder, e.g. --results {tmp_path}" in capsys.readouterr().err


def test_report_of_the_committed_results(tmp_path, monkeypatch):
    """From anywhere, with the step times that lie beside them."""
    root = ROOT
    monkeypatch.chdir(tmp_path)
    assert main(["report", "--results", str(root / "results"), "--out", str(tmp_path / "report.html")]) == 0
    page = (tmp_path / "report.html").read_text()
    for label in ("tab:res_fmnist", *TIMES):
        assert f"<code>{label}</code>" in page


def test_a_report_passes_over_lines_that_are_no_runs(tmp_path, capsys):
    root = ROOT
    line = (root / "results" / "fmnist.jsonl").read_bytes().splitlines()[0]
    run = b'{"data": "fmnist", "model": "lenet5", "method": "emais", "optimizer": "sgd", "num_steps": 9, "seed": 0}'
    bare = run[:-1] + b', "test_error": 9.0, "ms_per_step": 1.0, "curves": {}}'
    unknown = line.replace(b'"method": "', b'"method": "of_tomorrow_')
    (tmp_path / "fmnist.jsonl").write_bytes(b"\n".join([b"{}", b"123", b"\xff", run, bare, unknown, line, b""]))
    (tmp_path / "full_logit.jsonl").write_bytes(b"{}\n")
    told = "emais: warning: skipped {} of {}: not whole, or of another kind\n"
    file, study, out = (
        tmp_path / "fmnist.jsonl",
        tmp_path / "full_logit.jsonl",
        ["--out", str(tmp_path / "report.html")],
    )
    assert main(["report", "--results", str(tmp_path), *out]) == 0
    assert capsys.readouterr().err == told.format("5 lines", file) + told.format("1 line", study)
    assert main(["report", "--results", str(file), *out]) == 0
    assert capsys.readouterr().err == told.format("6 lines", file)  # a method of tomorrow is not known
    file.write_bytes(b"{torn")
    for source in (tmp_path, file):
        assert main(["report", "--results", str(source), *out]) == 2
        assert capsys.readouterr().err.startswith(f"{told.format('1 line', file)}emais: error: there are no results in")


@pytest.mark.parametrize("options", [["--budget", "0"], ["--device", "mps"]])
@pytest.mark.parametrize(
    "command", [["train", "data=digits", "model=perceptron", "method=emais"], ["reproduce", "relu_momentum"]]
)
def test_options_are_checked_first(command, options, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "results").mkdir()
    assert main([*command, *options]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert options[0].strip("-") in err


def test_runs_that_were_finished_are_shown_after_an_error(tmp_path, monkeypatch, capsys):
    """Such as a disk that is full by now."""
    path, append = tmp_path / "runs.jsonl", Results.append

    def full(self, record):
        if record["seed"] == 2:
            raise self._unwritable(OSError(28, "No space left on device"))
        return append(self, record)

    monkeypatch.setattr(Results, "append", full)
    words = ["data=digits", "model=perceptron", "method=emais", "num_steps=5", "batch_size=8", "seed=0-3"]
    assert main(["train", *words, "--results", str(path)]) == 2
    out, err = capsys.readouterr()
    assert f"{path} cannot be written (No space left on device)" in err
    assert "(2 seeds)" in out
    assert "2 runs are still to be done" in out


def test_a_page_that_cannot_be_written_leaves_the_old_one(tmp_path, monkeypatch):
    page = tmp_path / "page.html"
    page.write_text("old")

    def full(self, *args, **kwargs):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(Path, "write_text", full)
        with pytest.raises(OSError, match="No space"):
            write_whole(page, "new")
    assert [p.read_text() for p in tmp_path.iterdir()] == ["old"]
    write_whole(page, "new")
    assert [p.read_text() for p in tmp_path.iterdir()] == ["new"]


def test_a_reader_that_has_enough():
    """emais reproduce --list | head -1"""
    read, write = os.pipe()
    os.close(read)
    command = [sys.executable, "-c", "import sys; from emais.cli import main; sys.exit(main(['reproduce', '--list']))"]
    done = subprocess.run(command, stdout=write, stderr=subprocess.PIPE, text=True, check=False)
    os.close(write)
    assert done.stderr == ""
    assert done.returncode == 1


# ---- audit


def test_audit_says_what_importance_sampling_is_worth(capsys):
    assert main(["audit", "--lr", "0.03", "--steps", "300", "--seed", "1"]) == 0
    out = capsys.readouterr().out
    assert "N = 32, SGD at 0.03 with momentum 0.9, seed 1" in out
    assert re.search(r"After 300 steps \(6.7 epochs\): .* minibatch of 32 acts like one of \d+", out)
    assert main(["audit", "--steps", "20", "--batch-size", "64"]) == 0
    assert "too early to say after 20 steps" in capsys.readouterr().out


def test_audit_of_digits_is_long_enough_by_default(capsys):
    """N_ems rises for ten epochs, from 69 after five to 250."""
    assert main(["audit"]) == 0
    out = capsys.readouterr().out
    (found,) = re.findall(r"After 900 steps \(20.0 epochs\): .* acts like one of (\d+)", out)
    assert 200 < int(found) < 320


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--batch-size", "5000"], "batch_size is 5000, and the data set has 1437 samples"),
        (["--model", "lenet5"], "unknown model for digits 'lenet5'"),
        (["--steps", "0"], "steps must be a whole number of at least 1, got 0"),
        (["--batch-size", "0"], "batch_size must be a whole number"),
        (["--lr", "-1"], "lr must be a finite number above 0"),
        (["--seed", "-1"], "seed must be a whole number"),
    ],
)
def test_audit_refuses_bad_options(argv, message, capsys):
    assert main(["audit", *argv]) == 2
    assert message in capsys.readouterr().err

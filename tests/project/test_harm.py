"""The harm suite in benchmarks/harm: its data are what they claim, its comparison is fair, its table is right."""

import importlib
import math
from types import SimpleNamespace

import pytest
import torch
from places import ROOT

from emais.experiments.analysis.harm_runs import (
    BASE,
    ENTRIES,
    EQUAL_STEPS,
    FIRST_TUNING_SEED,
    PROBLEMS,
    PROGRESS,
    SHORTENED,
)

MODULES = ("data", "problems", "suite", "training", "__main__")
SMALL = ["wine", "breast-cancer", "diabetes", "diabetes-outliers", "digits", "digits-rare", "digits-duplicates"]


@pytest.fixture
def harm(monkeypatch):
    monkeypatch.syspath_prepend(ROOT)
    return SimpleNamespace(**{name: importlib.import_module(f"benchmarks.harm.{name}") for name in MODULES})


@pytest.fixture
def made(harm):
    """A run with the given numbers, and for the rest something that fits."""

    def make(entry, setting, seed, **numbers):
        first = ("wine", entry.method, entry.form, seed, setting.rate, setting.decay, 100)
        rest = {"steps": 100, "effective_steps": 100.0, "mean_factor": 1.0, "max_factor": 1.0, "max_r": 1.0}
        parts = {f"{part}_{kind}": 0.5 for part in ("train", "valid", "test") for kind in ("loss", "error")}
        return harm.training.HarmRun(
            *first, **(rest | parts | {"start_loss": 1.0, "seconds": 0.1, "source": "x"} | numbers)
        )

    return make


# ---- the data


@pytest.mark.parametrize("name", SMALL)
def test_a_split_shares_no_sample_and_depends_on_the_seed_alone(harm, name):
    problem, folders = harm.problems.PROBLEMS[name], harm.data.Folders()
    first, same, other = (problem.data(folders, seed) for seed in (0, 0, 1))
    places = torch.cat(first.pool).tolist()
    assert len(set(places)) == len(places)
    assert torch.equal(first.train[0], same.train[0])
    assert set(first.pool[2].tolist()) != set(other.pool[2].tolist())
    for x, y in (first.train, first.valid, first.test):
        assert len(x) == len(y) > 30
        assert x.isfinite().all()


def test_parts_larger_than_the_pool_are_refused(harm):
    with pytest.raises(ValueError, match="11 samples were asked for, the pool has 10"):
        harm.data.split((torch.zeros(10, 1), torch.zeros(10)), 0, (5, 3, 3))


def test_inputs_are_standardised_by_the_training_part_alone(harm):
    parts = harm.problems.breast_cancer(harm.data.Folders(), 0)
    torch.testing.assert_close(parts.train[0].mean(0), torch.zeros(30), atol=1e-5, rtol=0)
    assert parts.test[0].mean(0).abs().max() > 0.01


@pytest.mark.parametrize("share", [0.1, 0.4])
def test_as_many_labels_are_wrong_as_is_said(harm, share):
    folders = harm.data.Folders()
    clean, wrong = harm.problems.digits(folders, 3), harm.problems.wrong_digits(share)(folders, 3)
    assert (clean.train[1] != wrong.train[1]).sum() == round(share * len(clean.train[1]))
    assert torch.equal(clean.valid[1], wrong.valid[1])
    assert torch.equal(clean.test[1], wrong.test[1])


def test_positives_are_rare_duplicates_many_and_outliers_few(harm):
    folders = harm.data.Folders()
    assert harm.problems.rare_digits(folders, 0).train[1].float().mean().item() == pytest.approx(0.01, abs=0.001)
    x, _ = harm.problems.repeated_digits(folders, 0).train
    _, counts = x.unique(dim=0, return_counts=True)
    assert (len(x), len(counts), (counts == 11).sum().item()) == (1400, 400, 100)
    clean, wild = harm.problems.diabetes(folders, 0), harm.problems.diabetes_outliers(folders, 0)
    assert (clean.train[1] != wild.train[1]).sum() == 8
    assert torch.equal(clean.test[1], wild.test[1])


def test_sentences_are_read_from_the_folder_that_is_given(harm, tmp_path):
    (tmp_path / "train.tsv").write_text("sentence\tlabel\nA fine film\t1\nno \t0\n", "utf-8")
    x, y = harm.data.sentences(tmp_path)
    assert y.tolist() == [1, 0]
    assert (x > 0).sum(1).tolist() == [3, 1]
    assert harm.problems.Bag()(x).shape == (2, 2)


# ---- the runs


def test_a_run_at_equal_progress_stops_early_and_the_shortened_one_with_it(harm, one_thread, tmp_path):
    suite = harm.suite.Suite(harm.suite.Store(tmp_path / "runs.jsonl"), harm.data.Folders(), seeds=1, divided_by=2)
    runs = {run.entry: run for run in suite.compared(harm.problems.PROBLEMS["wine"], harm.training.Tuned(0.1, 1e-4))}
    progress, shortened = runs[PROGRESS], runs[SHORTENED]
    assert progress.steps < progress.planned == 300
    assert progress.planned <= progress.effective_steps < progress.planned + progress.max_factor
    assert shortened.steps == shortened.planned == progress.steps
    assert runs[BASE].max_factor == runs[BASE].max_r == 1
    assert all(run.steps == 300 for entry, run in runs.items() if entry.form == "steps")
    assert not any(run.diverged for run in runs.values())


def test_a_run_diverged_if_a_loss_is_not_finite_or_training_made_it_worse(harm, made):
    entry, setting = BASE, harm.training.Tuned(0.1, 1e-4)
    assert not made(entry, setting, 0, start_loss=1.0, train_loss=0.9, test_loss=7.0).diverged  # it only overfits
    assert made(entry, setting, 0, start_loss=1.0, train_loss=1.1).diverged
    assert made(entry, setting, 0, test_loss=None).diverged
    assert harm.training.finite(torch.tensor([1.0, torch.inf])) is None


def test_the_tuned_setting_is_the_best_of_those_that_never_diverge(harm, made, monkeypatch, tmp_path):
    """By the mean over all tuning seeds: the best with the first seed alone is another, and the very best diverges."""
    calls = []

    def train(problem, entry, setting, seed, planned, folders, scale_decay):
        calls.append((setting, seed))
        loss = {0.3: 0.1, 0.1: 0.2, 0.03: 0.15}.get(setting.rate, 5.0) + 20 * setting.decay
        if setting.rate == 0.03 and seed > 100:
            loss = 0.9
        return made(entry, setting, seed, valid_loss=None if setting.rate == 0.3 and seed == 102 else loss)

    monkeypatch.setattr(harm.suite, "train", train)
    path, problem = tmp_path / "runs.jsonl", harm.problems.PROBLEMS["wine"]
    suite = harm.suite.Suite(harm.suite.Store(path), harm.data.Folders(), divided_by=6)
    assert suite.tuned(problem) == harm.training.Tuned(0.1, 1e-4)
    assert len(calls) == len(set(calls)) == 15 + harm.suite.FINALISTS * 3
    assert {seed for _, seed in calls} == {100, 101, 102, 103}
    again = harm.suite.Suite(harm.suite.Store(path), harm.data.Folders(), divided_by=6)
    assert again.tuned(problem) == harm.training.Tuned(0.1, 1e-4)
    assert len(calls) == 15 + harm.suite.FINALISTS * 3  # all were in the file


@pytest.mark.parametrize(("lowest", "tried"), [(0.1, set()), (0.003, {0.003, 0.001}), (1.0, {3.0})])
def test_tuning_goes_on_where_the_best_rate_is_at_an_edge(harm, made, monkeypatch, tmp_path, lowest, tried):
    def train(problem, entry, setting, seed, planned, folders, scale_decay):
        return made(entry, setting, seed, valid_loss=abs(math.log(setting.rate / lowest)))

    monkeypatch.setattr(harm.suite, "train", train)
    problem = harm.problems.PROBLEMS["wine"]
    suite = harm.suite.Suite(harm.suite.Store(tmp_path / "runs.jsonl"), harm.data.Folders(), divided_by=6)
    assert suite.tuned(problem).rate == lowest
    assert {run.rate for run in suite.store.runs} == {*problem.rates, *tried}


# ---- the command and the file


def test_the_command_skips_what_is_not_installed_and_prints_a_table(harm, one_thread, tmp_path, capsys):
    options = ["--quick", "--seeds", "1", "--out", str(tmp_path / "runs.jsonl")]
    harm.__main__.main(["--only", "sst2,diabetes", *options])
    out = capsys.readouterr().out
    assert "sst2 is skipped: no train.tsv of SST-2" in out
    assert out.count("seed 0") == len(ENTRIES)
    assert "| diabetes (regression) | SGD-Scan, shortened |" in out
    with pytest.raises(SystemExit):
        harm.__main__.main(["--only", "vine", *options])
    assert "unknown problem 'vine'" in capsys.readouterr().err


def test_committed_runs_are_fair(harm):
    """All methods have SGD-Scan's setting, and the shortened runs the length of those at equal progress."""
    runs = harm.suite.Store(ROOT / "benchmarks" / "results" / "harm.jsonl").runs
    assert {run.problem for run in runs} <= harm.problems.PROBLEMS.keys() == PROBLEMS.keys()
    compared = [run for run in runs if run.seed < FIRST_TUNING_SEED]
    for name in {run.problem for run in compared}:
        own = [run for run in compared if run.problem == name]
        assert len({run.tuned for run in own}) == 1
        steps = {e: {run.seed: run.steps for run in own if run.entry == e} for e in ENTRIES}
        assert steps[SHORTENED] == steps[PROGRESS]
        assert all(run.seed in steps[BASE] for run in own)


def test_committed_runs_with_more_decay_change_nothing_else(harm):
    """They have the tuned rate, and a multiple of the tuned weight decay."""
    found = harm.suite.Store(ROOT / "benchmarks" / "results" / "harm_decay.jsonl").runs
    tuned = {
        run.problem: run.tuned
        for run in harm.suite.Store(ROOT / "benchmarks" / "results" / "harm.jsonl").runs
        if run.seed == 0
    }
    assert {run.entry for run in found} == {BASE, EQUAL_STEPS}
    assert all(run.rate == tuned[run.problem].rate for run in found)
    assert {round(run.decay / tuned[run.problem].decay, 6) for run in found} == {3, 10}


def test_more_decay_is_run_with_the_tuned_rate_into_a_file_of_its_own(harm, made, monkeypatch, tmp_path):
    monkeypatch.setattr(harm.suite, "train", lambda problem, entry, setting, seed, *_: made(entry, setting, seed))
    monkeypatch.setattr(harm.__main__, "RAISED", tmp_path / "decay.jsonl")
    harm.__main__.main(["--only", "wine", "--seeds", "1", "--out", str(tmp_path / "runs.jsonl"), "--decay-times", "3"])
    suite = harm.suite.Suite(harm.suite.Store(tmp_path / "runs.jsonl"), harm.data.Folders())
    tuned = suite.tuned(harm.problems.PROBLEMS["wine"])
    found = harm.suite.Store(tmp_path / "decay.jsonl").runs
    assert [run.entry for run in found] == [BASE, EQUAL_STEPS]
    assert {run.rate for run in found} == {tuned.rate}
    assert [run.decay for run in found] == pytest.approx([3 * tuned.decay] * 2)

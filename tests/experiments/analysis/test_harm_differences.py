"""Paired differences by hand, and which runs of the harm suite are compared."""

import math
from dataclasses import replace

import pytest

from emais.experiments.analysis.harm_differences import Harm, paired
from emais.experiments.analysis.harm_runs import BASE, EQUAL_STEPS, PAPER, PROGRESS, HarmRun, read_harm

RUN = HarmRun(
    "wine", "sgd-scan", "steps", 0, 0.1, 1e-4, 100, steps=100, effective_steps=100.0, mean_factor=1.0, max_factor=1.0,
    max_r=1.0, start_loss=1.0, train_loss=0.5, train_error=0.5, valid_loss=0.5, valid_error=0.5, test_loss=0.5,
    test_error=0.5, seconds=0.1, source="x",
)  # fmt: skip


def made(entry, seed, **changes):
    return replace(RUN, method=entry.method, form=entry.form, seed=seed, **changes)


def test_paired_differences_by_hand():
    found = paired([2.0, 4.0, 9.0], [1.0, 2.0, 6.0])
    assert (found.mean, found.error) == pytest.approx((2.0, 1 / math.sqrt(3)))
    assert found.mark == "worse"
    assert paired([1.0, 2.0], [2.0, 3.1]).mark == "better"
    assert paired([1.0, 3.0], [2.0, 2.0]).mark == ""
    assert paired([1.0, 2.0], [1.0, 2.0]).mark == ""
    assert paired([3.0], [2.0]).mark == ""  # one pair says nothing
    assert paired([1.0, None], [2.0, 3.0]).mark == "worse"  # it diverged
    assert paired([1.0, 2.0], [None, 3.0]).mean == -1.0


def test_methods_are_paired_by_seed_and_tuning_is_left_out():
    base = [made(BASE, seed, test_loss=1.0 + seed) for seed in range(3)]
    own = [made(EQUAL_STEPS, seed, test_loss=1.1 + seed + 0.01 * (seed == 1), steps=50) for seed in (2, 0, 1, 7)]
    harm = Harm([made(BASE, 100, test_loss=77.0), *base, *own])
    found = harm.compare("wine", EQUAL_STEPS)
    assert (len(found.own), found.steps, found.average("test_loss")) == (3, 50, pytest.approx(6.31 / 3))
    assert (found.difference("test_loss").mean, found.difference("test_loss").error) == pytest.approx(
        (0.31 / 3, 0.01 / 3)
    )
    assert harm.marked(EQUAL_STEPS, "worse", "test_loss") == ["wine"]
    assert harm.marked(EQUAL_STEPS, "worse", "test_error") == harm.marked(EQUAL_STEPS, "better", "test_loss") == []
    assert harm.compare("wine", PROGRESS) is None
    assert harm.compare("wine", BASE, EQUAL_STEPS).difference("test_loss").mark == "better"


def test_a_run_that_diverged_makes_its_method_worse():
    base, lost = [made(BASE, seed) for seed in range(2)], [made(PAPER, 0), made(PAPER, 1, train_loss=1.5)]
    harm = Harm([*base, *lost])
    assert harm.diverged(PAPER) == 1
    assert harm.marked(PAPER, "worse", "test_error") == ["wine"]
    assert harm.of(PAPER)[0].average("test_loss") == 0.5


def test_of_a_problem_that_was_tuned_again_only_the_latest_setting_counts():
    old = [made(entry, seed, test_loss=9.0) for entry in (BASE, EQUAL_STEPS) for seed in range(2)]
    new = [made(entry, seed, rate=0.3) for entry in (BASE, EQUAL_STEPS) for seed in range(2)]
    harm = Harm([*old, *new])
    assert harm.tuned("wine").rate == 0.3
    assert harm.compare("wine", EQUAL_STEPS).average("test_loss") == 0.5


def test_no_file_is_no_runs(tmp_path):
    assert read_harm(tmp_path) == read_harm(tmp_path / "none.jsonl") == []

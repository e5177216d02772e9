"""Facts about runs: each number is that of the records, and a claim is only true if they bear it out."""

import math
from dataclasses import asdict

import pytest
from places import RESULTS

from emais.experiments.analysis.facts import HOMES, Facts, claim
from emais.experiments.analysis.quantities import best_of
from emais.experiments.analysis.settings import of_item
from emais.experiments.commands import read_all
from emais.experiments.config import Config
from emais.experiments.runs.beyond_items import CHOSEN_STEADY
from emais.experiments.runs.catalogue import CHOSEN, HELD_OUT, ITEMS


def record(method, seed, error, steps=6250, **changes):
    home = HOMES[changes.pop("data", "fmnist")]
    config = Config("fmnist", method=method, num_steps=steps, seed=seed, **(home | changes))
    curves = {"step": [1, 2], "n_ems": [128.0, 256.0], "loss": [1.0, 0.5], "lr": [0.1, 0.0]}
    curves |= {"tr_unif": [4.0, 4.0], "tr_opt": [2.0, 1.0], "test_step": [10, 20], "test_error": [20.0, error]}
    curves["score"] = [9.0, 1.0, math.nan, 2.0, 0.5]
    return asdict(config) | {"test_error": error, "curves": curves, "layout": 2, "ms_per_step": 0.6}


def runs(method, errors, **changes):
    return [record(method, seed, error, **changes) for seed, error in enumerate(errors)]


@pytest.fixture
def facts():
    return Facts(
        [*runs("sgd-scan", (12.0, 12.1, 12.2)), *runs("emais", (10.4, 10.5, 10.6)), *runs("rais", (12.0, 12.2, 11.9))]
    )


def test_numbers_are_those_of_the_records(facts):
    assert facts.value("fmnist", 6250, "emais") == "10.50 ± 0.10"
    assert facts.lead("fmnist", 6250, "emais") == pytest.approx(1.6)
    assert facts.lead("fmnist", 6250, "sgd-scan", "emais") == pytest.approx(-1.6)
    assert facts.seeds("fmnist", 6250, "emais") == 3
    assert facts.paper("fmnist", 6250, "emais") == 10.52
    assert facts.half("n_ems", "fmnist", 6250, "emais") == 256.0
    assert facts.last("loss", "fmnist", 6250, "emais") == 0.5
    assert facts.peak("score", "fmnist", 6250, "emais") == 2.0
    assert facts.room("fmnist", 6250, "emais") == 4.0
    assert facts.standstill("fmnist", 6250, "emais") == pytest.approx(2 / 6250)
    assert facts.steps_to(15, "fmnist", 6250, "emais") == pytest.approx(15.27, abs=0.02)
    assert math.isnan(facts.steps_to(1, "fmnist", 6250, "emais"))
    means = [facts.of("fmnist", 6250, method) for method in ("emais", "sgd-scan", "rais")]
    assert facts.span(means) == pytest.approx(1.6)
    assert facts.span(means[:1]) == 0


def test_what_is_sure_and_what_is_open(facts):
    assert facts.sure("fmnist", 6250, "emais")
    assert not facts.sure("fmnist", 6250, "sgd-scan", "emais")  # it differs, and is worse
    assert facts.open("fmnist", 6250, "rais")
    assert not facts.open("fmnist", 6250, "emais")
    two = Facts([*runs("sgd-scan", (12.0, 12.1)), *runs("emais", (10.4, 10.5))])
    assert not two.sure("fmnist", 6250, "emais")  # two seeds never suffice


def test_several_lengths_are_tested_together():
    """p is near 0.03 at each of three lengths: more than chance alone, and not among three."""
    apart = [run for n in (6250, 12500, 25000) for run in runs("emais", (10.0, 10.2, 10.4), steps=n)]
    apart += [run for n in (6250, 12500, 25000) for run in runs("sgd-scan", (10.5, 10.7, 10.9), steps=n)]
    facts = Facts(apart)
    assert facts.sure("fmnist", 6250, "emais")
    assert not facts.sure("fmnist", (6250, 12500, 25000), "emais")
    assert facts.ahead(["tab:res_fmnist"], "emais") == (3, 0, 3)


def test_the_order_and_the_agreement_with_the_paper():
    facts = Facts(
        [*runs("sgd-scan", (12.0, 12.1, 12.2)), *runs("emais", (10.4, 10.5, 10.6)), *runs("rais", (13.0, 13.1, 13.2))]
    )
    same, pairs = facts.order("tab:res_fmnist")
    assert (same, pairs) == (1, 2)  # the paper has RAIS ahead of SGD-Scan, and not clearly apart from EMAIS
    assert facts.agreeing("tab:res_fmnist") == (2, 3)
    assert facts.farthest("tab:res_fmnist", "rais") == pytest.approx(13.1 - 10.90)


def test_the_best_rate_and_held_out_seeds():
    chosen = [
        run
        for lr, error in ((0.003, 14.0), (0.01, 12.0), (0.03, 10.0), (0.1, 11.0), (0.3, 12.0))
        for run in runs("emais", (error,), lr=lr)
    ]
    later = [run | {"seed": HELD_OUT + run["seed"]} for run in runs("emais", (9.0, 9.2), lr=0.03)]
    facts = Facts([*chosen, *later])
    assert facts.best("tuned_lr", "emais").config.lr == 0.03
    assert facts.seeds("fmnist", 6250, "emais", lr=0.03) == 1
    assert facts.value("fmnist", 6250, "emais", lr=0.03, held_out=True) == "9.10 ± 0.14"
    assert not any(config.seed >= HELD_OUT for config in ITEMS["tuned_lr"].configs())


def test_methods_as_they_were_have_names_of_their_own():
    facts = Facts([*runs("rais", (11.9,), schedule="effective"), *runs("rais", (10.5,))])
    assert facts.value("fmnist", 6250, "rais-effective") == "11.90"
    assert facts.value("fmnist", 6250, "rais") == "10.50"


def test_what_was_not_run_is_an_error(facts):
    with pytest.raises(LookupError, match=r"there are no runs of .*sgd-uni"):
        facts.mean("fmnist", 6250, "sgd-uni")
    with pytest.raises(ValueError, match="does not hold any more"):
        claim(False)
    assert claim(True) == ""


def test_what_is_called_tuned_is_the_best_of_what_was_tried():
    """By the committed runs: first the rate, then the weight decay at that rate."""
    records = read_all(RESULTS)
    for steps, label in ((6250, "tuned_lr"), (25000, "tuned_lr_25000")):
        for method, (rate, decay) in CHOSEN[steps].items():
            assert Facts(records).best(label, method).config.lr == rate
            tried = [s for s in of_item(ITEMS["tuned_decay"], records) if s.config.method == method]
            found = best_of([s for s in tried if s.config.num_steps == steps])
            assert found is not None
            assert (found.config.lr, found.config.weight_decay) == (rate, decay)


def test_the_librarys_rule_is_tuned_in_the_same_way():
    records = read_all(RESULTS)
    assert Facts(records).best("tuned_lr_steady", "emais-auto").config.lr == CHOSEN_STEADY[0]
    found = best_of(of_item(ITEMS["tuned_decay_steady"], records))
    assert found is not None
    assert (found.config.lr, found.config.weight_decay) == CHOSEN_STEADY


def test_tuned_methods_are_judged_by_other_seeds():
    chosen = [c for c in ITEMS["tuned"].configs(3) if c.num_steps == 6250 and c.method in ("sgd-scan", "emais")]
    worse = {"sgd-scan": 1.0, "emais": 0.0}
    records = [vars(c) | {"test_error": 9.0 + worse[c.method] + 0.01 * c.seed} for c in chosen]
    facts = Facts([*records, *(r | {"seed": r["seed"] - HELD_OUT, "test_error": 5.0} for r in records)])
    assert facts.tuned(6250, "emais").mean == pytest.approx(9.0 + 0.01 * (HELD_OUT + 1))
    assert facts.tuned_sure(6250, "emais")
    assert not facts.tuned_sure(6250, "sgd-scan", "emais")
    assert facts.tuned_lead(6250, "emais") == pytest.approx(1.0)
    assert facts.tuned_lead(6250, "sgd-scan", "emais") == pytest.approx(-1.0)
    with pytest.raises(LookupError, match="there are no runs of rais at its tuned rate over 6250 steps"):
        facts.tuned(6250, "rais")

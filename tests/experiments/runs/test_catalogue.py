"""Which runs each table and figure is made of, and which seeds are kept apart."""

from dataclasses import asdict, replace

import pytest

from emais import EmaisError
from emais.experiments.analysis.settings import is_default, of_item
from emais.experiments.runs.catalogue import HELD_OUT, ITEMS, Item
from emais.experiments.runs.product import Each, runs
from emais.experiments.runs.sweep import parse

CHECKED = Item("checked", "Chosen with other seeds", ITEMS["tuned_lr"].settings, held_out=True)


def test_values_and_texts_mean_the_same_runs():
    """`runs` is for code, `parse` for the command line."""
    both = Each("emais", "rais")
    assert list(runs(data="fmnist", model="lenet5", method=both, lr=Each(0.1, 0.01), num_steps=1000, seed=3)) == parse(
        "data=fmnist model=lenet5 method=emais,rais lr=0.1,0.01 num_steps=1000 seed=3"
    )
    options = {"factors": Each((1, 0.3), 0.1), "powers": (1, 0.5), "bound": 1_000_000, "window": 300}
    assert list(runs(data="cifar10", model="resnet18", method="emais-auto", **options)) == parse(
        "data=cifar10 model=resnet18 method=emais-auto factors=1:0.3,0.1 powers=1:0.5 bound=1e6 window=300"
    )
    with pytest.raises(EmaisError, match="unknown setting of emais 'tua'"):
        runs(data="fmnist", model="lenet5", method="emais", tua=5)


def test_the_catalogue():
    assert len(ITEMS["tab:res_fmnist"].configs()) == 9 * 3 * 5
    assert len(ITEMS["tab:res_cinic10"].configs()) == 9 * 2 * 2 * 5
    assert len(ITEMS["tab:adam"].configs(seeds=2)) == 5 * 3 * 2
    assert all(item.configs(1) for item in ITEMS.values())
    for label in ("fig:is_scores", "fig:additional_state_updates", "fig:score_and_trvars", "emais_auto"):
        assert {config.data for config in ITEMS[label].configs(1)} == {"fmnist", "cifar10"}
    taus = {c.options["tau"] for c in ITEMS["fig:is_scores"].configs(1) if c.data == "cifar10" and c.options}
    assert taus == {tau // 4 for tau in (5000, 10000, 30000, 70000)}  # the paper's, for a quarter of its steps
    rates = {(c.method, c.lr) for c in ITEMS["tuned_lr_cifar10"].configs(1)}
    assert rates == {(m, lr) for m in ("sgd-scan", "rais", "emais", "emais-auto") for lr in (0.03, 0.1, 0.3)}
    assert [label for label, item in ITEMS.items() if item.beyond][:3] == ["emais_auto", "auto_study", "rais_rules"]
    looked_at = {(c.data, c.method) for c in ITEMS["batchnorm"].configs(1)}
    assert looked_at == {
        (data, method)
        for data in ("cifar10", "chestxray14")
        for method in ("sgd-scan", "sgd-uni", "rais", "presampling", "self-paced", "emais", "emais-auto")
    } | {("cifar10", "confidence"), ("cifar10", "confvar")}
    long = [c for c in ITEMS["batchnorm"].configs(1) if c.num_steps == 35000]
    assert [c.method for c in long if is_default(c)] == ["sgd-scan", "rais", "emais", "emais-auto"]
    assert [c.method for c in long if not is_default(c)] == ["rais", "emais-auto"]  # as they were
    assert {c.weight_decay for c in ITEMS["batchnorm"].configs(1) if c.data == "cifar10"} == {1e-4, 5e-4}
    with pytest.raises(EmaisError, match=r"seeds must be .* got 0"):
        ITEMS["tab:adam"].configs(seeds=0)


def test_the_second_study_has_the_methods_as_they_were():
    study = [item for label, item in ITEMS.items() if label.startswith("relu_")]
    assert len(study) == 7
    runs = [config for item in study for config in item.configs(1)]
    assert {c.model for c in runs} == {"lenet5-relu"}
    assert all(c.schedule == "effective" for c in runs if c.method == "rais" and c.rule is None)
    assert all(c.options == {"warmup_epochs": 0} for c in runs if c.method == "self-paced")
    assert all(c.options["powers"] in (1, (1, 0.5)) for c in runs if c.method == "emais-auto")
    first = [c for label, item in ITEMS.items() if ":" in label for c in item.configs(1)]
    assert all(c.schedule == "steps" and c.model != "lenet5-relu" for c in first)


def test_groupnorm_is_beside_batchnorm():
    runs = ITEMS["groupnorm"].configs(1)
    assert {c.model for c in runs} == {"resnet18", "resnet18-gn"}
    assert {replace(c, model="resnet18").key() for c in runs} == {c.key() for c in runs if c.model == "resnet18"}


def test_held_out_seeds_are_in_no_other_table():
    assert [c.seed for c in CHECKED.configs(2)][:2] == [HELD_OUT, HELD_OUT + 1]
    assert {c.seed for c in CHECKED.configs(3)} == set(range(HELD_OUT, HELD_OUT + 3))
    others = [c for item in ITEMS.values() if not item.held_out for c in item.configs()]
    assert max(c.seed for c in others) < HELD_OUT


def test_a_table_has_only_its_own_seeds():
    own, others = ([{**asdict(c), "test_error": 9.0} for c in item.configs(2)] for item in (CHECKED, ITEMS["tuned_lr"]))
    for item, wanted in ((CHECKED, own), (ITEMS["tuned_lr"], others)):
        settings = of_item(item, [*others, *own])
        assert [r for s in settings for r in s.records] == wanted
        assert {len(s.records) for s in settings} == {2}


def test_a_record_that_lacks_what_a_table_needs_is_none_of_its_runs():
    needs = replace(CHECKED, needs="recalibrated")
    assert needs.holds({"seed": HELD_OUT, "recalibrated": 5.0})
    assert not needs.holds({"seed": HELD_OUT})
    assert not needs.holds({"seed": HELD_OUT - 1, "recalibrated": 5.0})

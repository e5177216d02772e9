"""Records of the first layout are read in today's words, and stay apart from today's records of the same words."""

import json
from dataclasses import asdict

import pytest

from emais.experiments.analysis.settings import Setting, is_default, provenance, versions
from emais.experiments.config import Config
from emais.experiments.runs import runner
from emais.experiments.runs.record import LAYOUT, run_key, upgraded
from emais.experiments.runs.runner import run_all
from emais.experiments.runs.store import Results
from emais.experiments.runs.sweep import parse

AT_RANDOM, TWO_POWERS = {"warmup_epochs": 0}, {"powers": (1, 0.5)}


def old(method, **more):
    """As the first version wrote it: without `layout` and `schedule`."""
    run = asdict(Config("fmnist", "lenet5", method)) | more | {"test_error": 9.0}
    return {name: value for name, value in run.items() if name != "schedule"}


def today(method, model="lenet5-relu", **more):
    return Config("fmnist", model, method, **more)


@pytest.mark.parametrize(
    ("record", "means"),
    [
        (old("emais"), today("emais")),
        (old("emais", rule="none"), today("emais", rule="none")),
        (old("emais", rule="rais"), today("emais", rule="rais", schedule="effective")),  # the rule implied it
        (old("emais", model="resnet18"), today("emais", "resnet18")),
        (old("rais"), today("rais", schedule="effective")),
        (old("rais", rule="rais"), today("rais", rule="rais", schedule="effective")),
        (old("rais", rule="linear"), today("rais", rule="linear")),
        (old("self-paced"), today("self-paced", options=AT_RANDOM)),
        (old("self-paced", options={"growth": 1.5}), today("self-paced", options={"growth": 1.5} | AT_RANDOM)),
        (old("emais-auto"), today("emais-auto", options=TWO_POWERS)),
        (old("emais-auto", options={"powers": 1}), today("emais-auto", options={"powers": 1})),
    ],
    ids=lambda x: f"{x['method']}-{x['rule']}-{x['options']}" if isinstance(x, dict) else "",
)
def test_old_records_in_todays_words(record, means, tmp_path):
    before = json.loads(json.dumps(record))
    found = upgraded(record)
    assert run_key(found) == means.key()
    assert upgraded(found) == found
    assert "layout" not in found  # so that its age goes on showing
    assert record == before

    path = tmp_path / "runs.jsonl"
    path.write_text(json.dumps(record) + "\n")
    assert Results(path).missing([means]) == []
    same_words = Config(**{name: record[name] for name in asdict(means) if name in record})
    confused = same_words.key() == means.key()
    assert Results(path).missing([same_words]) == ([] if confused else [same_words])
    assert confused == (record["model"] == "resnet18")


def test_todays_records_are_left_as_they_are():
    for method in ("emais", "rais", "self-paced", "emais-auto"):
        record = asdict(today(method, "lenet5")) | {"layout": LAYOUT}
        assert upgraded(record) is record


def test_both_layouts_in_one_file(tmp_path):
    results = Results(tmp_path / "runs.jsonl")
    for method in ("rais", "self-paced", "emais-auto"):
        record, new = old(method), asdict(today(method, "lenet5")) | {"test_error": 8.0, "layout": LAYOUT}
        assert [results.append(one) for one in (new, record, record, new)] == [True, True, False, False]
    assert [r["test_error"] for r in results.read()] == [8.0, 9.0] * 3
    assert [r["model"] for r in results.read()] == ["lenet5", "lenet5-relu"] * 3


def test_an_old_record_keeps_no_run_of_today_from_being_made(tmp_path, monkeypatch):
    path, trained = tmp_path / "runs.jsonl", []
    runs = parse("data=digits model=perceptron method=rais,emais num_steps=3 batch_size=8")
    path.write_text("".join(json.dumps(old(**asdict(c))) + "\n" for c in runs))
    real = runner.run_group
    monkeypatch.setattr(runner, "run_group", lambda group, *args: trained.extend(group) or real(group, *args))
    assert run_all(runs, path) == []
    assert [c.method for c in trained] == ["rais"]  # over steps; EMAIS is as it was
    assert [r.get("layout") for r in Results(path).read()] == [None, None, LAYOUT]


def test_captions_tell_old_records_from_new_ones():
    new = asdict(today("emais")) | {"test_error": 9.0, "layout": LAYOUT, "source": "a1", "hardware": "a GPU"}
    older = upgraded(old("emais")) | {"hardware": "a CPU"}
    assert versions([new, new]) == "Source a1."
    assert versions([{**new, "source": None}]) == "Source not recorded."
    assert versions([older]) == "Source: not recorded (1 run); older layout: 1 run."
    mixed = "Mixed sources: a1 (2 runs), not recorded (1 run); older layout: 1 run."
    assert versions([new, older, new]) == mixed
    own = Setting(today("emais"), (new, older, new))
    assert provenance([own, Setting(today("rais"), ())]) == (
        f"LeNet5-ReLU, 3 seeds each, on a CPU, a GPU. {mixed} Not run yet: 1 of 2 settings."
    )
    assert provenance([Setting(today("rais"), ())]) == "Not run yet."


@pytest.mark.parametrize(
    "special",
    [{"options": AT_RANDOM}, {"rule": "none"}, {"refresh_every": 5}, {"schedule": "effective"}],
    ids=str,
)
def test_what_is_not_plain(special):
    assert is_default(today("self-paced"))
    assert not is_default(today("self-paced", **special))
    assert not is_default(today("sgd-uni", follow="emais"))

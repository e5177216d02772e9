"""The finding in words: what is said follows from the numbers, and nothing is said that they do not show."""

import json
import math

import pytest
from places import ROOT

from emais.observing.finding import Finding
from emais.observing.stretch import NORMAL, Stretch

NONE = Stretch()


def found(gain, error=0.01, best=None, before=NONE, size=32.0, alignment=0.1, **more):
    """A finding of 100 steps; best: the bound over the minibatch size."""
    latest = Stretch(gain, error, gain if best is None else best, alignment)
    settings = {"steps": 100, "epochs": 10.0, "needed": 20, "share": 0.01, "measured": True, "finite": True}
    return Finding.of(latest, before, size, **settings | more)


def test_a_gain_that_is_likely_is_not_called_nothing():
    """38 of 32, from 29 to 49: more likely than not there is a gain."""
    text = str(found(38 / 32, 0.13))
    assert "acts like one of 38 (95 % interval 29 to 49)" in text
    assert "Whether that is a gain cannot be told yet: audit more steps." in text
    assert "nothing to gain" not in text
    assert "emais.audit" in str(found(38 / 32, 0.13, measured=False))


@pytest.mark.parametrize(("gain", "nothing"), [(0.9, True), (1.0, True), (1.07, True), (1.09, False), (1.2, False)])
def test_nothing_to_gain_is_said_where_even_the_high_end_is_close(gain, nothing):
    text = str(found(gain, before=Stretch(gain, 0.01, gain), epochs=20.0))
    assert ("nothing to gain: train as you do" in text) == nothing
    assert ("would not help you, this will not" in text) == (not nothing)


@pytest.mark.parametrize(
    ("epochs", "before", "words"),
    [
        (19.9, Stretch(1.0, 0.01, 1.0), "about the same before"),
        (100.0, Stretch(0.85, 0.01, 1.0), "still rising"),
        (100.0, Stretch(1.0, 0.2, 1.0), "the change may be noise"),
        (100.0, NONE, ""),
    ],
)
@pytest.mark.parametrize("measured", [True, False])
def test_nothing_to_gain_is_no_verdict_before_enough_epochs_or_while_it_may_rise(epochs, before, words, measured):
    text = str(found(1.0, before=before, epochs=epochs, measured=measured))
    assert "nothing to gain so far" in text
    assert words in text
    assert "train as you do" not in text
    if measured:
        assert "It often takes many epochs: audit as many as you would train." in text


def test_a_trend_that_falls_is_no_reason_to_go_on():
    text = str(found(1.0, before=Stretch(1.2, 0.01, 1.3), epochs=20.0))
    assert "train as you do. It is falling: before it was 38." in text


def test_a_gain_is_told_with_what_it_is_good_for():
    text = str(found(59 / 32))
    assert "a minibatch of 32 acts like one of 59" in text
    assert "If a minibatch of 59 at the matching learning rate would not help you, this will not." in text
    assert "no accuracy and no saved steps" in text
    assert "little" not in text
    little = Stretch(34.5 / 32, 0.02)
    assert "That is little so far. It often takes many epochs" in str(found(little.ratio, 0.02, before=little))
    assert "That is little. It was" in str(found(little.ratio, 0.02, before=little, epochs=20.0))


@pytest.mark.parametrize(("gain", "alignment", "said"), [(2.0, 0.95, True), (2.0, 0.5, False), (1.02, 0.95, False)])
def test_logits_whose_gradients_agree_say_little_of_the_parameters(gain, alignment, said):
    finding = found(gain, alignment=alignment)
    assert finding.alignment == alignment
    assert ("the gradients of the logits, which nearly all point the same way" in str(finding)) == said


@pytest.mark.parametrize(
    ("before", "words"),
    [
        (Stretch(1.99, 0.01, 2.0), "about the same before (64)"),
        (Stretch(2.2, 0.2, 2.2), "Before it was 70; the change may be noise"),
        (Stretch(1.5, 0.01, 2.0), "still rising: before it was 48"),
        (Stretch(2.5, 0.01, 2.6), "falling: before it was 80"),
    ],
)
def test_a_trend_is_flat_only_where_that_is_seen(before, words):
    assert words in str(found(2.0, before=before))


def test_a_projection_is_not_called_a_95_percent_interval():
    text = str(found(2.0, best=2.4, measured=False))
    assert "at this learning rate would act like one of 64 (likely " in text
    assert "95 %" not in text


def test_the_range_of_a_projection_has_noise_trend_and_bound():
    """Each widens it, the bound upwards more than downwards."""
    plain = Stretch(2.0, 0.01, 2.0).likely()
    for other in (
        Stretch(2.0, 0.1, 2.0).likely(),
        Stretch(2.0, 0.01, 3.0).likely(),
        Stretch(2.0, 0.01, 2.0).likely(1.5),
        Stretch(2.0, 0.01, math.inf).likely(),
    ):
        assert 0 < other[0] < plain[0] < 2 < plain[1] < other[1] < math.inf
    low, high = Stretch(2.0, 0.01, 3.0).likely()
    assert high / 2 > 2 / low
    assert all(map(math.isnan, NONE.likely()))


# ---- the committed comparisons


def compared(file):
    """Of every projection: the range, and n_ems of the real run at the same rate."""
    rows = [json.loads(line) for line in (ROOT / "benchmarks/results" / file).read_text("utf-8").splitlines()]
    by_name = {(r["problem"], r["seed"], r["epoch"], r["kind"]): r for r in rows}
    for (problem, seed, epoch, kind), own in by_name.items():
        if kind == "projected":
            error = math.log(own["n_ems_high"] / own["n_ems"]) / NORMAL
            low, high = Stretch(own["n_ems"], error, own["bound"]).likely(own.get("before") or math.nan)
            yield problem, low <= by_name[problem, seed, epoch, "same rate"]["n_ems"] <= high


@pytest.mark.parametrize(("file", "count"), [("audit.jsonl", 36), ("audit_rates.jsonl", 144)])
def test_the_range_covers_nine_real_runs_of_ten(file, count):
    """audit_rates.jsonl has seeds that nothing was fitted to."""
    inside = [ok for _, ok in compared(file)]
    assert len(inside) == count
    assert sum(inside) >= 0.9 * count

"""The demo from end to end in small, and its parts: the plain loop, steps to a loss, verdicts, table and page."""

from __future__ import annotations

import json
import math
import re
from dataclasses import asdict, replace
from html import unescape
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
import torch
from browser import CHROMIUM, Browser
from places import ROOT

from emais.errors import EmaisError
from emais.experiments import demo
from emais.experiments.analysis.settings import Setting
from emais.experiments.analysis.steps_to_loss import final_loss, steps_to_loss, training_loss
from emais.experiments.commands import read_file, report
from emais.experiments.config import Config
from emais.experiments.data import Data, load
from emais.experiments.demo_trainer import PlainLoop
from emais.experiments.numbers import mean_sd
from emais.experiments.report.demo_page import (
    demo_figure,
    demo_page,
    demo_table,
    error_verdict,
    loss_verdict,
    method_verdict,
    verdicts,
)
from emais.experiments.report.tables.cells import to_text
from emais.experiments.runs.store import Results
from emais.experiments.train.loop import CURVES, Run, initialised, train
from emais.experiments.train.models import perceptron


class Nesting(HTMLParser):
    """Checks that every element is closed where it should be, and remembers what the page asks for from outside."""

    VOID = ("meta", "circle", "path")

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.outside: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.outside += [f"{k}={v}" for k, v in attrs if k in ("src", "href", "srcset", "action") and v]
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in self.VOID:
            assert self.open.pop() == tag


SHORT = {"batch_size": 32, "lr": 0.1, "weight_decay": 1e-4}
PROGRESS = {"rule": "steady", "schedule": "progress"}


@pytest.fixture(scope="module")
def digits() -> Data:
    return load("digits")


def short_run(data: Data, method: str, **changes: object) -> Run:
    settings = {"num_steps": 130, "seed": 3} | SHORT | changes
    return train(data, perceptron, method, **settings)  # type: ignore[arg-type]


# ---- the whole


def test_demo(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    threads = torch.get_num_threads()
    out = tmp_path / "new" / "demo.html"
    settings = demo.run_demo("digits", seeds=2, steps=40, out=out)
    assert [(s.config.method, s.config.follow, r["seed"]) for s in settings for r in s.records] == [
        (run["method"], run.get("follow", ""), seed) for run in demo.DEMO_RUNS for seed in (0, 1)
    ]
    assert [r.steps for r in settings[3].records] == [r.steps for r in settings[2].records]
    assert torch.get_num_threads() == threads
    printed = capsys.readouterr().out
    assert re.search(
        r"^SGD-Scan +\d+\.\d\d ± \d+\.\d\d +40 ± 0 +[\d.]+ +\d+ +32\.0 ± 0\.0 +1\.00 ± 0\.00 +1\.00 x$", printed, re.M
    )
    assert re.search(r"^EMAIS +\d+\.\d\d ± .* x$", printed, re.M)
    assert str(out) in printed
    text = out.read_text(encoding="utf-8")
    for sentence in verdicts(settings):
        assert sentence in printed
        assert sentence in unescape(text)
    for words in ("emais demo --data digits --seeds 2 --steps 40", "What was run", "importance-weighted"):
        assert words in text
    check_page(text)


def test_the_runs_of_the_demo_are_records_like_all_others(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runs, page = tmp_path / "demo.jsonl", tmp_path / "report.html"
    runs.write_text("what was there before\n")
    demo.run_demo("digits", seeds=1, steps=20, out=runs.with_suffix(".html"))
    assert [r["method"] for r in Results(runs).read()] == [run["method"] for run in demo.DEMO_RUNS]
    assert Results(runs).count() == 4
    capsys.readouterr()
    report(runs, page)
    assert capsys.readouterr() == (f"The report: {page}\n", "")
    assert "EMAIS-auto" in page.read_text("utf-8")


def test_the_committed_runs_of_the_demo_can_be_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    records = read_file(ROOT / "results" / "demo_digits.jsonl", known=True)
    assert capsys.readouterr().err == ""  # nothing was left out
    wanted = demo.DEMOS["digits"].configs(seeds=5, num_steps=4000)
    assert {(r["method"], r["follow"], r["seed"]) for r in records} == {(c.method, c.follow, c.seed) for c in wanted}
    assert Results(ROOT / "results" / "demo_digits.jsonl").missing(wanted) == []


def check_page(text: str) -> None:
    titles = ["Test error", "Training loss", "Effective minibatch size Nₑₘₛ", "Efficiency score S(W)"]
    assert re.findall(r"<figcaption><h3>(.*?)</h3>", text) == titles
    assert text.count("<svg") == 4
    assert not re.search(r"https?:|//[a-z]|@import|url\((?!#)", text)
    assert "nan" not in re.sub(r"<style>.*?</style>|<script>.*?</script>", "", text, flags=re.S).lower()
    reader = Nesting()
    reader.feed(text)
    reader.close()
    assert reader.open == []
    assert all(address.startswith("href=#") for address in reader.outside)


def test_unknown_data() -> None:
    with pytest.raises(ValueError, match="'cifar'"):
        demo.run_demo("cifar")


def test_the_methods_take_turns_at_going_first() -> None:
    configs = demo.DEMOS["digits"].configs(seeds=2, num_steps=10)
    methods = [run["method"] for run in demo.DEMO_RUNS]
    assert [c.method for c in configs] == [*methods, *reversed(methods)]


# ---- training


def test_a_run_is_a_function_of_its_seed(digits: Data) -> None:
    first, again, other = (short_run(digits, "emais", seed=s) for s in (3, 3, 4))
    assert (first.curves, first.tail) == (again.curves, again.tail)
    assert first.curves["train_loss"] != other.curves["train_loss"]


def test_both_methods_start_alike_and_scan_keeps_its_learning_rate(digits: Data) -> None:
    scan, ours = (short_run(digits, method) for method in ("sgd-scan", "emais"))
    warm_up = math.ceil(2 * 1437 / 32)
    same = [k for k, step in enumerate(scan.curves["step"]) if step <= warm_up]
    assert [scan.curves["train_loss"][k] for k in same] == [ours.curves["train_loss"][k] for k in same]
    assert set(scan.curves["lr_scale"]) == {1.0}
    assert set(scan.curves["n_ems"]) == {32.0}
    assert ours.curves["n_ems"][-1] > 32
    assert ours.curves["score"][-1] < 1


def test_curves(digits: Data) -> None:
    steps = []
    run = short_run(digits, "emais", on_step=lambda: steps.append(1))
    assert len(steps) == 130
    assert set(run.curves) == set(CURVES)
    assert {len(values) for values in run.curves.values()} == {60}
    assert (run.curves["step"][0], run.curves["step"][-1]) == (3, 130)
    assert run.curves["test_error"][-1] == run.test_error
    assert run.curves["lr"] == pytest.approx(
        [0.05 * (1 + math.cos(math.pi * (s - 1) / 130)) for s in run.curves["step"]]
    )
    assert run.ms_per_step > 0
    assert run.tail["n_ems"] > 32


def test_a_run_at_equal_progress_ends_early(digits: Data) -> None:
    run = short_run(digits, "emais-auto", num_steps=400, rule="steady", equal_progress=True)
    assert 90 < run.steps < 400
    assert run.curves["step"][-1] == run.steps
    assert {len(values) for values in run.curves.values()} == {60}
    assert run.curves["lr"][-1] < 0.001
    loop = PlainLoop(
        [Config("digits", "perceptron", "emais-auto", num_steps=400, seed=3, **SHORT, **PROGRESS)],
        digits,
        "cpu",
        Results("nowhere"),
    )
    heard: list[int] = []
    loop.train(25, heard.append)
    assert sum(heard) == 400
    assert next(loop.finish())[1]["steps"] == run.steps


def test_initial_weights_leave_the_global_generator_alone() -> None:
    state = torch.get_rng_state()
    one, two = (torch.nn.utils.parameters_to_vector(initialised(perceptron, 7).parameters()) for _ in range(2))
    assert torch.equal(one, two)
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize(
    ("values", "mean", "sd"),
    [([], math.nan, math.nan), ([math.inf], math.nan, math.nan), ([2.0], 2.0, math.nan), ([1.0, 3.0], 2.0, 2**0.5)],
)
def test_mean_sd(values: list[float], mean: float, sd: float) -> None:
    assert mean_sd(values) == pytest.approx((mean, sd), nan_ok=True)


def test_the_plain_loop_gives_what_it_trained(digits: Data) -> None:
    config, heard = Config("digits", "perceptron", "emais", num_steps=130, seed=3, **SHORT), []
    loop = PlainLoop([config], digits, "cpu", Results("nowhere"))
    loop.train(25, heard.append)
    ((same, result),) = loop.finish()
    run = short_run(digits, "emais")
    assert (same, sum(heard)) == (config, 130)
    assert result["test_error"] == run.test_error
    assert result["curves"]["loss"] == run.curves["train_loss"]
    assert result["curves"]["test_step"] == result["curves"]["step"] == run.curves["step"]


@pytest.mark.parametrize(
    "change",
    [
        {"optimizer": "adam"},
        {"momentum": 0.5},
        {"schedule": "effective"},
        {"refresh_every": 9},
        {"method": "sgd-uni", "follow": "emais"},
    ],
)
def test_the_plain_loop_refuses_what_it_would_leave_aside(change: dict[str, Any], digits: Data) -> None:
    config = Config(**{"data": "digits", "model": "perceptron", "method": "emais", **change})
    with pytest.raises(EmaisError, match="the plain loop trains small networks, and takes only lr, "):
        PlainLoop([config], digits, "cpu", Results("nowhere"))


# ---- steps to a loss


def with_losses(method: str, *seeds: list[float | None], ms: tuple[float, ...] = (1.0, 2.0)) -> Setting:
    """A setting whose runs have these training losses, at steps 10, 20, 30..."""
    config = Config("digits", "perceptron", method)
    records = []
    for seed, losses in enumerate(seeds):
        steps = [10 * k for k in range(1, len(losses) + 1)]
        curves = {name: [1.0] * len(losses) for name in ("n_ems", "score", "lr", "lr_scale")}
        curves |= {"step": steps, "loss": losses, "test_step": steps, "test_error": [90.0] * len(losses)}
        end = {"test_error": 4.0, "ms_per_step": ms[seed], "curves": curves}
        records.append(json.loads(json.dumps(asdict(config) | {"seed": seed} | end)))
    return Setting(config, tuple(records))


def test_the_training_loss_is_a_mean_over_seeds_and_five_points() -> None:
    own = with_losses("emais", [8.0, 4.0, 4.0, 4.0, 4.0, 2.0], [6.0, 4.0, 4.0, 4.0, 4.0, 2.0])
    assert training_loss(own) == pytest.approx([7.0, 5.5, 5.0, 4.75, 4.6, 3.6])
    assert final_loss(own) == pytest.approx(3.6)
    assert steps_to_loss(own, 4.6) == pytest.approx(50.0)
    assert steps_to_loss(own, 4.1) == pytest.approx(55.0)  # on a line between two points
    assert steps_to_loss(own, 7.5) == 10.0
    assert math.isnan(steps_to_loss(own, 3.5))


def test_a_seed_that_diverged_reaches_nothing() -> None:
    own = with_losses("emais", [8.0, 4.0, 1.0], [8.0, None, None])
    assert math.isnan(final_loss(own))
    assert math.isnan(steps_to_loss(own, 5.0))
    assert math.isnan(final_loss(with_losses("emais")))


def three_methods(end: float = 2.0, seeds: int = 2) -> list[Setting]:
    losses = {"sgd-scan": [8.0, 4.0, 3.0], "emais": [8.0, 2.0, 1.0], "emais-auto": [8.0, 7.0, 6.0 + end]}
    return [with_losses(method, *[values] * seeds) for method, values in losses.items()]


def test_the_table_says_how_soon_a_method_has_the_loss_of_the_first() -> None:
    table = demo_table(three_methods())
    assert table.head[2:5] == ["steps", "train loss", "steps to loss 5"]
    assert [row[3].text for row in table.rows] == ["5", "3.67", "7.67"]
    assert [row[4].text for row in table.rows] == ["30", "20", "not reached"]
    assert "EMAIS-auto  " in to_text(table)
    assert "not reached" in to_text(table)


def test_the_verdict_says_when_a_method_has_the_loss_of_the_first_or_where_it_ends_instead() -> None:
    base, emais, auto = three_methods()
    assert loss_verdict(base, emais, "EMAIS") == (
        "EMAIS has the training loss that SGD-Scan ends with, 5, after 20 steps."
    )
    assert loss_verdict(base, auto, "EMAIS-auto") == (
        "EMAIS-auto’s training loss ends at 7.67, 53 % above SGD-Scan’s 5: SGD-Scan needs 12 steps for that."
    )
    diverged = with_losses("emais", [8.0, 4.0, 1.0], [8.0, None, None])
    assert loss_verdict(base, diverged, "EMAIS").endswith("a run diverged.")


def test_the_outcome_in_short_comes_first() -> None:
    base, emais, auto = three_methods()
    first = verdicts([base, emais, auto])[0]
    assert first == (
        "In short: on test error no method differs from SGD-Scan by more than the spread over 2 seeds; the training "
        f"loss that SGD-Scan ends with is reached by EMAIS after {100 * 20 / base.config.num_steps:.0f} % of the steps."
    )
    for record, error in zip(emais.records, (1.0, 1.2), strict=True):
        record.entries["test_error"] = error
    better = Setting(emais.config, emais.records)
    assert "on test error EMAIS differs from SGD-Scan by more than" in verdicts([base, better])[0]
    assert "one seed shows no spread" in verdicts(three_methods(seeds=1))[0]


def test_a_run_that_ends_early_is_said_to_and_its_loss_is_explained() -> None:
    """One that stops short of the loss, though its steps are counted as many, would read like a contradiction."""
    base, _, auto = three_methods()
    for record in auto.records:
        record.entries["steps"] = record["num_steps"] // 4
    length, error, loss = method_verdict(base, auto)
    steps = base.config.num_steps
    assert length.startswith(
        f"EMAIS-auto stopped after {steps // 4:.0f} steps, 25 % of SGD-Scan’s and 25 % of its time: "
    )
    assert length.endswith(f"which it counted as {steps} ordinary ones.")
    assert "test error" in error
    assert loss.endswith("so a run that ends early can stop a little short.")
    assert len(method_verdict(base, three_methods()[1])) == 2  # of a run of full length there is nothing to say


def test_a_run_that_was_cut_short_is_compared_with_the_one_it_was_cut_like() -> None:
    base, _, auto = three_methods()
    ended = Setting(replace(auto.config, rule="steady", schedule="progress"), auto.records)
    cut = Setting(replace(base.config, follow="progress"), base.records)
    *_, said = verdicts([base, ended, cut])
    assert said == (
        "SGD-Scan cut to as few steps ends with a training loss of 5, EMAIS-auto with 7.67. EMAIS-auto and the "
        "shortened run end at the same test error, 4.00 %, over 2 seeds."
    )
    assert [row[0].text for row in demo_table([base, ended, cut]).rows] == [
        "SGD-Scan",
        "EMAIS-auto",
        "SGD-Scan, cut short",
    ]
    assert [s.name for s in demo_figure([base, ended, cut]).charts[0].series] == ["SGD-Scan", "EMAIS-auto"]


def test_step_times_are_compared_seed_by_seed() -> None:
    base = with_losses("sgd-scan", [1.0], [1.0], ms=(1.0, 2.0))
    own = with_losses("emais", [1.0], [1.0], ms=(1.0, 8.0))
    assert demo_table([base, own]).rows[1][-1].text == "2.50 x"  # between 1 and 4


# ---- the verdict


@pytest.mark.parametrize(
    ("scan", "ours", "says", "says_not"),
    [
        ([3.0, 3.2], [2.0, 2.2], ["wins", "1.00 points lower", "(2.10 % against 3.10 %)", "more than"], ["tie"]),
        ([2.0, 2.2], [3.0, 3.2], ["loses", "1.00 points higher", "more than the spread over 2 seeds"], ["tie"]),
        ([3.0, 4.0], [2.8, 3.8], ["0.20 points lower", "within", "(0.71 points)", "a tie"], ["wins"]),
        ([3.0, 3.2], [2.0, 5.0], ["0.40 points higher", "within", "(2.12 points)", "a tie"], ["loses"]),
        ([2.0, 2.0], [2.0, 2.0], ["the same test error, 2.00 %", "2 seeds"], ["wins", "loses"]),
        ([3.0], [2.0], ["1.00 points lower", "one seed", "run more"], ["wins"]),
        ([2.0], [3.0], ["1.00 points higher", "one seed", "run more"], ["loses"]),
        ([2.0], [2.0], ["the same test error", "one seed"], ["wins"]),
    ],
)
def test_verdict(scan: list[float], ours: list[float], says: list[str], says_not: list[str]) -> None:
    sentence = error_verdict(scan, ours)
    assert all(words in sentence for words in says), sentence
    assert not any(words in sentence for words in says_not), sentence
    assert sentence.endswith(".")


# ---- the page


@pytest.mark.parametrize("seeds", [1, 2])
@pytest.mark.parametrize("score", [0.5, None])
def test_page_from_odd_runs(score: float | None, seeds: int) -> None:
    settings = three_methods(seeds=seeds)
    for record in (r for s in settings for r in s.records):
        record["curves"]["score"] = [score] * 3
    text = demo_page("A <title>", "about & so on", settings, "command")
    check_page(text)
    assert "A &lt;title&gt;" in text
    assert "about &amp; so on" in text
    assert [s.name for s in demo_figure(settings).charts[3].series] == ["SGD-Scan", "EMAIS", "EMAIS-auto"]


LEGEND = """((at) => {
  const chart = document.querySelectorAll('.chart')[1], svg = chart.querySelector('svg');
  const box = svg.getBoundingClientRect();
  const event = at === null ? new PointerEvent('pointerleave')
    : new PointerEvent('pointermove', { clientX: box.left + at * box.width });
  svg.dispatchEvent(event);
  return [...chart.querySelectorAll('output'), chart.querySelector('.where b')].map(e => e.textContent);
})"""


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed here")
def test_the_legend_says_which_line_has_ended(tmp_path: Path) -> None:
    """Its last value is not that of the step under the pointer, nor of the end of the axis."""
    base, auto = (
        with_losses("sgd-scan", [8.0, 4.0, 3.0, 2.0], ms=(1.0,)),
        with_losses("emais-auto", [9.0, 7.0], ms=(1.0,)),
    )
    page = tmp_path / "demo.html"
    page.write_text(demo_page("T", "about", [base, auto], "command"), "utf-8")
    end = ["2.00", "7.00 (ended at 20)", "40"]
    with Browser(tmp_path / "profile") as browser:
        browser.open(page)
        assert browser.run("[...document.querySelectorAll('.chart')[1].querySelectorAll('output')].length") == 2
        assert browser.run(f"{LEGEND}(0)") == ["8.00", "9.00", "10"]
        assert browser.run(f"{LEGEND}(1)") == end
        assert browser.run(f"{LEGEND}(null)") == end
        assert browser.problems == []


def test_the_start_of_the_run_does_not_set_the_axis() -> None:
    errors, loss, *_ = demo_figure(three_methods()).charts
    assert max(errors.series[0].mean) == 90.0
    assert errors.y_to == 10.0  # two and a half times the lowest final one
    assert [value for value, _ in loss.references] == [5.0]

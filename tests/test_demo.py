"""The demo from end to end in small, and its parts: training record, verdict, charts, page, progress."""

from __future__ import annotations

import html
import io
import json
import math
import re
import time
from html.parser import HTMLParser
from pathlib import Path

import pytest
import torch

from emais.experiments import demo
from emais.experiments.data import Data, load
from emais.experiments.numbers import mean_sd
from emais.experiments.progress import Progress
from emais.experiments.report import page
from emais.experiments.report.figures import chart
from emais.experiments.report.figures.chart import Chart, Series
from emais.experiments.train.loop import CURVES, Run, initialised, train


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class AsciiTerminal(Terminal):
    encoding = "ascii"


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


@pytest.fixture(scope="module")
def digits() -> Data:
    return load("digits")


def short_run(data: Data, method: str, **changes: object) -> Run:
    settings = {"num_steps": 130, "batch_size": 32, "lr": 0.1, "weight_decay": 1e-4, "seed": 3} | changes
    return train(data, demo.perceptron, method, **settings)  # type: ignore[arg-type]


# ---- the whole


def test_demo(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    threads = torch.get_num_threads()
    out = tmp_path / "new" / "demo.html"
    runs = demo.run_demo("digits", seeds=2, steps=40, out=out)
    assert [(run.method, run.seed) for run in runs] == [(m, s) for m in demo.METHODS for s in (0, 1)]
    assert torch.get_num_threads() == threads
    printed = capsys.readouterr().out
    assert re.search(r"^SGD-Scan +\d+\.\d\d ± \d+\.\d\d +32\.0 ± 0\.0 +1\.00 ± 0\.00 +1\.00 x$", printed, re.M)
    assert re.search(r"^EMAIS +\d+\.\d\d ± .* x$", printed, re.M)
    assert str(out) in printed
    verdict = demo.verdicts(runs)
    text = out.read_text(encoding="utf-8")
    assert verdict in printed
    assert html.escape(verdict) in text
    check_page(text)


def check_page(text: str) -> None:
    titles = ["Test error", "Training loss", "Effective minibatch size Nₑₘₛ", "Efficiency score S(W)"]
    assert re.findall(r"<h3>(.*?)</h3>", text) == titles
    assert text.count("<svg") == 4
    assert not re.search(r"https?:|//[a-z]|@import|url\((?!#)", text)
    assert "nan" not in re.sub(r"<style>.*?</style>|<script>.*?</script>", "", text, flags=re.S).lower()
    reader = Nesting()
    reader.feed(text)
    reader.close()
    assert (reader.open, reader.outside) == ([], [])


def test_unknown_data() -> None:
    with pytest.raises(ValueError, match="'cifar'"):
        demo.run_demo("cifar")


# ---- training


def test_a_run_is_a_function_of_its_seed(digits: Data) -> None:
    first, again, other = (short_run(digits, "emais", seed=s) for s in (3, 3, 4))
    assert (first.curves, first.tail) == (again.curves, again.tail)
    assert first.curves["train_loss"] != other.curves["train_loss"]


def test_both_methods_start_alike_and_scan_keeps_its_learning_rate(digits: Data) -> None:
    scan, ours = (short_run(digits, method) for method in demo.METHODS[:2])
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


def test_initial_weights_leave_the_global_generator_alone() -> None:
    state = torch.get_rng_state()
    one, two = (torch.nn.utils.parameters_to_vector(initialised(demo.perceptron, 7).parameters()) for _ in range(2))
    assert torch.equal(one, two)
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize(
    ("values", "mean", "sd"),
    [([], math.nan, math.nan), ([math.inf], math.nan, math.nan), ([2.0], 2.0, math.nan), ([1.0, 3.0], 2.0, 2**0.5)],
)
def test_mean_sd(values: list[float], mean: float, sd: float) -> None:
    assert mean_sd(values) == pytest.approx((mean, sd), nan_ok=True)


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
    sentence = demo.verdict(scan, ours)
    assert all(words in sentence for words in says), sentence
    assert not any(words in sentence for words in says_not), sentence
    assert sentence.endswith(".")


# ---- charts and page


def made_runs(score: float, seeds: int = 2) -> list[Run]:
    curves = {name: [1.0, 2.0, 3.0] for name in CURVES} | {"score": [score] * 3, "test_error": [90.0, 5.0, 4.0]}
    return [Run(m, s, 4.0, 1.0, curves, {"n_ems": 1.0, "score": score}) for m in demo.METHODS for s in range(seeds)]


@pytest.mark.parametrize("seeds", [1, 2])
@pytest.mark.parametrize("score", [0.5, math.nan])
def test_page_from_odd_runs(score: float, seeds: int) -> None:
    runs = made_runs(score, seeds)
    check_page(page.page("A <title>", "about & so on", [["<b>", "1", "2", "3", "4"]], "verdict", runs, "command"))
    assert [s.name for s in page.curves_over_seeds(runs, "score")] == ["SGD-Scan", "EMAIS", "EMAIS-auto"]


def test_the_start_of_the_run_does_not_set_the_axis() -> None:
    series = Series("a", [1.0, 50.0, 100.0], [90.0, 5.0, 4.0], [0.0, 1.0, math.nan])
    assert page.settled_top([series]) == pytest.approx(6.3)
    assert page.settled_top([Series("a", [50.0, 100.0], [0.0, 0.0], [0.0, 0.0])]) is None


def test_chart_puts_points_where_the_axes_say() -> None:
    drawn = Chart("T", "x", "y", [Series("a", [0.0, 10.0], [0.0, 4.0], [math.nan] * 2)], y_from=0.0, y_to=4.0)
    assert f'd="M{chart.LEFT} {chart.BOTTOM}L{chart.RIGHT} {chart.TOP}"'.replace(" ", "") in (
        chart.svg(drawn).replace(".0", "").replace(" ", "")
    )
    assert 'class="band"' not in chart.svg(drawn)


def test_hover_data_has_the_exact_values() -> None:
    drawn = Chart("T", "x", "y", [Series("a", [1.0, 2.0, 3.0], [0.5, 0.0, 0.25], [0.1, 0.1, 0.05])], log_y=True)
    found = re.search(r'data-series="(.*?)"', chart.figure(drawn))
    assert found is not None
    (series,) = json.loads(html.unescape(found[1]))
    assert series["x"] == [1.0, 3.0]  # a zero has no place on a logarithmic axis
    assert series["text"] == ["0.500 ± 0.100", "0.250 ± 0.050"]


@pytest.mark.parametrize(("low", "high"), [(0.0, 1.0), (-3.0, 7.7), (0.001, 0.0019), (0.0, 25000.0), (99.0, 101.0)])
def test_ticks_are_round_and_few(low: float, high: float) -> None:
    ticks = chart.round_ticks(low, high)
    assert 3 <= len(ticks) <= 6
    assert low <= ticks[0] < ticks[-1] <= high
    gap = (ticks[-1] - ticks[0]) / (len(ticks) - 1)
    assert float(f"{gap:.6e}"[:8]) in (1, 2, 5)


# ---- progress


@pytest.mark.parametrize(("columns", "bar"), [(100, "█" * 12 + "░" * 12), (80, "█" * 8 + "░" * 9), (60, "")])
def test_progress_in_a_terminal(columns: int, bar: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    now, stream = [0.0], Terminal()
    with Progress(total_steps=100, total_runs=2, stream=stream, clock=lambda: now[0]) as progress:
        progress.begin_run("EMAIS with seed 0")
        progress.advance(10)
        assert stream.getvalue() == ""  # too early to draw
        now[0] = 5.0
        progress.advance(40)
        progress.finish_run()
    first, *_, last = stream.getvalue().split("\r\x1b[K")[1:]
    name = "EMAIS with seed 0" if columns > 60 else "EMAIS with se…"
    assert first == f"{bar}  50%  0/2 runs done, {name}, 10 steps/s, 0:05 left"
    assert len(first) < columns
    assert last == ""  # wiped
    assert "\n" not in stream.getvalue()


def test_progress_in_plain_ascii(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    now, stream = [0.0], AsciiTerminal()
    progress = Progress(total_steps=4, total_runs=1, stream=stream, clock=lambda: now[0])
    now[0] = 1.0
    progress.advance(2)
    assert "#" * 12 + "." * 12 in stream.getvalue()
    assert stream.getvalue().isascii()


def test_progress_promises_nothing_at_first() -> None:
    assert Progress(total_steps=100, total_runs=2, stream=io.StringIO(), clock=lambda: 0.0).line(1.9) == "0/2 runs done"


def test_progress_forgets_a_slow_start() -> None:
    now = [0.0]
    progress = Progress(total_steps=10_000, total_runs=1, stream=io.StringIO(), clock=lambda: now[0])
    now[0] = 100.0  # it compiles
    progress.advance(1)
    assert progress.line(100.0) == "0/1 runs done"  # and not that hundreds of hours are left
    for second in range(101, 161):
        now[0] = float(second)
        progress.advance(100)
    assert progress.line(160.0) == "0/1 runs done, 100 steps/s, 0:40 left"
    assert progress.line(170.0) == "0/1 runs done, 75 steps/s, 0:53 left"  # nothing for ten of forty seconds


def test_progress_of_tests_is_not_part_of_the_rate() -> None:
    now = [0.0]
    progress = Progress(total_steps=400, total_runs=1, stream=io.StringIO(), clock=lambda: now[0])
    for _ in range(100):  # 2 steps a second
        now[0] += 0.5
        progress.advance()
    assert progress.line(now[0]) == "0/1 runs done, 2 steps/s, 2:30 left"
    for _ in range(51):  # a test of 50 seconds, which begins at once
        progress.advance(0)
        now[0] += 1
    now[0] -= 1
    assert progress.line(now[0]) == "0/1 runs done, 2 steps/s, 5:00 left"  # with as many tests as so far
    progress.advance()
    assert progress.line(now[0]).startswith("0/1 runs done, 2 steps/s, 4:5")
    progress.pass_over(0, 200)
    assert progress.line(now[0]).startswith("0/1 runs done, 2 steps/s, 1:3")  # half a second of tests a step of its own
    images = Progress(total_steps=20, total_runs=0, stream=io.StringIO(), clock=lambda: 0.0)
    images.advance(20)
    assert images.line(5.0) == "4 steps/s, 0:00 left"


def test_progress_without_a_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    """As of a service, or after 2>&-."""
    monkeypatch.setattr("sys.stderr", None)
    with Progress(total_steps=20, total_runs=0) as progress:
        progress.advance(30)
    assert progress.line(time.monotonic() + 100).endswith("0:00 left")


def test_progress_of_runs_that_others_have_done_says_nothing_about_the_rate() -> None:
    progress = Progress(total_steps=1000, total_runs=4, stream=io.StringIO(), clock=lambda: 0.0)
    progress.pass_over(2, 500)
    progress.advance(100)
    assert progress.line(10.0) == "2/4 runs done, 10 steps/s, 0:40 left"
    progress.advance(400)
    assert progress.line(10.0) == "2/4 runs done, last tests"


def test_progress_elsewhere_is_a_line_every_ten_seconds() -> None:
    now, stream = [0.0], io.StringIO()
    with Progress(total_steps=100, total_runs=2, stream=stream, clock=lambda: now[0]) as progress:
        for k in range(1, 26):
            now[0] = float(k)
            progress.advance()
    assert stream.getvalue() == (
        " 10%  0/2 runs done, 1 steps/s, 1:30 left\n 20%  0/2 runs done, 1 steps/s, 1:20 left\n"
    )


def test_progress_of_one_thing_in_other_units() -> None:
    progress = Progress(total_steps=100, total_runs=0, stream=io.StringIO(), clock=lambda: 0.0, unit="images")
    progress.begin_run("decoding")
    progress.advance(50)
    assert progress.line(5.0) == "decoding, 10 images/s, 0:05 left"

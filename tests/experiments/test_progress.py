"""The progress display: a live line in a terminal, sparse plain lines elsewhere, and rates that can be believed."""

from __future__ import annotations

import io
import time

import pytest

from emais.experiments.progress import ProgressLine


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class AsciiTerminal(Terminal):
    encoding = "ascii"


@pytest.mark.parametrize(("columns", "bar"), [(100, "█" * 12 + "░" * 12), (80, "█" * 8 + "░" * 9), (60, "")])
def test_progress_in_a_terminal(columns: int, bar: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    now, stream = [0.0], Terminal()
    with ProgressLine(total_steps=100, total_runs=2, stream=stream, clock=lambda: now[0]) as progress:
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
    progress = ProgressLine(total_steps=4, total_runs=1, stream=stream, clock=lambda: now[0])
    now[0] = 1.0
    progress.advance(2)
    assert "#" * 12 + "." * 12 in stream.getvalue()
    assert stream.getvalue().isascii()


def test_progress_promises_nothing_at_first() -> None:
    assert (
        ProgressLine(total_steps=100, total_runs=2, stream=io.StringIO(), clock=lambda: 0.0).line(1.9)
        == "0/2 runs done"
    )


def test_progress_forgets_a_slow_start() -> None:
    now = [0.0]
    progress = ProgressLine(total_steps=10_000, total_runs=1, stream=io.StringIO(), clock=lambda: now[0])
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
    progress = ProgressLine(total_steps=400, total_runs=1, stream=io.StringIO(), clock=lambda: now[0])
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
    images = ProgressLine(total_steps=20, total_runs=0, stream=io.StringIO(), clock=lambda: 0.0)
    images.advance(20)
    assert images.line(5.0) == "4 steps/s, 0:00 left"


def test_progress_without_a_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    """As of a service, or after 2>&-."""
    monkeypatch.setattr("sys.stderr", None)
    with ProgressLine(total_steps=20, total_runs=0) as progress:
        progress.advance(30)
    assert progress.line(time.monotonic() + 100).endswith("0:00 left")


def test_progress_of_runs_that_others_have_done_says_nothing_about_the_rate() -> None:
    progress = ProgressLine(total_steps=1000, total_runs=4, stream=io.StringIO(), clock=lambda: 0.0)
    progress.pass_over(2, 500)
    progress.advance(100)
    assert progress.line(10.0) == "2/4 runs done, 10 steps/s, 0:40 left"
    progress.advance(400)
    assert progress.line(10.0) == "2/4 runs done, last tests"


def test_progress_elsewhere_is_a_line_every_ten_seconds() -> None:
    now, stream = [0.0], io.StringIO()
    with ProgressLine(total_steps=100, total_runs=2, stream=stream, clock=lambda: now[0]) as progress:
        for k in range(1, 26):
            now[0] = float(k)
            progress.advance()
    assert stream.getvalue() == (
        " 10%  0/2 runs done, 1 steps/s, 1:30 left\n 20%  0/2 runs done, 1 steps/s, 1:20 left\n"
    )


def test_progress_of_one_thing_in_other_units() -> None:
    progress = ProgressLine(total_steps=100, total_runs=0, stream=io.StringIO(), clock=lambda: 0.0, unit="images")
    progress.begin_run("decoding")
    progress.advance(50)
    assert progress.line(5.0) == "decoding, 10 images/s, 0:05 left"


class Closed(Terminal):
    def write(self, text: str) -> int:
        raise BrokenPipeError


def test_work_goes_on_when_nobody_reads_any_more() -> None:
    now = [0.0]
    with ProgressLine(total_steps=100, total_runs=1, stream=Closed(), clock=lambda: now[0]) as progress:
        for _ in range(3):
            now[0] += 20
            progress.advance(10)
    assert progress.steps == 30

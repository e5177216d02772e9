"""A progress display for long commands: one live line in a terminal, a plain line now and then elsewhere.

Our own, because it has to work where only torch and numpy are installed, and to tell tests from steps in its rate.
"""

from __future__ import annotations

import io
import shutil
import sys
import time
from collections import deque
from collections.abc import Callable
from typing import TextIO

REDRAW, REPORT = 0.1, 10.0  # seconds between two drawings in a terminal, and between two lines elsewhere
SETTLE, FIRST = 2.0, 10  # seconds and steps before the rate means anything: the first steps are slow
RECENT = 30.0  # seconds that the rate is taken over, so that a slow start is soon forgotten
BAR = 24  # characters, where the terminal is wide enough


class ProgressLine:
    """Counts steps and runs, and shows them on stderr with the rate and the time left.

    total_steps: steps of all runs together; total_runs: how many runs there are, 0 where there is but one thing to
    do; unit: what a step is called. Use it as a context manager: on leaving, the live line is wiped, so that what is
    printed next starts on a clean one. Once the stream is closed, it prints nothing, and the work goes on.

    >>> import io
    >>> with ProgressLine(total_steps=20, total_runs=2, stream=io.StringIO()) as progress:
    ...     progress.advance(10)
    ...     progress.finish_run()
    >>> progress.steps, progress.runs
    (10, 1)
    """

    def __init__(
        self,
        total_steps: int,
        total_runs: int,
        stream: TextIO | None = None,
        clock: Callable[[], float] = time.monotonic,
        unit: str = "steps",
    ) -> None:
        self.total_steps, self.total_runs, self.unit = total_steps, total_runs, unit
        self.steps, self.runs, self.label = 0, 0, ""
        self._stream = stream or sys.stderr or io.StringIO()  # without a stderr it goes nowhere
        self._live, self._signs = self._stream.isatty(), signs(self._stream)
        self._clock = clock
        self._start = self._shown = self._last = clock()
        self._idle, self._resting = 0.0, False  # seconds without steps, such as those of tests; whether one is going on
        self._own = 0  # steps that were made here
        self._marks = deque([(self._start, 0)])  # (time, steps) about once a second, the recent ones

    def __enter__(self) -> ProgressLine:
        return self

    def __exit__(self, *_: object) -> None:
        if self._live:
            self._write("\r\x1b[K")

    def begin_run(self, label: str) -> None:
        """Say what is running now."""
        self.label = label

    def advance(self, steps: int = 1) -> None:
        """Count steps; draws only when enough time has passed, so it may be called at every step.

        0 is a sign of life from work that has no steps, such as a test: the time from it to the next call is not part
        of the rate, and the time left has as much of it for each step as there was so far.
        """
        self.steps, self._own = self.steps + steps, self._own + steps
        now = self._clock()
        if self._resting:
            pause = now - self._last
            self._idle += pause
            self._marks = deque((when + pause, before) for when, before in self._marks)
        self._last, self._resting = now, not steps
        if now - self._marks[-1][0] >= 1:
            self._marks.append((now, self.steps))
            while now - self._marks[0][0] > RECENT and len(self._marks) > 2:
                self._marks.popleft()
        if now - self._shown >= (REDRAW if self._live else REPORT):
            self._show(now)

    def finish_run(self) -> None:
        """Count a run."""
        self.runs += 1

    def pass_over(self, runs: int, steps: int) -> None:
        """Count runs that somebody else has done: they say nothing about the rate."""
        self.runs, self.steps = self.runs + runs, self.steps + steps
        self._marks = deque((when, before + steps) for when, before in self._marks)

    def line(self, now: float, room: int = sys.maxsize) -> str:
        """What is shown: runs done, what is running, steps a second, time left.

        room: characters that there are; the name of what is running is cut to fit.
        """
        done = f"{self.runs}/{self.total_runs} runs done" if self.total_runs else ""
        shown, rest = self.label, self._pace(now)
        keep = room - len(", ".join(filter(None, [done, "", *rest]))) - 2
        if len(shown) > keep:
            shown = f"{shown[: keep - 1].rstrip()}{self._signs[2]}" if keep > 3 else ""
        return ", ".join(filter(None, [done, shown, *rest]))

    def _pace(self, now: float) -> list[str]:
        since, before = self._marks[0]
        if now - self._start < SETTLE or self.steps < FIRST or self.steps <= before:
            return []
        if self.runs < self.total_runs and self.steps >= self.total_steps:
            return ["last tests"]
        rate = (self.steps - before) / max(now - since, 1e-9)
        left = max(0, self.total_steps - self.steps) * (1 / rate + self._idle / max(1, self._own))
        return [f"{rate:.0f} {self.unit}/s", f"{clock_time(left)} left"]

    def _show(self, now: float) -> None:
        self._shown = now
        most = 0.99 if self.runs < self.total_runs else 1.0  # tests are still to come
        share = min(most, self.steps / max(1, self.total_steps))
        if not self._live:
            self._write(f"{share:4.0%}  {self.line(now)}\n")
            return
        room = shutil.get_terminal_size().columns - 1  # a full last column would make some terminals wrap
        text = f"{share:4.0%}  {self.line(now, room - 7)}"
        width = max(0, min(BAR, room - len(text) - 1))
        full = round(width * share)
        self._write(f"\r\x1b[K{f'{self._signs[0] * full}{self._signs[1] * (width - full)} {text}'[:room]}")

    def _write(self, text: str) -> None:
        try:
            self._stream.write(text)
            self._stream.flush()
        except BrokenPipeError:
            self._stream, self._live = io.StringIO(), False


def clock_time(seconds: float) -> str:
    """Seconds as minutes and seconds, or hours.

    >>> clock_time(75), clock_time(3700)
    ('1:15', '1:01:40')
    """
    minutes, second = divmod(round(seconds), 60)
    hours, minute = divmod(minutes, 60)
    return f"{hours}:{minute:02}:{second:02}" if hours else f"{minute}:{second:02}"


def signs(stream: TextIO) -> str:
    """The characters that this stream can write: two of the bar, and one for a text that is cut."""
    try:
        "█░…".encode(getattr(stream, "encoding", None) or "utf-8")
    except UnicodeEncodeError:
        return "#.~"
    return "█░…"

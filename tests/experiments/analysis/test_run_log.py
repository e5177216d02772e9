"""A log that is still being written: half a line, a resume, another file, another form, and rubbish."""

from __future__ import annotations

import json
import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emais.experiments.analysis.run_log import RunLog


@pytest.fixture
def path(tmp_path):
    return tmp_path / "run.jsonl"


def add(path, text):
    with path.open("a", encoding="utf-8") as file:
        file.write(text)


def values(log):
    return {name: dict(zip(series.steps, series.values, strict=True)) for name, series in log.series.items()}


def test_a_half_written_line_waits_for_its_end(path):
    add(path, '{"step": 1, "loss": 2.0}\n{"step": 2, "lo')
    log = RunLog(path)
    log.read()
    assert values(log) == {"loss": {1: 2.0}}
    add(path, 'ss": 1.5}\n{"step": 3')
    log.read()
    assert values(log) == {"loss": {1: 2.0, 2: 1.5}}


def test_only_what_was_added_is_read(path):
    add(path, '{"step": 1, "a": 1}\n')
    log = RunLog(path)
    log.read()
    content = path.read_bytes()
    with path.open("r+b") as file:
        file.write(content.replace(b'"a": 1', b'"a": 9'))
    add(path, '{"step": 2, "a": 2}\n')
    log.read()
    assert values(log) == {"a": {1: 1, 2: 2}}


def test_a_file_that_was_cut_or_replaced_is_read_from_its_beginning(path):
    add(path, '{"step": 5, "a": 1, "b": 1}\n')
    log = RunLog(path)
    log.read()
    path.write_text('{"step": 1, "a": 7}\n')
    log.read()
    assert values(log) == {"a": {1: 7}}
    other = path.with_name("other")
    other.write_text('{"step": 3, "c": 8, "d": 1}\n{"step": 4, "c": 9}\n')
    os.replace(other, path)
    log.read()
    assert values(log) == {"c": {3: 8, 4: 9}, "d": {3: 1}}


def test_a_resumed_run_replaces_what_it_does_again(path):
    lines = [{"step": s, "a": s} for s in (1, 2, 3, 4)] + [{"step": s, "a": 10 * s} for s in (3, 5)]
    add(path, "".join(json.dumps(line) + "\n" for line in lines))
    log = RunLog(path)
    log.read()
    assert values(log) == {"a": {1: 1, 2: 2, 3: 30, 5: 50}}
    add(path, '{"step": 6, "late": 1}\n{"step": 1, "a": 7}\n')
    log.read()
    assert values(log) == {"a": {1: 7}}  # of what has no value left nothing remains


def test_lines_of_one_step_belong_together_and_a_missing_step_is_the_next(path):
    add(path, '{"step": 4, "a": 1}\n{"step": 4, "b": 2, "a": 3}\n{"b": 5}\n')
    log = RunLog(path)
    log.read()
    assert values(log) == {"a": {4: 3}, "b": {4: 2, 5: 5}}


def test_csv(path):
    add(path, 'step,"loss, mean",lr\n10,2.5,\n\n20,nan,0.1\nbad\n30,1.5,0.05,9\n40,1')
    log = RunLog(path)
    log.read()
    assert values(log) == {"loss, mean": {10: 2.5, 30: 1.5}, "lr": {20: 0.1, 30: 0.05}}


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=5,
)


@given(
    st.lists(
        st.dictionaries(st.sampled_from(["step", "a", "emais/n_ems", ""]), json_values, max_size=4).map(json.dumps)
        | st.text(max_size=20),
        max_size=8,
    )
)
def test_whatever_is_in_a_file_steps_rise_and_values_are_finite(tmp_path_factory, lines):
    from emais.experiments.report.log_page import log_page

    path = tmp_path_factory.mktemp("log") / "run.jsonl"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8", errors="replace")
    log = RunLog(path)
    log.read()
    for series in log.series.values():
        assert all(a < b for a, b in zip(series.steps, series.steps[1:], strict=False))
        assert all(abs(v) <= 1e300 for v in series.values)
    assert ">nan" not in log_page(log).lower()  # and every page can be drawn

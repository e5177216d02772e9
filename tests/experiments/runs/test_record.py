"""The record of a run: types for what is read, a mapping for all else, and nothing lost between two files."""

import json
import math
from collections.abc import Mapping
from dataclasses import asdict

import pytest
from places import RESULTS

from emais.experiments.config import Config
from emais.experiments.runs.record import LAYOUT, RunRecord, is_run, typed, upgraded
from emais.experiments.runs.store import Results

CONFIG = Config("fmnist", "lenet5", "emais", seed=3, options={"tau": 5})
CURVES = {"step": [1, 2], "loss": [0.5, None], "n_ems": [1, 2], "score": [1, 2], "test_step": [2], "test_error": [9.0]}
LINE = asdict(CONFIG) | {"test_error": 9.0, "curves": CURVES, "ms_per_step": 0.5, "layout": LAYOUT, "hardware": "a GPU"}


def parsed(**changes):
    return RunRecord.parse(json.loads(json.dumps(LINE | changes)))


def test_what_is_read_has_a_type():
    record = parsed(source="a1", data_title="Fashion-MNIST")
    assert (record.data, record.num_steps, record.seed) == ("fmnist", 6250, 3)
    assert (record.hardware, record.source, record.layout, record.data_title) == ("a GPU", "a1", 2, "Fashion-MNIST")
    assert (record.value("test_error"), record.ms_per_step) == (9.0, 0.5)
    assert math.isnan(record.value("map"))
    assert record.curve("loss")[0] == 0.5
    assert math.isnan(record.curve("loss")[1])
    assert record.config == CONFIG
    assert record.key == CONFIG.key()
    assert record.setting_key == parsed(seed=7).setting_key != record.key
    assert record.complete


def test_what_is_not_recorded_is_none():
    record = parsed(hardware=None)
    assert (record.hardware, record.source, record.data_title) == (None, None, None)
    assert parsed(test_error=None)["test_error"] is None
    assert not parsed(curves={"step": [1]}).complete
    assert not RunRecord({"model": "lenet5"}).complete


def test_a_record_reads_like_a_mapping():
    record = parsed()
    assert isinstance(record, Mapping)
    assert record["curves"]["test_error"] == [9.0]
    assert record.get("recalibrated") is None
    assert "recalibrated" not in record
    assert {**record} == LINE == record
    assert list(record) == list(LINE)
    assert (record | {"seed": 4}).seed == 4
    with pytest.raises(TypeError):
        record["seed"] = 4
    assert RunRecord.of(record) is record
    assert typed([LINE])[0] == record


@pytest.mark.parametrize("changes", [{"method": "of_tomorrow"}, {"options": {"of_tomorrow": 1}}, {"lr": None}], ids=str)
def test_a_run_of_another_version_has_a_key_and_no_configuration(changes):
    record = parsed(**changes)
    assert record.config is None
    assert record.key != CONFIG.key()


@pytest.mark.parametrize(
    "line", [None, 3, [1], "text", {}, {**LINE, "seed": "x"}, {**LINE, "test_error": "x"}], ids=str
)
def test_what_is_no_run_is_none(line):
    assert not is_run(line)
    assert RunRecord.parse(line) is None


def test_what_this_version_does_not_know_is_written_as_it_was_read(tmp_path):
    line = LINE | {"of_tomorrow": {"nested": [1, None, "ü"], "flag": True}, "options": {"tau": 5, "new": [1, 0.5]}}
    record = RunRecord.parse(json.loads(json.dumps(line)))
    assert json.loads(record.to_json()) == line
    results = Results(tmp_path / "runs.jsonl")
    assert results.append(record)
    assert [dict(found) for found in results.read()] == [line]


@pytest.mark.parametrize("path", sorted(RESULTS.glob("*.jsonl")), ids=lambda path: path.stem)
def test_committed_records_survive_a_round_trip(path):
    lines = [line for line in Results(path).lines() if is_run(line)]
    for line in lines:
        record = RunRecord.parse(line)
        assert json.loads(record.to_json()) == upgraded(line)
        if "layout" in line:
            assert record.to_json() == json.dumps(line)
        if path.stem != "demo_digits":  # which has a network of its own
            assert record.config.key() == record.key
    assert bool(lines) == (path.stem != "full_logit")

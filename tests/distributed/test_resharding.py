"""States of parts: an exact resume with the same parts, and the same statistics with any others."""

import re

import pytest
import torch
from replicated_runs import SAMPLES, differences, engine, train
from sharded_runs import (
    EQUAL,
    UNEQUAL,
    column,
    continued_part,
    large_parts,
    own,
    read_back,
    refused,
    through_files,
    train_part,
)

import emais

pytestmark = pytest.mark.launched

COLUMNS = {"emais": ("mean", "var", "last_step"), "emais-auto": ("means", "last_step"), "rais": ("last", "ema9")}


def saved(pair, cuts=UNEQUAL, steps=70, **options):
    results = pair(train_part, cuts=cuts, steps=steps, **options)
    return tuple(result["state"] for result in results), results[0]["parameters"]


@pytest.mark.parametrize("workers", [0, [0, 2]], ids=str)
@pytest.mark.parametrize("method", ["emais", "emais-auto"])
def test_the_same_parts_go_on_exactly(pair, method, workers):
    options = {"method": method, "workers": workers, "num_steps": 110, "dtype": torch.float64}
    whole = pair(train_part, steps=110, **options)
    parts, parameters = saved(pair, **options)
    found = pair(continued_part, cuts=UNEQUAL, parts=parts, parameters=parameters, steps=40, **options)
    for rank, result in enumerate(found):
        assert result["draws"] == whole[rank]["draws"][70:]
        assert torch.equal(result["parameters"], whole[rank]["parameters"])
        assert not differences(result["state"], whole[rank]["state"])


@pytest.mark.parametrize("method", COLUMNS)
def test_other_parts_have_the_same_statistics(pair, method):
    options = {"method": method}
    parts, parameters = saved(pair, **options)
    found = pair(continued_part, cuts=(0, 150, SAMPLES), parts=parts, parameters=parameters, steps=60, **options)
    for name in COLUMNS[method]:
        assert torch.equal(column([result["before"] for result in found], name), column(parts, name))
    assert torch.equal(found[0]["parameters"], found[1]["parameters"])
    assert found[0]["factors"] == found[1]["factors"]
    assert found[0]["draws"][0][0] == 71


def test_one_process_takes_all_parts(pair):
    parts, _ = saved(pair, workers=[0, 2])
    imp = engine()
    imp.load_state_dict({"parts": {**parts[0]["parts"], **parts[1]["parts"]}})
    assert imp.step == 70
    assert torch.equal(imp.scores.mean, column(parts, "mean"))
    assert torch.equal(imp.sampler.weights, imp.scores.weights())


@pytest.mark.parametrize("method", ["emais-auto", "audit"])
def test_large_parts_of_unequal_length_fit_together(pair, method):
    """Decisions fall due by the length of all parts, and the audit looks back as far."""
    (period, one), (same, other) = pair(large_parts, method=method, sizes=(40_000, 50_001), batch_size=16)
    whole = emais.create(method, 90_001, 32)
    assert period == same == whole.period == 140
    whole.load_state_dict({"parts": {**one["parts"], **other["parts"]}})


def test_parts_from_the_state_of_one_process(pair):
    alone = train(size=1, steps=70)
    given = ({"parts": {f"0:{SAMPLES}": alone["state"]}},)
    found = pair(continued_part, cuts=EQUAL, parts=given, parameters=alone["parameters"], steps=20)
    assert torch.equal(column([result["before"] for result in found], "mean"), alone["state"]["state"]["mean"])


def test_a_checkpoint_of_other_data_is_an_error_on_all_processes(pair, tmp_path):
    pair(through_files, folder=tmp_path / "checkpoint", cuts=UNEQUAL)
    for message in pair.errors(read_back, folder=tmp_path / "checkpoint", cuts=(0, 300, 600)):
        assert "has parts of 640 samples under 'imp', this run has 600" in message


@pytest.mark.parametrize("method", ["emais", "emais-auto", "sgd-scan", "rais"])
def test_torch_distributed_checkpoint(pair, tmp_path, method):
    folder = tmp_path / "checkpoint"
    states = pair(through_files, folder=folder, cuts=UNEQUAL, method=method)
    same = pair(read_back, folder=folder, cuts=UNEQUAL, method=method)
    assert not [path for k in (0, 1) for path in differences(same[k], states[k])]
    other = pair(read_back, folder=folder, cuts=(0, 111, SAMPLES), method=method)
    for name in COLUMNS.get(method, ()):
        assert torch.equal(column(other, name), column(states, name))


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ("half", "the state has 0:100|the state has none of them"),
        ("name", "parts must be named as first:stop, got 'first'"),
        ("steps", r"are of different steps, \[45, 70\]"),
        ("no part", "must be a dict made by state_dict"),
    ],
)
def test_states_that_are_refused_change_nothing(pair, change, told):
    for message in pair.errors(refused, change=change):
        assert re.search(told, message), message


def test_a_checkpoint_without_parts(tmp_path):
    import torch.distributed.checkpoint as dcp

    with pytest.warns(UserWarning, match="single process"):
        dcp.save({"imp": engine().state_dict()}, checkpoint_id=tmp_path)
    with pytest.raises(emais.EmaisError, match="has parts of 0 samples under 'imp', this run has 640"):
        emais.read_parts(engine(), tmp_path, "imp")


def test_a_part_that_is_whole_for_one_process(pair):
    parts, _ = saved(pair)
    with pytest.raises(emais.EmaisError, match="this process has the samples 0:640, the state has 0:400"):
        engine().load_state_dict(parts[0])
    assert own(parts[1])["step"] == 70

"""Configurations as text, and the files that finished runs are written to."""

import json
import multiprocessing
from pathlib import Path

import pytest

from emais import EmaisError
from emais.experiments.config import Config
from emais.experiments.runs.store import LAYOUT, Results
from emais.experiments.runs.sweep import parse

SHORT = "data=digits model=perceptron method=emais"


def test_a_text_stands_for_all_combinations():
    runs = parse("data=fmnist model=lenet5 method=sgd-scan,emais lr=0.01,0.1 num_steps=100 seed=0-2")
    assert len(runs) == 12
    assert {(c.method, c.lr, c.seed) for c in runs} == {
        (m, lr, s) for m in ("sgd-scan", "emais") for lr in (0.01, 0.1) for s in range(3)
    }
    assert all(isinstance(c.num_steps, int) for c in runs)


def test_settings_of_a_method_are_options():
    (run,) = parse(f"{SHORT} tau=500 rule=none")
    assert run.options == {"tau": 500}
    assert run.rule == "none"
    assert run.key() != parse(SHORT)[0].key()
    assert run.group() == parse(SHORT)[0].group()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("data=digits model=perceptron method=emias", "unknown method 'emias'.*did you mean 'emais'"),
        ("data=digit model=perceptron method=emais", "unknown data 'digit'.*did you mean 'digits'"),
        ("data=digits model=lenet method=emais", "unknown model 'lenet'.*did you mean 'lenet5'"),
        (f"{SHORT} optimizer=adm", "unknown optimizer 'adm'.*did you mean 'adam'"),
        (f"{SHORT} nmu_steps=3", "unknown key 'nmu_steps'.*did you mean 'num_steps'"),
        (f"{SHORT} rule=linaer", "unknown rule 'linaer'.*did you mean 'linear'"),
        (f"{SHORT} schedule=effectve", "unknown schedule 'effectve'.*did you mean 'effective'"),
        (f"{SHORT} num_steps=0", "num_steps must be .* got 0"),
        (f"{SHORT} num_steps=1.5", "num_steps must be .* got 1.5"),
        (f"{SHORT} lr=fast", "lr must be a number, got 'fast'"),
        (f"{SHORT} lr=-1", "lr must be .* got -1"),
        (f"{SHORT} momentum=1.0", "momentum must be a number of at least 0 and below 1, got 1.0"),
        (f"{SHORT} weight_decay=-1", "weight_decay must be a number of at least 0, got -1"),
        (f"{SHORT} refresh_every=-3", "refresh_every must be a whole number from 0 to .* got -3"),
        (f"{SHORT} refresh_every=7.5", "refresh_every must be a whole number from 0 to .* got 7.5"),
        (f"{SHORT} seed=true", "seed must be a whole number from 0 to .* got True"),
        (f"{SHORT} seed=1.5", "seed must be a whole number from 0 to .* got 1.5"),
        (f"{SHORT} seed=1e30", r"seed must be a whole number from 0 to .* got 1e\+30"),
        (f"{SHORT} num_steps=inf", "num_steps must be .* got inf"),
        ("data=digits model=perceptron method=emais, rais", "without a space, .* got 'method=emais, rais'"),
        (f"{SHORT} seed=0 ,1", "without a space, .* got 'seed=0 ,1'"),
        (f"{SHORT} seed=0, lr=1", "a comma joins values of one key, .* got 'seed=0, lr=1'"),
        (
            f"{SHORT} seed=99999999999999999999999",
            "seed must be a whole number from 0 to .* got 99999999999999999999999",
        ),
        (f"{SHORT} seed=4-2", "seed=4-2 names no seed"),
        (f"{SHORT} lr=0.1 lr=0.2", "lr is given twice.*lr=a,b"),
        (f"{SHORT} resident=1", "unknown setting of emais 'resident'"),
        (f"{SHORT} num_steps=9 effective_steps=True", "ends at equal progress with schedule=progress"),
        (f"{SHORT} sharded=True", "unknown setting of emais 'sharded'"),
        (f"{SHORT} seed", "key=value pairs, got 'seed'"),
        ("data=digits model=perceptron", "lacks method="),
        ("data=digits", "lacks model=, method="),
        ("dat=digits", "unknown key 'dat'.*did you mean 'data'"),
        ("data=digist", "unknown data 'digist'.*did you mean 'digits'"),
        ("data=digits method=emias", "unknown method 'emias'.*did you mean 'emais'"),
        ("data=digits model=perceptron method=sgd-scan tau=5", "unknown setting of sgd-scan 'tau'"),
    ],
)
def test_bad_texts(text, message):
    with pytest.raises(EmaisError, match=message):
        parse(text)


def test_booleans_and_lists_of_seeds():
    (run,) = parse("data=digits model=perceptron method=presampling switch=False")
    assert run.options == {"switch": False}
    assert [c.seed for c in parse(f"{SHORT} seed=0-1,4")] == [0, 1, 4]


def test_whole_numbers_may_be_written_as_others():
    (run,) = parse("data=digits model=perceptron method=emais-auto num_steps=1e3 seed=1.0 batch_size=3.2e1 window=5e1")
    values = (run.num_steps, run.seed, run.batch_size, run.options["window"])
    assert values == (1000, 1, 32, 50)
    assert all(isinstance(value, int) for value in values)
    assert isinstance(parse(f"{SHORT} lr=1.0")[0].lr, float)


def test_settings_of_several_numbers(tmp_path):
    runs = parse("data=digits model=perceptron method=emais-auto factors=1:0.3,1:0.1 window=50")
    assert [run.options for run in runs] == [{"factors": (1, f), "window": 50} for f in (0.3, 0.1)]
    results = Results(tmp_path / "runs.jsonl")
    results.append({**runs[0].__dict__, "test_error": 3.0, "layout": LAYOUT})
    assert results.missing(runs) == runs[1:]  # a list once it has been written down, and still the same run
    with pytest.raises(EmaisError, match="lr must be a number, got '1:2'"):
        parse(f"{SHORT} lr=1:2")


def record(seed, **more):
    config = Config("digits", "perceptron", "emais", seed=seed, **more)
    return {**config.__dict__, "test_error": 3.0, "layout": LAYOUT}


def test_records_come_back_and_are_not_run_again(tmp_path):
    results = Results(tmp_path / "new" / "runs.jsonl")
    assert results.read() == []
    runs = parse(f"{SHORT} seed=0-2")
    assert results.missing(runs) == runs
    assert results.append(record(1))
    assert not results.append(record(1))
    assert results.append(record(1, options={"tau": 5.0}))
    assert [c.seed for c in results.missing(runs)] == [0, 2]
    assert results.read()[0].key == runs[1].key()


def test_a_torn_last_line_costs_only_that_run(tmp_path):
    results = Results(tmp_path / "runs.jsonl")
    results.append(record(0))
    results.append(record(1))
    text = results.path.read_text()
    results.path.write_text(text[:-20])
    assert [r["seed"] for r in results.read()] == [0]
    assert results.append(record(2))
    assert [r["seed"] for r in results.read()] == [0, 2]
    assert all(json.loads(line) for line in results.path.read_text().splitlines())


def test_a_last_line_that_only_lacks_its_end_is_kept(tmp_path):
    results = Results(tmp_path / "runs.jsonl")
    results.append(record(0))
    results.append(record(1))
    results.path.write_bytes(results.path.read_bytes().rstrip())
    assert [r["seed"] for r in results.read()] == [0, 1]
    assert not results.append(record(1))
    assert results.append(record(2))
    assert [r["seed"] for r in results.read()] == [0, 1, 2]
    assert results.count() == 3


@pytest.mark.parametrize(
    "odd",
    [
        {"test_error": "x"},
        {"ms_per_step": None},
        {"recalibrated": [1]},
        {"curves": [1]},
        {"curves": {"step": [1, 2], "score": 3}},
        {"curves": {"step": [1, 2], "score": [1]}},
        {"curves": {"step": [1, 2], "score": [1, "x"]}},
        {"curves": {"step": [1, 2], "test_step": [1], "test_error": [1, 2]}},
    ],
    ids=str,
)
def test_a_record_whose_numbers_are_none_is_no_run(odd, tmp_path):
    """It is run again, and neither tables nor figures see it."""
    results = Results(tmp_path / "runs.jsonl")
    results.append(record(0) | odd)
    assert results.read() == []
    assert results.append(record(0) | {"curves": {"step": [1, 2], "score": [1, None], "test_step": [2], "map": [5.0]}})
    assert len(results.read()) == 1


@pytest.mark.parametrize(
    "text",
    ['{\n  "name": "x",\n  "n": 1\n}', '{"name": "x", "n": 1}', "notes of today\n3\nbuy milk", "my precious notes"],
)
def test_files_of_another_kind_are_refused(text, tmp_path):
    path = tmp_path / "runs.jsonl"
    path.write_text(text)
    with pytest.raises(EmaisError, match="is no file of runs"):
        Results(path).must_be_writable()
    assert path.read_text() == text


def test_what_is_no_torn_record_is_not_taken_away(tmp_path):
    results = Results(tmp_path / "runs.jsonl")
    results.append(record(0))
    with results.path.open("ab") as file:
        file.write(b"a note")
    results.must_be_writable()
    assert results.append(record(1))
    assert results.path.read_text().splitlines()[1] == "a note"
    assert [r["seed"] for r in results.read()] == [0, 1]


def raising(error):
    def instead(*args, **kwargs):
        raise error

    return instead


def test_a_file_in_a_folder_that_takes_no_others(tmp_path, monkeypatch):
    refused = raising(PermissionError(13, "Permission denied"))
    results = Results(tmp_path / "runs.jsonl")
    monkeypatch.setattr("emais.experiments.runs.store.tempfile.TemporaryFile", refused)
    with pytest.raises(EmaisError, match=r"cannot be written \(Permission denied\)"):
        results.must_be_writable()
    results.append(record(0))
    results.must_be_writable()


@pytest.mark.parametrize("kind", ["device", "link", "folder"])
def test_what_is_no_file_of_runs_is_left_alone(kind, tmp_path):
    path = tmp_path / "runs.jsonl"
    if kind == "device":
        path = Path("/dev/null")
    elif kind == "link":
        path.symlink_to(tmp_path / "nowhere" / "x")
    else:
        path.mkdir()
    words = {
        "device": "is no file of runs",
        "folder": "is a folder where there should be a file of runs",
        "link": r"cannot be written \(No such file",
    }
    with pytest.raises(EmaisError, match=words[kind]):
        Results(path).must_be_writable()


def test_a_full_disk_is_told_with_its_file(tmp_path, monkeypatch):
    full = raising(OSError(28, "No space left on device"))
    results = Results(tmp_path / "runs.jsonl")
    monkeypatch.setattr("emais.experiments.runs.store.tempfile.TemporaryFile", full)
    with pytest.raises(EmaisError, match=r"runs.jsonl cannot be written \(No space left on device\)"):
        results.must_be_writable()
    monkeypatch.setattr("emais.experiments.runs.store.add", full)
    with pytest.raises(EmaisError, match=r"runs.jsonl cannot be written \(No space left on device\)"):
        results.append(record(0))


@pytest.mark.parametrize(
    "more", ["seed=0-99999999999", "seed=0-999 lr=0.1,0.2 batch_size=" + ",".join(map(str, range(1, 60)))]
)
def test_more_runs_than_anybody_waits_for(more):
    with pytest.raises(EmaisError, match=r"these would be [\d,]+ runs, at most 100,000 are taken at once"):
        parse(f"data=digits model=perceptron method=emais {more}")


def test_lines_that_are_no_runs_are_passed_over(tmp_path):
    results = Results(tmp_path / "runs.jsonl")
    results.append(record(0))
    odd = [b"{}", b"123", b"[1]", b'"text"', b"null", b"", b"\xff\xfe", b'{"seed": "\xe4"}', b"{torn"]
    wrong = [record(1) | {"options": 3}, record(1) | {"lr": [1]}, record(1) | {"seed": "one"}]
    with results.path.open("ab") as file:
        file.write(b"\n".join([*odd, *(json.dumps(r).encode() for r in wrong)]) + b"\n")
    assert results.append(record(1))
    assert not results.append(record(1))
    assert [r["seed"] for r in results.read()] == [0, 1]
    assert [c.seed for c in results.missing(parse(f"{SHORT} seed=0-2"))] == [2]


def test_the_lines_of_a_file_are_counted(tmp_path):
    results = Results(tmp_path / "runs.jsonl")
    assert results.count() == 0
    results.append(record(0))
    with results.path.open("ab") as file:
        file.write(b"\n  \n{}\n\xff\n{torn")
    assert results.count() == 4


def test_runs_of_another_version_stand_in_nobodys_way(tmp_path):
    results = Results(tmp_path / "runs.jsonl")
    for changes in ({"method": "of_tomorrow"}, {"options": {"of_tomorrow": 1}}, {"data": "of_tomorrow"}):
        assert results.append(record(0) | changes)
    assert len(results.missing(parse(SHORT))) == 1
    assert results.append(record(0))
    assert len(results.read()) == 4


def write_many(path):
    results = Results(path)
    for seed in range(25):
        results.append(record(seed))


def test_two_processes_on_one_file(tmp_path):
    path = tmp_path / "runs.jsonl"
    context = multiprocessing.get_context("spawn")
    both = [context.Process(target=write_many, args=(path,)) for _ in range(2)]
    for p in both:
        p.start()
    for p in both:
        p.join()
        assert p.exitcode == 0
    assert sorted(r["seed"] for r in Results(path).read()) == list(range(25))

"""What the runner finds out before it trains: files that cannot be written, devices, memory, data of a wrong kind."""

from __future__ import annotations

import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import emais
from emais import EmaisError
from emais.experiments.config import MODELS, Config
from emais.experiments.data import Data
from emais.experiments.runs import machine, provenance, runner
from emais.experiments.runs.machine import check_device, check_memory, runs_that_fit
from emais.experiments.runs.provenance import source_files
from emais.experiments.runs.runner import check_run, run_all
from emais.experiments.runs.sweep import parse
from emais.experiments.train.models import RESNETS

TEXT = "data=digits model=perceptron method=emais batch_size=32 num_steps=5"


def test_a_file_that_cannot_be_written_is_found_out_before_training(tmp_path: Path, monkeypatch) -> None:
    (tmp_path / "taken").write_text("a file")
    monkeypatch.setattr(runner, "load", lambda *args: pytest.fail("data were loaded"))
    with pytest.raises(EmaisError, match=r"taken/runs.jsonl cannot be written \(.+\): give another place"):
        run_all(parse(TEXT), tmp_path / "taken" / "runs.jsonl")


def test_nothing_is_left_where_nothing_was_run(tmp_path: Path) -> None:
    path = tmp_path / "new" / "runs.jsonl"
    assert run_all(parse(TEXT), path, budget=1e-9) == parse(TEXT)
    assert list(path.parent.iterdir()) == []


@pytest.mark.parametrize("device", ["cpu:x", "cuda:x"])
def test_a_device_that_is_none(device: str, monkeypatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    with pytest.raises(EmaisError, match=f"device '{device}' cannot be used here"):
        check_device(device)


def resnet(batch_size: int) -> Config:
    return Config("cifar10", "resnet18", "emais", batch_size=batch_size)


def test_a_run_that_does_not_fit_into_memory(monkeypatch) -> None:
    monkeypatch.setattr(machine, "machine_memory", lambda: 8 << 30)
    check_memory(resnet(1024), "cpu")
    with pytest.raises(
        EmaisError, match=r"batch_size=2048 and num_steps=6250 needs about 12 GiB of memory, there are 8 GiB"
    ):
        check_memory(resnet(2048), "cpu")
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (12 << 30, 80 << 30))
    check_memory(resnet(250), "cuda")
    with pytest.raises(EmaisError, match=r"batch_size=512 and .* 24 GiB of GPU memory, there are 12 GiB: end"):
        check_memory(resnet(512), "cuda")


@pytest.mark.parametrize(("gib", "together"), [(139, 4), (20, 3), (13, 2), (1, 1)])
def test_a_gpu_takes_as_many_runs_as_it_has_room_for(gib: int, together: int, monkeypatch) -> None:
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (gib << 30, 139 << 30))
    assert runs_that_fit(resnet(128), "cuda") == together
    assert runs_that_fit(resnet(128), "cpu") == 1


def test_the_memory_of_the_machine() -> None:
    assert machine.machine_memory() > 1 << 30
    with pytest.raises(EmaisError, match="of memory, there are"):
        check_memory(resnet(10**9), "cpu")


@pytest.mark.parametrize("method", ["confidence", "confvar"])
def test_methods_that_need_one_label(method: str) -> None:
    x, y = torch.zeros(50, 1, 8, 8, dtype=torch.uint8), torch.zeros(50, 3)
    data = Data("chestxray14", "several labels", ("a", "b", "c"), x, y, x, y)
    run = Config("chestxray14", "resnet50", method, batch_size=8)
    with pytest.raises(EmaisError, match=rf"{method} needs p\(true class\).* use emais or rais"):
        check_run(run, data)
    check_run(Config("chestxray14", "resnet50", "emais", batch_size=8), data)


def test_the_curves_of_a_very_long_run_do_not_fit(monkeypatch) -> None:
    monkeypatch.setattr(machine, "machine_memory", lambda: 8 << 30)
    with pytest.raises(EmaisError, match=r"num_steps=5000000000 needs about 1\d\d GiB of memory"):
        check_memory(Config("digits", "perceptron", "emais", num_steps=5_000_000_000), "cpu")


def test_a_resnet_needs_two_samples() -> None:
    x, y = torch.zeros(50, 3, 8, 8, dtype=torch.uint8), torch.zeros(50, dtype=torch.long)
    data = Data("cifar10", "CIFAR-10", ("a", "b"), x, y, x, y)
    with pytest.raises(EmaisError, match="resnet18 has BatchNorm, which needs minibatches of two or more"):
        check_run(resnet(1), data)
    check_run(replace(resnet(1), model="resnet18-gn"), data)  # GroupNorm does not


@pytest.mark.parametrize("model", MODELS)
def test_every_network_has_a_place(model: str, monkeypatch) -> None:
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (139 << 30, 139 << 30))
    run = Config("fmnist", model, "emais")
    assert runs_that_fit(run, "cuda") > 1
    check_memory(run, "cpu")
    assert (model in runner.SMALL) == (model not in RESNETS)


def test_runs_on_other_data_of_the_same_name(tmp_path: Path, monkeypatch) -> None:
    path = tmp_path / "runs.jsonl"
    assert run_all(parse(TEXT), path) == []
    load, other = runner.load, dict(vars(runner.load("digits", None))) | {"title": "digits (subset of 50 images)"}
    monkeypatch.setattr(runner, "load", lambda *args: Data(**other))
    words = r"runs.jsonl has runs on .*, and the data found here are digits \(subset of 50 images\): give another place"
    with pytest.raises(EmaisError, match=words):
        run_all(parse(f"{TEXT} seed=1"), path)
    assert run_all(parse(TEXT), path) == []  # nothing is missing, so nobody looks
    with pytest.raises(EmaisError, match=words):
        run_all(parse(TEXT), path, look=True)
    monkeypatch.setattr(runner, "load", load)
    assert run_all(parse(TEXT), path, look=True) == []


def test_a_run_to_follow_is_looked_for_before_training(tmp_path: Path, monkeypatch) -> None:
    text = TEXT.replace("emais", "sgd-uni")
    path = tmp_path / "runs.jsonl"
    run_all(parse(TEXT), path)
    with monkeypatch.context() as patch:
        patch.setattr(runner, "run_group", lambda *args: pytest.fail("a run was trained"))
        with pytest.raises(EmaisError, match=r"no run of emais with seed 1 .* run it first"):
            run_all(parse(f"{text} follow=emais seed=0,1"), path)
    assert run_all([*parse(f"{text} follow=emais seed=0,1"), *parse(f"{TEXT} seed=1")], path) == []


def test_runs_of_another_process_are_counted(tmp_path: Path, monkeypatch) -> None:
    made, path = [], tmp_path / "runs.jsonl"
    other = tmp_path / "other.jsonl"
    run_all(parse(f"{TEXT} seed=1-2"), other)

    class Seen(runner.ProgressLine):
        def __init__(self, *args, **kwargs) -> None:
            super().__init__(*args, **kwargs)
            made.append(self)

    def group(group, *args):
        if group[0].seed == 0:  # meanwhile
            path.write_bytes(other.read_bytes())
        return inner(group, *args)

    inner = runner.run_group
    monkeypatch.setattr(runner, "ProgressLine", Seen)
    monkeypatch.setattr(runner, "run_group", group)
    assert run_all(parse(f"{TEXT} seed=0-3"), path) == []
    assert (made[0].runs, made[0].steps) == (4, 20)


@pytest.fixture
def package(tmp_path: Path, monkeypatch) -> Path:
    """A copy of the package; `source_hash` is that of the copy."""
    root = tmp_path / "emais"
    shutil.copytree(Path(emais.__file__).parent, root, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(emais, "__file__", str(root / "__init__.py"))
    monkeypatch.setattr(provenance, "source_hash", provenance.source_hash.__wrapped__)  # without its memory
    return root


TRAINING = ("train/stacked_runs", "train/resnet_run", "train/models", "train/sharing", "config", "data/fmnist")
OF_RUNS = ("engine.py", "candidates.py", "methods/self_paced.py", *(f"experiments/{name}.py" for name in TRAINING))
OF_REPORTS = (
    "report/tables/results",
    "report/findings",
    "analysis/verdicts",
    "report/pages",
    "runs/catalogue",
    "commands",
)


def test_the_source_of_a_run_is_what_its_numbers_come_from(package: Path) -> None:
    before = provenance.source_hash()
    for name in OF_REPORTS:
        with (package / "experiments" / f"{name}.py").open("a") as file:
            file.write("# changed\n")
    assert provenance.source_hash() == before
    seen = {before}
    for name in OF_RUNS:
        with (package / name).open("a") as file:
            file.write("# changed\n")
        seen.add(provenance.source_hash())
    assert len(seen) == 1 + len(OF_RUNS)


def test_all_that_the_trainers_load_is_hashed() -> None:
    """Whatever else they import could change the numbers of a run without changing its hash."""
    root = Path(emais.__file__).parent
    hashed = {path.relative_to(root).with_suffix("").as_posix() for path in source_files(root)}
    code = "import sys\nfrom emais.experiments.train import following, parallel_resnets\nprint(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    names = {name.removeprefix("emais.").replace(".", "/") for name in loaded if name.startswith("emais.")}
    assert len(names) > 50
    left = {name for name in names if not {name, f"{name}/__init__"} & hashed}
    # how loaders write a cache, a bar, and means of what is printed
    assert left == {"experiments", "experiments/files", "experiments/progress", "experiments/numbers"}

"""Ray Train with a worker that dies: the run ends as an undisturbed one under torchrun does, to the bit."""

import os
import re
import shutil
import sys
import tempfile
from pathlib import Path

import pytest
import torch
from places import ROOT
from scripts import run_script, torchrun

EXAMPLES = ROOT / "examples"


@pytest.fixture(scope="module")
def folder():
    """A temporary folder with a short name: Ray's sockets are in it, whose paths may not be long."""
    path = Path(tempfile.mkdtemp(prefix="ray-"))
    yield path
    shutil.rmtree(path, ignore_errors=True)


def run(folder, *command):
    """What a command has printed; Ray keeps to the folder, tells nobody, and looks at its workers often."""
    settings = {
        "HOME": folder,
        "RAY_TMPDIR": folder,
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_TRAIN_HEALTH_CHECK_INTERVAL_S": "0.2",
    }
    environment = os.environ | {name: str(value) for name, value in settings.items()}
    found = run_script(list(map(str, command)), env=environment)
    assert found.returncode == 0, found.stderr
    return found.stdout


def numbers(printed):
    (line,) = [line for line in printed.splitlines() if line.startswith("sum of weights")]
    return line


@pytest.fixture(scope="module")
def undisturbed(folder):
    """(last checkpoint, numbers) under torchrun, without Ray."""
    path = folder / "undisturbed.pt"
    printed = run(folder, *torchrun(2, EXAMPLES / "distributed_restart.py", "--checkpoint", path))
    return torch.load(path), numbers(printed)


def check_equal(one, other, path="state"):
    """Every number of two states, to the bit; NaN is equal to itself."""
    assert type(one) is type(other), path
    if isinstance(one, dict):
        assert one.keys() == other.keys(), path
        for name in one:
            check_equal(one[name], other[name], f"{path}.{name}")
    elif isinstance(one, torch.Tensor):
        torch.testing.assert_close(one, other, rtol=0, atol=0, equal_nan=True, msg=path)
    else:
        assert repr(one) == repr(other), path


@pytest.mark.parametrize("kill_at", [None, 330], ids=["undisturbed", "killed"])
def test_ray_train_is_torchrun(folder, undisturbed, kill_at):
    storage = folder / f"killed-at-{kill_at}"
    options = ["--kill-at", kill_at] if kill_at else []
    printed = run(folder, sys.executable, EXAMPLES / "distributed_ray.py", "--storage", storage, *options)
    begun = int(re.search(r"steps (\d+) to 378", printed)[1])
    if kill_at:
        # Ray asks its workers for their reports now and then: the latest before a death may be lost with the worker
        assert begun in range(51, kill_at, 50)
    else:
        assert begun == 1
    assert numbers(printed) == undisturbed[1]
    saved = sorted((storage / "emais").glob("checkpoint_*/state.pt"))
    assert len(saved) >= 8  # one of a lost report is written again
    check_equal(torch.load(saved[-1]), undisturbed[0])


def test_the_example_is_short():
    assert len((EXAMPLES / "distributed_ray.py").read_text("utf-8").splitlines()) < 80

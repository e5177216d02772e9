"""torchrun starts all processes again after one has died: the run ends as if nothing had happened."""

import os
import runpy
import sys

import pytest
import torch
from places import ROOT
from replicated_runs import differences
from scripts import ATTEMPTS, run_script, torchrun

pytestmark = pytest.mark.launched

EXAMPLE = ROOT / "examples" / "distributed_restart.py"


def undisturbed(rank, path):
    sys.path.insert(0, str(EXAMPLE.parent))  # as when a script is run
    runpy.run_path(str(EXAMPLE))["train"](path)


def test_a_killed_process_under_torchrun(pair, tmp_path):
    pair(undisturbed, path=tmp_path / "undisturbed.pt")
    command = torchrun(2, "--max-restarts", 1, EXAMPLE, "--kill-at", 130, "--checkpoint")
    places = [str(tmp_path / f"killed-{attempt}.pt") for attempt in range(ATTEMPTS)]
    environment = os.environ | {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
    found = run_script(lambda attempt: [*command, places[attempt]], env=environment)
    last = max(path for path in tmp_path.glob("killed-*.pt"))
    assert found.returncode == 0, found.stderr
    assert "exitcode: -9" in found.stderr
    assert "steps 101 to 378" in found.stdout  # the last checkpoint before step 130 is that of step 100
    states = [torch.load(path) for path in (tmp_path / "undisturbed.pt", last)]
    assert differences(*states) == []


def test_the_example_is_short():
    assert len(EXAMPLE.read_text("utf-8").splitlines()) < 80

"""Groups that people have: torchrun's, and the data-parallel groups of a mesh."""

import os
import subprocess
import sys

import torch
import torch.distributed as dist
from places import ROOT
from process_pool import run_apart

import emais


def test_the_example_runs_under_torchrun():
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    path = ROOT / "examples" / "distributed_ddp.py"
    found = subprocess.run([*command, str(path)], capture_output=True, text=True, timeout=100, env=os.environ)
    assert found.returncode == 0, found.stderr
    assert "2 processes, 32 samples a step, S(W)" in found.stdout
    assert "alike on all of them: True" in found.stdout
    assert len(path.read_text("utf-8").splitlines()) < 80


def in_a_mesh(rank, pipe):
    """Two data-parallel groups, {0, 2} and {1, 3}, whose engines know nothing of each other."""
    mesh = dist.device_mesh.init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
    imp = emais.EMAIS(64, batch_size=4, process_group=mesh.get_group("dp"), seed=rank % 2, timeout=20.0)
    drawn = []
    for _ in range(6):
        draw = imp.draw()
        drawn.append(draw.index.tolist())
        z = torch.full((4, 3), 1.0 + rank, requires_grad=True)
        imp.loss((z * torch.arange(3)).sum(1), z, draw)
    pipe.send((drawn, imp.replicas.rank, imp.scores.mean.tolist()))


def test_the_data_parallel_groups_of_a_mesh(tmp_path):
    told = [sent for sent, _ in run_apart(in_a_mesh, 4, tmp_path)]
    assert [rank for _, rank, _ in told] == [0, 0, 1, 1]
    for first, second in ((0, 2), (1, 3)):
        assert told[first][2] == told[second][2]
        alone = emais.EMAIS(64, batch_size=8, seed=first)
        assert told[first][0][0] + told[second][0][0] == alone.draw().index.tolist()
    assert told[0][0] != told[1][0]

"""Groups that people have: torchrun's, and the data-parallel groups of a mesh."""

from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from places import ROOT
from process_pool import run_apart
from scripts import run_script, torchrun

import emais

pytestmark = pytest.mark.launched


@pytest.mark.parametrize(
    ("name", "told"),
    [("ddp", "2 processes, 32 samples a step, S(W)"), ("weighted_sampling", "2 processes, 32 samples a step, 4")],
)
def test_the_examples_run_under_torchrun(name, told):
    path = ROOT / "examples" / f"distributed_{name}.py"
    found = run_script(torchrun(2, path))
    assert found.returncode == 0, found.stderr
    assert told in found.stdout
    assert "alike on all of them: True" in found.stdout
    assert len(path.read_text("utf-8").splitlines()) < 80


def test_the_sharded_example_goes_on_with_other_parts(tmp_path):
    path, told = ROOT / "examples" / "distributed_sharded.py", []
    for processes in (2, 1):
        found = run_script(torchrun(processes, path, "--folder", tmp_path / "run"))
        assert found.returncode == 0, found.stderr
        told.append(found.stdout)
    assert "steps 1 to 200 on 2 processes, 1000 samples here" in told[0]
    assert "steps 201 to 400 on 1 processes, 2000 samples here" in told[1]
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
    pipe.send((drawn, imp.processes.rank, imp.scores.mean.tolist()))


def test_the_data_parallel_groups_of_a_mesh(tmp_path):
    told = [sent for sent, _ in run_apart(in_a_mesh, 4, tmp_path)]
    assert [rank for _, rank, _ in told] == [0, 0, 1, 1]
    for first, second in ((0, 2), (1, 3)):
        assert told[first][2] == told[second][2]
        alone = emais.EMAIS(64, batch_size=8, seed=first)
        assert told[first][0][0] + told[second][0][0] == alone.draw().index.tolist()
    assert told[0][0] != told[1][0]


def after_the_group(rank, pipe):
    """An engine that is still there when its group has been destroyed, as at the end of most scripts."""
    imp = emais.EMAIS(64, batch_size=4, process_group=dist.group.WORLD, timeout=20.0)
    torch.optim.SGD([torch.zeros(1, requires_grad=True)])  # imports what would keep the default group
    dist.barrier()
    before = gloo_threads()
    dist.destroy_process_group()
    z = torch.zeros(4, 3, requires_grad=True)
    try:
        imp.loss(z.sum(1), z, imp.draw())
        told = ""
    except emais.EmaisError as error:
        told = str(error)
    pipe.send((before, gloo_threads(), told))
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)  # for the caller to destroy


def gloo_threads():
    names = [task.joinpath("comm").read_text().strip() for task in Path("/proc/self/task").iterdir()]
    return names.count("pt_gloo_runloop")


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="counts threads by Linux's /proc")
def test_no_thread_of_a_destroyed_group_is_left_for_the_exit(tmp_path):
    """One that frees a tensor while Python shuts down would abort the process."""
    for (before, after, told), code in run_apart(after_the_group, 2, tmp_path, environments={0: {}}):
        assert before >= 3  # the user's group and our two
        assert after == 0
        assert "has been destroyed" in told
        assert code == 0

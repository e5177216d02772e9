"""Shared settings: few threads, fixed seeds, and a small classification task."""

import sys
from contextlib import nullcontext
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(autouse=True)
def _fixed_seed():
    torch.manual_seed(0)


@pytest.fixture
def one_thread():
    """For networks so narrow that they gain nothing from a second one."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def exact(monkeypatch):
    """The same algorithms every time, without tf32: narrow networks multiply rounding by 10^5 in 30 steps."""
    monkeypatch.setattr(torch.backends.cudnn, "deterministic", True)
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    monkeypatch.setattr("emais.experiments.train.resnet_run.cudnn_benchmark", nullcontext)


@pytest.fixture(scope="session")
def pair(tmp_path_factory):
    """Two processes with a group, for tests/distributed."""
    from process_pool import Pool  # beside those tests

    pool = Pool(2, tmp_path_factory.mktemp("pair"))
    yield pool
    pool.close()


@pytest.fixture
def task():
    """(data set of 96 samples, linear model): small enough to run Algorithm 2 by hand beside it."""
    x = torch.randn(96, 5)
    y = (x[:, 0] + 0.5 * torch.randn(96) > 0).long() + (x[:, 1] > 1).long()
    return TensorDataset(x, y), nn.Linear(5, 3)


def losses_of(model, batch):
    x, y = batch
    z = model(x)
    return nn.functional.cross_entropy(z, y, reduction="none"), z


class Watched:
    """An optimizer that writes down the rates which its step sees."""

    def step(self, closure=None):
        assert closure is None
        self.applied = [*getattr(self, "applied", []), [float(group["lr"]) for group in self.param_groups]]
        return super().step()


class WatchedSGD(Watched, torch.optim.SGD):
    pass

"""Shared settings: few threads, fixed seeds, and a small classification task."""

import sys
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
def task():
    """(data set of 96 samples, linear model): small enough to run Algorithm 2 by hand beside it."""
    x = torch.randn(96, 5)
    y = (x[:, 0] + 0.5 * torch.randn(96) > 0).long() + (x[:, 1] > 1).long()
    return TensorDataset(x, y), nn.Linear(5, 3)


def losses_of(model, batch):
    x, y = batch
    z = model(x)
    return nn.functional.cross_entropy(z, y, reduction="none"), z

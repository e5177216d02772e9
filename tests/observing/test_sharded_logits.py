"""Logits that are spread over processes: each has a part of the classes, and gradients of a part have no use."""

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, Shard, distribute_tensor

import emais


@pytest.fixture
def mesh(tmp_path):
    dist.init_process_group("gloo", init_method=f"file://{tmp_path / 'store'}", rank=0, world_size=1)
    yield init_device_mesh("cpu", (1,), mesh_dim_names=("tp",))
    dist.destroy_process_group()


def minibatch(placement, mesh):
    """An engine's draw, logits that are a DTensor, and their losses."""
    imp = emais.EMAIS(64, batch_size=4)
    leaf = distribute_tensor(torch.randn(4, 6), mesh, [placement]).requires_grad_()
    return imp, imp.draw(), leaf * 1.0


def cross_entropy(logits):
    return nn.functional.cross_entropy(logits, torch.arange(4), reduction="none")


@pytest.mark.parametrize("placement", [Shard(1), Replicate()], ids=str)
def test_logits_that_are_a_dtensor_are_refused_with_the_way_out(mesh, placement):
    imp, draw, logits = minibatch(placement, mesh)
    whole = logits.full_tensor()
    losses = cross_entropy(whole)
    (grads,) = torch.autograd.grad(losses.sum(), logits, retain_graph=True)
    for name, given in (
        ("losses", (logits.sum(1), whole, None, None)),
        ("logits", (losses, logits, None, None)),
        ("grads", (losses, whole, grads, None)),
        ("norms", (losses, None, None, grads.norm(dim=1))),
    ):
        with pytest.raises(emais.EmaisError, match=rf"{name} is a DTensor .*full_tensor\(\)"):
            imp.loss(*given[:2], draw, grads=given[2], norms=given[3])


def test_the_way_out_works(mesh):
    imp, draw, logits = minibatch(Shard(1), mesh)
    whole = logits.full_tensor()
    imp.loss(cross_entropy(whole), whole, draw).backward()
    assert imp.diagnostics.step == 1

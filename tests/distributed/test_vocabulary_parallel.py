"""A last layer whose classes are spread over two processes, which train on the same samples."""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate
from torch.distributed.tensor.parallel import ColwiseParallel, loss_parallel, parallelize_module

import emais


def trained(rank, way):
    """Three steps; the sum of the engine's weights."""
    tp = init_device_mesh("cpu", (2,), mesh_dim_names=("tp",))
    own = dist.new_group([rank], use_local_synchronization=True)  # data parallelism of one: each draws the same samples
    plan = ColwiseParallel(output_layouts=Replicate()) if way == "layout" else ColwiseParallel(use_local_output=False)
    model = parallelize_module(nn.Linear(5, 8), tp, plan)
    imp = emais.EMAIS(64, batch_size=4, process_group=own)
    x = torch.randn(64, 5, generator=torch.Generator().manual_seed(0))
    for _ in range(3):
        draw = imp.draw()
        logits = model(x[draw.index])
        if way == "full_tensor":
            logits = logits.full_tensor()
        with loss_parallel() if way == "spread" else torch.enable_grad():
            losses = nn.functional.cross_entropy(logits, draw.index % 8, reduction="none")
        imp.loss(losses.full_tensor() if way == "spread" else losses, logits, draw).backward()
    return imp.sampler.total()


def test_logits_of_a_part_of_the_classes_are_refused(pair):
    for message in pair.errors(trained, way="spread"):
        assert "logits is a DTensor that is spread over processes as (Shard(dim=1),)" in message
        assert "take whole = logits.full_tensor()" in message


def test_both_ways_out_work_and_agree(pair):
    found = [*pair(trained, way="full_tensor"), *pair(trained, way="layout")]
    assert len(set(found)) == 1

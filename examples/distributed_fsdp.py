"""Importance sampling with FSDP2, and with tensor parallelism beside it: the engine takes the data-parallel group.

torchrun --nproc-per-node 4 examples/distributed_fsdp.py --tensor-parallel 2
"""

import argparse

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.utils.data import TensorDataset

import emais

EPOCHS, PER_PROCESS = 6, 16


def make_data(samples=2000):
    """Ten groups of points; a tenth of the labels is wrong. The same on every process."""
    generator = torch.Generator().manual_seed(0)
    centres = torch.randn(10, 20, generator=generator)
    y = torch.randint(10, (samples,), generator=generator)
    x = centres[y] + torch.randn(samples, 20, generator=generator)
    wrong = torch.rand(samples, generator=generator) < 0.1
    return TensorDataset(x, torch.where(wrong, torch.randint(10, (samples,), generator=generator), y))


def train(tensor_parallel):
    shape = (dist.get_world_size() // tensor_parallel, tensor_parallel)
    mesh = init_device_mesh("cpu", shape, mesh_dim_names=("dp", "tp"))
    torch.manual_seed(0)  # the same model everywhere, before it is sharded
    model = nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 10))
    if tensor_parallel > 1:  # the logits come out whole: a sum over the processes that share a sample
        parallelize_module(model, mesh["tp"], {"0": ColwiseParallel(), "2": RowwiseParallel()})
    fully_shard(model, mesh=mesh["dp"])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)

    dataset = make_data()
    imp = emais.EMAISAuto(len(dataset), batch_size=PER_PROCESS, process_group=mesh.get_group("dp"))
    imp.attach(optimizer)
    loader = imp.loader(dataset, num_workers=1)

    for _ in range(EPOCHS):
        for (x, y), draw in loader:
            logits = model(x)
            losses = nn.functional.cross_entropy(logits, y, reduction="none")
            optimizer.zero_grad()
            imp.loss(losses, logits, draw).backward()
            optimizer.step()
    return model, imp


def report(model, imp):
    told = [None] * dist.get_world_size()
    weights = torch.cat([p.full_tensor().detach().flatten() for p in model.parameters()])
    numbers = f"sum of weights {imp.sampler.total().hex()}, factor {imp.diagnostics.lr_scale.hex()}"
    dist.all_gather_object(told, (numbers, float(weights.double().sum())))
    if dist.get_rank() == 0:
        d = imp.diagnostics
        print(f"{len(told)} processes, {d.batch_size} samples a step, S(W) {d.score:.2f}, N_ems {d.n_ems:.1f}")
        print(numbers)
        print(f"alike on all of them: {len(set(told)) == 1}")
    return weights


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--tensor-parallel", type=int, default=1)
    given = parser.parse_args()
    dist.init_process_group("gloo")
    report(*train(given.tensor_parallel))
    dist.barrier()  # nobody leaves while another still talks
    dist.destroy_process_group()

"""Importance sampling on several processes with DistributedDataParallel: one argument more than on one process.

torchrun --nproc-per-node 2 examples/distributed_ddp.py
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
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


def train():
    torch.manual_seed(dist.get_rank())  # augmentation differs between processes; DDP makes the models alike
    dataset = make_data()
    model = DistributedDataParallel(nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 10)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)

    imp = emais.EMAISAuto(len(dataset), batch_size=PER_PROCESS, process_group=dist.group.WORLD)
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
    weights = torch.cat([p.detach().flatten() for p in model.parameters()])
    told = [None] * dist.get_world_size()
    dist.all_gather_object(told, (imp.diagnostics.lr_scale, float(weights.double().sum())))
    if dist.get_rank() == 0:
        d = imp.diagnostics
        print(f"{len(told)} processes, {d.batch_size} samples a step, S(W) {d.score:.2f}, N_ems {d.n_ems:.1f}")
        print(f"sum of weights {imp.sampler.total().hex()}, factor {d.lr_scale.hex()}")
        print(f"alike on all of them: {len(set(told)) == 1}")


if __name__ == "__main__":
    dist.init_process_group("gloo")  # "nccl" on GPUs: importance sampling makes a gloo group of its own beside it
    report(*train())
    dist.barrier()  # nobody leaves while another still talks
    dist.destroy_process_group()

"""Weighted sampling on several processes: all draw from the same weights, and each changes those of its samples.

torchrun --nproc-per-node 2 examples/distributed_weighted_sampling.py
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import TensorDataset

import emais

EPOCHS, PER_PROCESS = 5, 16


def make_data(samples=2000):
    """Two classes, of which one is rare. The same on every process."""
    generator = torch.Generator().manual_seed(0)
    y = (torch.arange(samples) % 20 == 0).long()
    return TensorDataset(torch.randn(samples, 10, generator=generator) + 0.7 * y[:, None], y)


def main():
    dist.init_process_group("gloo")  # "nccl" on GPUs: the sampler makes a gloo group of its own beside it
    torch.manual_seed(dist.get_rank())  # random numbers of your own differ between processes
    dataset = make_data()
    y = dataset.tensors[1]
    model = DistributedDataParallel(nn.Linear(10, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    weights = 1 / y.bincount()[y]  # all weights, on every process
    sampler = emais.WeightedSampler(weights, batch_size=PER_PROCESS, process_group=dist.group.WORLD)
    loader = sampler.loader(dataset, num_workers=1)

    rare = drawn = 0
    for _ in range(EPOCHS):
        for (inputs, targets), draw in loader:  # index and r of this process's samples
            losses = nn.functional.cross_entropy(model(inputs), targets, reduction="none")
            optimizer.zero_grad()
            losses.mean().backward()
            optimizer.step()
            hard = weights[draw.index] * (0.1 + losses.detach().clamp(max=3))  # hard samples come more often
            sampler.update(draw.index, hard)  # all processes at the same place: afterwards all have all weights
            rare, drawn = rare + int(targets.sum()), drawn + len(targets)

    told = [None] * dist.get_world_size()
    dist.all_gather_object(told, (rare, drawn, sampler.weights.tolist()))
    if dist.get_rank() == 0:
        rare, drawn = (sum(found[k] for found in told) for k in (0, 1))
        print(f"{len(told)} processes, {sampler.global_batch_size} samples a step, {rare / drawn:.0%} of the rare ones")
        print(f"alike on all of them: {all(found[2] == told[0][2] for found in told)}")
    dist.barrier()  # nobody leaves while another still talks
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

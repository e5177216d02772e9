"""Each process has a part of the data and the statistics of that part alone; checkpoints fit any number of processes.

torchrun --nproc-per-node 2 examples/distributed_sharded.py --folder /tmp/run
torchrun --nproc-per-node 4 examples/distributed_sharded.py --folder /tmp/run    # goes on with four parts
"""

import argparse
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from distributed_ddp import make_data
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import Subset

import emais

PER_STEP, STEPS = 32, 200  # samples of all processes in a step; steps of one call of this script


def load(checkpoint, model, imp):
    """Go on where another run, perhaps on another number of processes, has stopped."""
    state = {"model": model.state_dict()}
    dcp.load(state, checkpoint_id=checkpoint)
    model.load_state_dict(state["model"])
    imp.load_state_dict(emais.read_parts(imp, checkpoint, "imp"))


def main(folder):
    rank, processes = dist.get_rank(), dist.get_world_size()
    whole = make_data()
    order = torch.randperm(len(whole), generator=torch.Generator().manual_seed(0))  # random parts cost no variance
    part = Subset(whole, order.chunk(processes)[rank].tolist())  # samples are counted in the order of ranks

    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 10)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    imp = emais.EMAISAuto(len(part), batch_size=PER_STEP // processes, process_group=dist.group.WORLD, sharded=True)
    imp.attach(optimizer)
    loader = imp.loader(part)
    if earlier := sorted(folder.glob("step-*")):
        load(earlier[-1], model, imp)

    start = imp.step
    while imp.step < start + STEPS:
        for (x, y), draw in loader:
            logits = model(x)
            losses = nn.functional.cross_entropy(logits, y, reduction="none")
            optimizer.zero_grad()
            imp.loss(losses, logits, draw).backward()
            optimizer.step()
            if imp.step == start + STEPS:
                break
    dcp.save({"model": model.state_dict(), "imp": imp.state_dict()}, checkpoint_id=folder / f"step-{imp.step:06}")
    if rank == 0:
        print(f"steps {start + 1} to {imp.step} on {processes} processes, {len(part)} samples here: {imp.summary()}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--folder", type=Path, required=True)
    given = parser.parse_args()
    dist.init_process_group("gloo")
    main(given.folder)
    dist.barrier()  # nobody leaves while another still talks
    dist.destroy_process_group()

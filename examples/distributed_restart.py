"""A run on several processes that goes on from its last checkpoint when one of them dies.

export TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1
torchrun --standalone --nproc-per-node 2 --max-restarts 3 examples/distributed_restart.py

Without this variable the processes of a new attempt may find the addresses of the dead ones (pytorch issue 135712).
--rdzv-backend c10d --rdzv-endpoint HOST:PORT does as well as --standalone. With --master-port a restart fails, with
plain DistributedDataParallel, too.
"""

import argparse
import os
import signal
from pathlib import Path

import torch
import torch.distributed as dist
from distributed_ddp import make_data
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import emais

STEPS, SAVE_EVERY, PER_STEP = 378, 50, 32


def save(path, parts):
    """Rank 0 alone: its state of the engine is complete. The old file stays until the new one is whole."""
    if dist.get_rank() == 0:
        torch.save({name: part.state_dict() for name, part in parts.items()}, path.with_suffix(".new"))
        path.with_suffix(".new").replace(path)


def train(path, kill_at=None):
    torch.manual_seed(0)
    dataset = make_data()
    model = DistributedDataParallel(nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 10)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    own = PER_STEP // dist.get_world_size()  # so that another number of processes can go on with the run
    imp = emais.EMAISAuto(len(dataset), batch_size=own, process_group=dist.group.WORLD, num_steps=STEPS)
    imp.attach(optimizer)

    parts = {"model": model.module, "optimizer": optimizer, "imp": imp}
    if path.exists():
        for name, state in torch.load(path).items():  # on every process
            parts[name].load_state_dict(state)
    begun = imp.step

    for (x, y), draw in imp.loader(dataset, num_workers=1):  # what is left of the steps
        if draw.step == kill_at and dist.get_rank() == 1 and os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
            os.kill(os.getpid(), signal.SIGKILL)  # to see what happens
        logits = model(x)
        losses = nn.functional.cross_entropy(logits, y, reduction="none")
        optimizer.zero_grad()
        imp.loss(losses, logits, draw).backward()
        optimizer.step()
        if draw.step % SAVE_EVERY == 0 or draw.step == STEPS:
            save(path, parts)

    if dist.get_rank() == 0:
        print(f"steps {begun + 1} to {imp.step}, S(W) {imp.diagnostics.score:.2f}")
        print(f"sum of weights {imp.sampler.total().hex()}, factor {imp.diagnostics.lr_scale.hex()}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--checkpoint", type=Path, default=Path("checkpoint.pt"))
    parser.add_argument("--kill-at", type=int, help="rank 1 kills itself at this step, in the first attempt")
    given = parser.parse_args()
    dist.init_process_group("gloo")
    train(given.checkpoint, given.kill_at)
    dist.barrier()  # nobody leaves while another still talks
    dist.destroy_process_group()

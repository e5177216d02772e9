"""Importance sampling with Ray Train: two workers, whose run goes on from its last checkpoint when one of them dies.

python examples/distributed_ray.py --storage /a/folder/that/all/workers/see --kill-at 130
"""

import argparse
import os
import signal
import tempfile
from pathlib import Path

import ray
import ray.train.torch
import torch
import torch.distributed as dist
from ray.train import Checkpoint, FailureConfig, RunConfig, ScalingConfig
from torch import nn
from torch.utils.data import TensorDataset

import emais

STEPS, SAVE_EVERY, PER_STEP = 378, 50, 32


def make_data(samples=2000):
    """Ten groups of points; a tenth of the labels is wrong. The same on every worker."""
    generator = torch.Generator().manual_seed(0)
    centres = torch.randn(10, 20, generator=generator)
    y = torch.randint(10, (samples,), generator=generator)
    x = centres[y] + torch.randn(samples, 20, generator=generator)
    wrong = torch.rand(samples, generator=generator) < 0.1
    return TensorDataset(x, torch.where(wrong, torch.randint(10, (samples,), generator=generator), y))


def train(config):
    torch.manual_seed(0)
    dataset = make_data()
    net = nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 10))
    model = ray.train.torch.prepare_model(net)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    own = PER_STEP // dist.get_world_size()  # so that another number of workers can go on with the run
    imp = emais.EMAISAuto(len(dataset), batch_size=own, process_group=dist.group.WORLD, num_steps=STEPS)
    imp.attach(optimizer)
    parts = {"model": net, "optimizer": optimizer, "imp": imp}
    if saved := ray.train.get_checkpoint():
        with saved.as_directory() as folder:
            for name, state in torch.load(Path(folder, "state.pt")).items():
                parts[name].load_state_dict(state)
    begun = imp.step

    for (x, y), draw in imp.loader(dataset, num_workers=1):  # what is left of the steps
        if draw.step == config["kill_at"] and dist.get_rank() == 1 and not saved:
            os.kill(os.getpid(), signal.SIGKILL)  # to see what happens
        logits = model(x)
        losses = nn.functional.cross_entropy(logits, y, reduction="none")
        optimizer.zero_grad()
        imp.loss(losses, logits, draw).backward()
        optimizer.step()
        if draw.step % SAVE_EVERY == 0 or draw.step == STEPS:
            with tempfile.TemporaryDirectory() as folder:
                if dist.get_rank() == 0:  # its state of the engine is complete
                    torch.save({name: part.state_dict() for name, part in parts.items()}, Path(folder, "state.pt"))
                whole = Checkpoint.from_directory(folder) if dist.get_rank() == 0 else None
                ray.train.report({"step": imp.step, "S(W)": imp.diagnostics.score}, checkpoint=whole)
    numbers = f"sum of weights {imp.sampler.total().hex()}, factor {imp.diagnostics.lr_scale.hex()}"
    return f"steps {begun + 1} to {imp.step}, S(W) {imp.diagnostics.score:.2f}\n{numbers}"


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--storage", required=True)
    parser.add_argument("--kill-at", type=int, help="worker 1 kills itself at this step, in the first attempt")
    given = parser.parse_args()
    ray.init(num_cpus=2, include_dashboard=False, object_store_memory=80 * 2**20)  # on a cluster: ray.init()
    run = RunConfig(name="emais", storage_path=given.storage, failure_config=FailureConfig(max_failures=1))
    two = {"scaling_config": ScalingConfig(num_workers=2), "run_config": run}
    print(ray.train.torch.TorchTrainer(train, train_loop_config=vars(given), **two).fit().return_value)

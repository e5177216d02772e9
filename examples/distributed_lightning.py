"""Importance sampling in Lightning on two processes: the same three lines as on one.

python examples/distributed_lightning.py
"""

import torch
import torch.distributed as dist
from distributed_ddp import make_data
from lightning.pytorch import LightningModule, Trainer
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader

import emais.lightning

PROCESSES, PER_PROCESS = 2, 16


class Classifier(LightningModule):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 10))

    def training_step(self, batch, batch_idx):
        x, y = batch
        logits = self.net(x)
        return emais.lightning.loss(self, cross_entropy(logits, y, reduction="none"), logits)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.05)


def main():
    sampling = emais.lightning.ImportanceSampling()
    options = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
    trainer = Trainer(
        accelerator="cpu", strategy="ddp", devices=PROCESSES, max_epochs=6, callbacks=[sampling], **options
    )
    torch.manual_seed(trainer.global_rank)  # augmentation differs between processes; DDP makes the models alike
    model = Classifier()
    trainer.fit(model, DataLoader(make_data(), batch_size=PER_PROCESS, shuffle=True, num_workers=1))

    weights = torch.cat([p.detach().flatten() for p in model.parameters()])
    told = [None] * trainer.world_size
    dist.all_gather_object(told, (sampling.engine.diagnostics.lr_scale, float(weights.double().sum())))
    if trainer.is_global_zero:
        d = sampling.engine.diagnostics
        print(f"{len(told)} processes, {d.batch_size} samples a step, S(W) {d.score:.2f}, N_ems {d.n_ems:.1f}")
        print(f"sum of weights {sampling.engine.sampler.total().hex()}, factor {d.lr_scale.hex()}")
        print(f"{trainer.global_step} steps; alike on all processes: {len(set(told)) == 1}")
    dist.barrier()  # before one of them closes its connections
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

"""A small Lightning module, its data and a quiet trainer, shared by the tests of the integration."""

import lightning.pytorch as pl
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import emais.lightning

M, N = 60, 5
PER_EPOCH = 12

# of Lightning itself, about this torch and about runs as small as these
quiet = [
    pytest.mark.filterwarnings("ignore:.*LeafSpec.*:FutureWarning"),
    pytest.mark.filterwarnings("ignore:.*does not have many workers"),
    pytest.mark.filterwarnings("ignore:.*callbacks used to create the checkpoint need to be provided"),
    pytest.mark.filterwarnings("ignore:.*`validation_step` but have no `val_dataloader`"),
]
# of a fit that is to be as short as its warm-up
brief = pytest.mark.filterwarnings("ignore:.*all within the warm-up")


def data(num_samples=M):
    x = torch.randn(num_samples, 6, generator=torch.Generator().manual_seed(3), dtype=torch.float32)
    return TensorDataset(x, (x[:, 0] > 0).long() + (x[:, 1] > 1).long())


def train_loader(dataset=None, **options):
    return DataLoader(dataset or data(), **{"batch_size": N, "shuffle": True} | options)


class Net(pl.LightningModule):
    """A linear classifier that keeps the batches it was trained on."""

    def __init__(self, optimizer="SGD", schedule=True):
        super().__init__()
        torch.manual_seed(0)
        self.net = nn.Linear(6, 3)
        self.optimizer, self.schedule, self.batches = optimizer, schedule, []

    def outputs(self, batch):
        logits = self.net(batch[0])
        return nn.functional.cross_entropy(logits, batch[1], reduction="none"), logits

    def training_step(self, batch, batch_idx):
        self.batches.append(batch)
        return emais.lightning.loss(self, *self.outputs(batch))

    def validation_step(self, batch, batch_idx):
        losses, logits = self.outputs(batch)
        loss = emais.lightning.loss(self, losses, logits)
        assert torch.equal(loss, losses.mean())
        self.log("val", loss, sync_dist=True)

    def configure_optimizers(self):
        kind, lr = {"SGD": (torch.optim.SGD, 0.1), "AdamW": (torch.optim.AdamW, 0.01)}[self.optimizer]
        optimizer = kind(self.parameters(), lr=lr)
        if not self.schedule:
            return optimizer
        scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, self.trainer.estimated_stepping_batches)
        return [optimizer], [{"scheduler": scheduler, "interval": "step"}]


def sampling(**settings):
    """A callback that is past its warm-up after one epoch: most of a short run draws from what it has learned."""
    return emais.lightning.ImportanceSampling("emais", **{"warmup_epochs": 1} | settings)


QUIET = {
    "logger": False,
    "enable_checkpointing": False,
    "enable_progress_bar": False,
    "enable_model_summary": False,
    "accelerator": "cpu",
    "max_epochs": 3,
}


def trainer(*callbacks, **options):
    return pl.Trainer(**QUIET | options, callbacks=list(callbacks))


def parameters(module):
    return torch.cat([p.detach().flatten() for p in module.parameters()])

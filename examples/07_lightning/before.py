"""A classifier in Lightning, without importance sampling (before.py) and with it (after.py): three lines differ."""

import torch
from lightning.pytorch import LightningModule, Trainer, seed_everything
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset, random_split


class Classifier(LightningModule):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 2))

    def training_step(self, batch, batch_idx):
        inputs, targets = batch
        logits = self.net(inputs)
        return cross_entropy(logits, targets)

    def validation_step(self, batch, batch_idx):
        inputs, targets = batch
        self.log("accuracy", (self.net(inputs).argmax(1) == targets).float().mean())

    def configure_optimizers(self):
        optimizer = torch.optim.SGD(self.parameters(), lr=0.05, momentum=0.9)
        scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, self.trainer.estimated_stepping_batches)
        return [optimizer], [{"scheduler": scheduler, "interval": "step"}]


seed_everything(0)
x = torch.randn(2400, 20)
y = (x[:, 0] + 0.3 * torch.randn(2400) > 0).long()
train, val = random_split(TensorDataset(x, y), [2000, 400])

options = {"accelerator": "cpu", "logger": False, "enable_checkpointing": False}
trainer = Trainer(max_epochs=10, **options)
trainer.fit(Classifier(), DataLoader(train, batch_size=50, shuffle=True), DataLoader(val, batch_size=200))
print({name: round(float(value), 3) for name, value in trainer.callback_metrics.items()})

"""Would importance sampling help? A pilot that leaves no trace, then the same question asked during plain training."""

import torch
from torch import nn
from torch.utils.data import TensorDataset

import emais

torch.manual_seed(0)
x = torch.randn(2000, 20)
y = (x[:, 0] + 0.3 * torch.randn(2000) > 0).long()
dataset = TensorDataset(x, y)
model = nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)


def per_sample_loss(model, batch):
    inputs, targets = batch
    logits = model(inputs)
    return nn.functional.cross_entropy(logits, targets, reduction="none"), logits


# a short run with importance sampling; afterwards model, optimizer and random states are as before
start = model[0].weight.clone()
finding = emais.audit(model, dataset, per_sample_loss, optimizer, batch_size=64, steps=640)
print(f"The pilot. {finding}\n")
assert torch.equal(model[0].weight, start)

# plain training, and what importance sampling would have done with it
imp = emais.create("audit", len(dataset), batch_size=64)
imp.attach(optimizer)
for _ in range(10):
    for batch, draw in imp.loader(dataset):
        losses, logits = per_sample_loss(model, batch)
        optimizer.zero_grad()
        imp.loss(losses, logits, draw).backward()
        optimizer.step()

print(f"Plain training, whose S(W) is {imp.diagnostics.score:.0f}. {imp.finding()}")
assert not imp.finding().measured

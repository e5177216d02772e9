"""Gradient accumulation: every minibatch is observed, and those of a step count as one large one."""

import torch
from torch import nn
from torch.utils.data import TensorDataset

import emais

torch.manual_seed(0)
x = torch.randn(1000, 10)
y = x[:, :3].argmax(1)
dataset = TensorDataset(x, y)
model = nn.Linear(10, 3)
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
accumulate = 4

imp = emais.EMAISAuto(len(dataset), batch_size=16, num_steps=400)
imp.attach(optimizer)  # AdamW: the root of the factor that SGD would have

for k, ((inputs, targets), draw) in enumerate(imp.loader(dataset), 1):
    logits = model(inputs)
    losses = nn.functional.cross_entropy(logits, targets, reduction="none")
    (imp.loss(losses, logits, draw) / accumulate).backward()
    if k % accumulate == 0:
        optimizer.step()
        optimizer.zero_grad()

report = imp.diagnostics
print(f"{report.batch_size} samples a step, worth {report.n_ems:.0f} uniform ones, S(W) {report.score:.2f}")
assert report.batch_size == 64

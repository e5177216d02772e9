"""The numbers of a run in TensorBoard: pip install tensorboard, then tensorboard --logdir out/tensorboard."""

import torch
from torch import nn
from torch.utils.data import TensorDataset
from torch.utils.tensorboard import SummaryWriter

import emais

torch.manual_seed(0)
x = torch.randn(2000, 20)
y = (x[:, 0] + 0.3 * torch.randn(2000) > 0).long()
model = nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
imp = emais.EMAISAuto(len(y), batch_size=64, num_steps=400)
imp.attach(optimizer)

with SummaryWriter("out/tensorboard") as writer, emais.Log(writer, imp, every=20) as log:
    for (inputs, targets), draw in imp.loader(TensorDataset(x, y)):
        logits = model(inputs)
        losses = nn.functional.cross_entropy(logits, targets, reduction="none")
        optimizer.zero_grad()
        loss = imp.loss(losses, logits, draw)
        loss.backward()
        optimizer.step()
        log.step(loss=loss.detach())  # read only where a row is written

print(imp.summary())
print("to look at it: tensorboard --logdir out/tensorboard")

"""Multi-label targets, gradients in closed form, and a refresh of all statistics from a forward pass."""

import torch
from torch import nn
from torch.utils.data import TensorDataset

import emais
from emais import functional as F

torch.manual_seed(0)
x = torch.randn(1200, 10)
y = (x[:, :4] + 0.5 * torch.randn(1200, 4) > 0.8).float()
dataset = TensorDataset(x, y)
model = nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
bce = nn.functional.binary_cross_entropy_with_logits

imp = emais.EMAIS(len(dataset), batch_size=40, num_steps=300)
imp.attach(optimizer)

for (inputs, targets), draw in imp.loader(dataset):
    logits = model(inputs)
    losses = bce(logits, targets, reduction="none").sum(1)  # one number per sample
    optimizer.zero_grad()
    grads = F.binary_cross_entropy_gradients(logits, targets)  # sigmoid(z) - y: no second pass through autograd
    imp.loss(losses, logits, draw, grads=grads).backward()
    optimizer.step()
    if draw.step % 100 == 0:  # the paper's additional updates: look at all samples, train on none
        with torch.no_grad():
            logits = model(x)
        losses = bce(logits, y, reduction="none").sum(1)
        imp.refresh(torch.arange(len(x)), losses, logits, grads=F.binary_cross_entropy_gradients(logits, y))

hardest = imp.scores.weights().topk(5).indices
print(f"S(W) {imp.diagnostics.score:.2f}; the five samples with the largest gradients: {hardest.tolist()}")

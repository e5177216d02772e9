"""A loop with accelerate that can be resumed, without importance sampling (before.py) and with it (after.py)."""

import torch
from accelerate import Accelerator
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
x = torch.randn(2000, 20)
y = (x[:, 0] + 0.3 * torch.randn(2000) > 0).long()
dataset = TensorDataset(x, y)
model = nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)

accelerator = Accelerator(mixed_precision="bf16")
loader = DataLoader(dataset, batch_size=64, shuffle=True)
model, optimizer, loader = accelerator.prepare(model, optimizer, loader)

for epoch in range(5):
    for inputs, targets in loader:
        logits = model(inputs)
        losses = nn.functional.cross_entropy(logits, targets, reduction="none")
        optimizer.zero_grad()
        accelerator.backward(losses.mean())
        optimizer.step()
    accelerator.save_state("out/accelerate")
    print(f"epoch {epoch}: loss {float(losses.detach().mean()):.3f}")

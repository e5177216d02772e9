"""A normal PyTorch loop without importance sampling (before.py) and with it (after.py): five lines and an import."""

import emais
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
x = torch.randn(2000, 20)
y = (x[:, 0] + 0.3 * torch.randn(2000) > 0).long()
dataset = TensorDataset(x, y)
model = nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=10)

imp = emais.EMAISAuto(num_samples=len(dataset), batch_size=64)  # 1  the engine
loader = imp.loader(DataLoader(dataset, batch_size=64, shuffle=True))  # 2  takes the options of the DataLoader over
imp.attach(optimizer)  # 3  each optimizer.step uses lr × factor; the rate itself is never changed

for epoch in range(10):
    for (inputs, targets), draw in loader:  # 4  a batch comes with its draw
        logits = model(inputs)
        losses = nn.functional.cross_entropy(logits, targets, reduction="none")
        optimizer.zero_grad()
        imp.loss(losses, logits, draw).backward()  # 5  instead of losses.mean()
        optimizer.step()
    scheduler.step()
    with torch.no_grad():
        print(f"epoch {epoch}: training loss {nn.functional.cross_entropy(model(x), y):.3f}")

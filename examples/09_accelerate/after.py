"""A loop with accelerate that can be resumed, without importance sampling (before.py) and with it (after.py)."""

import torch
from accelerate import Accelerator
from accelerate.utils import send_to_device
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import emais

torch.manual_seed(0)
x = torch.randn(2000, 20)
y = (x[:, 0] + 0.3 * torch.randn(2000) > 0).long()
dataset = TensorDataset(x, y)
model = nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)

accelerator = Accelerator(mixed_precision="bf16")
imp = emais.EMAISAuto(num_samples=len(dataset), batch_size=64)  # 1  the engine
loader = imp.loader(DataLoader(dataset, batch_size=64, shuffle=True))  # 2  takes the DataLoader over
model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
imp.attach(optimizer)  # 3  each optimizer.step uses lr × factor
accelerator.register_for_checkpointing(imp)  # save_state and load_state take the engine along

for epoch in range(5):
    for batch in loader:
        (inputs, targets), draw = send_to_device(batch, accelerator.device)  # 4  a batch comes with its draw
        logits = model(inputs)
        losses = nn.functional.cross_entropy(logits, targets, reduction="none")
        optimizer.zero_grad()
        accelerator.backward(imp.loss(losses, logits, draw))  # 5  instead of losses.mean()
        optimizer.step()
    accelerator.save_state("out/accelerate")
    print(f"epoch {epoch}: loss {float(losses.detach().mean()):.3f}")
print(imp.summary())

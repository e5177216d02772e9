"""A run that is stopped in the middle of an epoch and goes on from its checkpoint: same bits, and one log."""

import json
import tempfile
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import TensorDataset

import emais

g = torch.Generator().manual_seed(0)
x = torch.randn(2000, 20, generator=g)
dataset = TensorDataset(x, (x[:, 0] + 0.3 * torch.randn(2000, generator=g) > 0).long())
STEPS, SAVE_EVERY = 300, 70


def train(folder, stop_at=STEPS):
    """Train to the last step, from the checkpoint if there is one; stop_at: where the machine goes down."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, STEPS)
    imp = emais.EMAISAuto(len(dataset), batch_size=64, num_steps=STEPS)
    imp.attach(optimizer)
    run = {"model": model, "optimizer": optimizer, "scheduler": scheduler, "imp": imp}
    checkpoint = folder / "checkpoint.pt"
    if checkpoint.exists():
        for name, state in torch.load(checkpoint).items():
            run[name].load_state_dict(state)

    with emais.Log(folder / "run.jsonl", imp, every=20) as log:
        for (inputs, targets), draw in imp.loader(dataset):
            logits = model(inputs)
            losses = nn.functional.cross_entropy(logits, targets, reduction="none")
            optimizer.zero_grad()
            imp.loss(losses, logits, draw).backward()
            optimizer.step()
            scheduler.step()
            log.step(loss=losses.detach().mean())
            if draw.step % SAVE_EVERY == 0:
                torch.save({name: part.state_dict() for name, part in run.items()}, checkpoint)
            if draw.step == stop_at:
                break
    return model, imp


with tempfile.TemporaryDirectory() as place:
    whole, parts = Path(place) / "whole", Path(place) / "parts"
    whole.mkdir()
    parts.mkdir()
    straight, imp = train(whole)
    train(parts, stop_at=190)  # 50 steps after its last checkpoint
    resumed, _ = train(parts)
    logs = [(folder / "run.jsonl").read_text("utf-8") for folder in (whole, parts)]

same = all(torch.equal(a, b) for a, b in zip(straight.parameters(), resumed.parameters(), strict=True))
print(imp.summary())
print(f"the same parameters to the bit: {same}; the same log: {logs[0] == logs[1]}")
print(f"rows of the log at steps {[json.loads(line)['step'] for line in logs[1].splitlines()]}")

"""A loop with accelerate, on one process or as one of several: `torchrun accelerate_runs.py FOLDER`."""

import json
import sys
import warnings
from pathlib import Path

import torch
import torch.distributed as dist
from accelerate import Accelerator
from accelerate.utils import send_to_device
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import emais

STEPS, GLOBAL = 16, 10
CASES = {
    "sgd": (torch.optim.SGD, 1, 0),
    "adamw": (torch.optim.AdamW, 1, 0),
    "accumulated": (torch.optim.SGD, 2, 0),
    "workers": (torch.optim.SGD, 2, 1),
}


def dataset(num=200):
    x = torch.randn(num, 6, generator=torch.Generator().manual_seed(1))
    return TensorDataset(x, (x[:, 0] > 0.3).long())


class Run:
    """A loop as a user would write it."""

    def __init__(self, optimizer, accumulate, workers):
        self.accelerator = Accelerator(cpu=True, gradient_accumulation_steps=accumulate)
        processes, data = self.accelerator.num_processes, dataset()
        torch.manual_seed(self.accelerator.process_index)  # DDP makes the models alike
        model = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 2))
        optimizer = optimizer(model.parameters(), lr=0.05)
        group = dist.group.WORLD if processes > 1 else None
        size = GLOBAL // processes
        self.imp = emais.EMAIS(len(data), batch_size=size, warmup_epochs=0.3, seed=3, process_group=group)
        loader = self.imp.loader(DataLoader(data, batch_size=size, shuffle=True, num_workers=workers))
        self.model, self.optimizer, self.loader = self.accelerator.prepare(model, optimizer, loader)
        self.imp.attach(self.optimizer)
        self.accelerator.register_for_checkpointing(self.imp)
        self.seen = {}

    def train(self, folder=None):
        while self.imp.step < STEPS:
            for batch in self.loader:
                (x, y), draw = send_to_device(batch, self.accelerator.device)
                self.step(x, y, draw)
                if folder is not None and draw.step == STEPS // 2:
                    self.accelerator.save_state(str(folder))
                if draw.step == STEPS:
                    break
        return self.told()

    def step(self, x, y, draw):
        with self.accelerator.accumulate(self.model):
            logits = self.model(x)
            losses = nn.functional.cross_entropy(logits, y, reduction="none")
            self.accelerator.backward(self.imp.loss(losses, logits, draw))
            self.optimizer.step()
            self.optimizer.zero_grad()
        self.seen[str(draw.step)] = (draw.index.tolist(), draw.r.tolist())

    def told(self):
        weights = torch.cat([p.detach().flatten() for p in self.model.parameters()]).tolist()
        numbers = [self.imp.effective_steps, self.imp.diagnostics.n_ems, self.imp.diagnostics.batch_size]
        return {"seen": self.seen, "weights": weights, "numbers": numbers, "steps": self.imp.attached.steps}


def resumed(case, folder):
    run = Run(*CASES[case])
    run.accelerator.load_state(str(folder))
    return run.train()


def main(folder):
    """All cases, and resumed ones: from our own states, and from those of one process."""
    warnings.simplefilter("error")
    torch.set_num_threads(1)
    found = {}
    for case, settings in CASES.items():
        found[case] = Run(*settings).train(folder / "two" / case)
        found[f"{case}, again"] = resumed(case, folder / "two" / case)
        found[f"{case}, from one"] = resumed(case, folder / "one" / case)
    (folder / f"rank{dist.get_rank()}.json").write_text(json.dumps(found), "utf-8")
    dist.barrier()


if __name__ == "__main__":
    main(Path(sys.argv[1]))

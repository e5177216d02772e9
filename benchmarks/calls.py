"""The calls of one training step through the library: how many, in how many modules, and which.

    python benchmarks/calls.py

EMAIS, data and model on the CPU, no workers, after the warm-up: the step that docs/architecture.md walks through.
"""

from __future__ import annotations

import sys
from itertools import groupby, pairwise
from types import FrameType
from typing import Any

import torch
from torch.utils.data import TensorDataset

import emais

WATCHED = 70  # the step to look at
INSIDE = "/emais/"


def calls_of_a_step() -> list[tuple[str, str]]:
    """(module, function) of every call into the library, from one minibatch to the next."""
    found: list[tuple[str, str]] = []

    def note(frame: FrameType, event: str, arg: Any) -> None:
        _, inside, module = frame.f_code.co_filename.rpartition(INSIDE)
        if event == "call" and inside:
            found.append((module, getattr(frame.f_code, "co_qualname", frame.f_code.co_name)))

    x = torch.randn(600, 5)
    dataset, model = TensorDataset(x, (x[:, 0] > 0).long()), torch.nn.Linear(5, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    imp = emais.EMAIS(600, 20, num_steps=WATCHED + 2, warmup_epochs=1)
    imp.attach(optimizer)
    for (inputs, targets), draw in imp.loader(dataset):
        logits = model(inputs)
        losses = torch.nn.functional.cross_entropy(logits, targets, reduction="none")
        optimizer.zero_grad()
        imp.loss(losses, logits, draw).backward()
        optimizer.step()
        sys.setprofile(note if draw.step == WATCHED else None)
    return found


def main() -> None:
    found = calls_of_a_step()
    modules = [module for module, _ in found]
    for module, group in groupby(found, key=lambda call: call[0]):
        print(f"{module}: {', '.join(name for _, name in group)}")
    changes = sum(a != b for a, b in pairwise(modules))
    print(f"{len(found)} calls in {len(set(modules))} modules, with {changes} changes of module")


if __name__ == "__main__":
    main()

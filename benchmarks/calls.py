"""The calls of one training step through the library: how many, in how many modules, and which.

    python benchmarks/calls.py

EMAIS, data and model on the CPU, no workers, after the warm-up: the step that docs/architecture.md walks through.
"""

from __future__ import annotations

import sys
from itertools import groupby, pairwise
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from torch.utils.data import TensorDataset

import emais

WATCHED = 70  # the step to look at
INSIDE = Path(emais.__file__).parent


def calls_of_a_step() -> list[tuple[str, str]]:
    """(module, function) of every call into the library, from one minibatch to the next."""
    found: list[tuple[str, str]] = []

    def note(frame: FrameType, event: str, arg: Any) -> None:
        place = Path(frame.f_code.co_filename)
        inlined = frame.f_code.co_name.endswith(("comp>", "genexpr>"))  # comprehensions: from Python 3.12 on no calls
        if event == "call" and place.is_relative_to(INSIDE) and not inlined:
            module = place.relative_to(INSIDE).as_posix()
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


def counts(found: list[tuple[str, str]]) -> tuple[int, int, int]:
    """Calls, modules, and changes of module from one call to the next."""
    modules = [module for module, _ in found]
    return len(found), len(set(modules)), sum(a != b for a, b in pairwise(modules))


def group_reads(found: list[tuple[str, str]]) -> int:
    """Calls that are reads of a parameter group by the optimizer's step: without us, looks into a dict."""
    return sum(module == "rates/scaling.py" and name.endswith("__getitem__") for module, name in found)


def main() -> None:
    found = calls_of_a_step()
    for module, group in groupby(found, key=lambda call: call[0]):
        print(f"{module}: {', '.join(name for _, name in group)}")
    print("{} calls in {} modules, with {} changes of module;".format(*counts(found)))
    print(f"{group_reads(found)} of them are reads of the optimizer's parameter group")


if __name__ == "__main__":
    main()

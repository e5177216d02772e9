"""One run of one method, written as a user of the library would, and what is measured of it."""

from __future__ import annotations

import math
import time
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.lr_scheduler import CosineAnnealingLR, LinearLR, LRScheduler, SequentialLR

import emais
from emais.experiments.analysis.harm_runs import Entry, HarmRun, Tuned
from emais.experiments.runs.provenance import source_hash

from .data import Folders, Part, Split
from .problems import Problem

MOMENTUM = 0.9
FEW = 2000  # training samples that the loss before training is taken from


def train(
    problem: Problem,
    entry: Entry,
    setting: Tuned,
    seed: int,
    planned: int,
    folders: Folders | None = None,
    scale_decay: bool = True,
) -> HarmRun:
    """Train with a cosine of `planned` steps, and evaluate on all three parts. One seed: split, weights and draws.

    scale_decay: as of `Engine.attach`.
    """
    began = time.perf_counter()
    parts = problem.data(folders or Folders(), seed)
    torch.manual_seed(seed)
    model = problem.model()
    start_loss, _ = means(problem, model, (parts.train[0][:FEW], parts.train[1][:FEW]))
    imp, largest = fit(problem, entry, setting, seed, planned, parts.train, model, scale_decay)
    summary = imp.summary()
    return HarmRun(
        problem.name, entry.method, entry.form, seed, setting.rate, setting.decay, planned,
        steps=summary.steps,
        effective_steps=round(summary.effective_steps, 2),
        mean_factor=round(summary.effective_steps / summary.steps, 4),
        max_factor=round(largest, 4),
        max_r=round(summary.max_r, 4),
        start_loss=start_loss,
        **evaluated(problem, model, parts),
        seconds=round(time.perf_counter() - began, 3),
        source=source_hash(),
    )  # fmt: skip


def fit(
    problem: Problem,
    entry: Entry,
    setting: Tuned,
    seed: int,
    planned: int,
    part: Part,
    model: nn.Module,
    scale_decay: bool = True,
) -> tuple[emais.Engine, float]:
    """The training loop, to the end or to a loss that is not finite. Returns the engine and its largest factor."""
    x, y = part
    equal_progress = entry.form == "progress"
    imp = emais.create(
        entry.method, len(x), problem.batch_size, num_steps=planned, seed=seed, effective_steps=equal_progress
    )
    optimizer = torch.optim.SGD(model.parameters(), setting.rate, MOMENTUM, weight_decay=setting.decay)
    imp.attach(optimizer, scale_decay=scale_decay)
    scheduler = cosine(optimizer, planned, problem.warmup)
    schedule: Any = emais.EffectiveSchedule(scheduler, imp) if equal_progress else scheduler
    noise = torch.Generator().manual_seed(seed)
    largest = 0.0
    for _ in range(planned):
        draw = imp.draw()
        inputs = x[draw.index]
        logits = model(inputs if problem.augment is None else problem.augment(inputs, noise))
        loss = imp.loss(problem.losses(logits, y[draw.index]), logits, draw)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        largest = max(largest, float(imp.attached.applied))
        if imp.finished or not math.isfinite(loss.item()):
            break
    return imp, largest


def cosine(optimizer: torch.optim.Optimizer, planned: int, warmup: int) -> LRScheduler:
    """From the full rate to 0 in so many steps; before, where asked, a warm-up from almost 0."""
    if not warmup or warmup >= planned:
        return CosineAnnealingLR(optimizer, planned)
    rise = LinearLR(optimizer, start_factor=1 / warmup, total_iters=warmup)
    return SequentialLR(optimizer, [rise, CosineAnnealingLR(optimizer, planned - warmup)], [warmup])


def evaluated(problem: Problem, model: nn.Module, parts: Split) -> dict[str, float | None]:
    """Loss and error on each part."""
    found: dict[str, float | None] = {}
    for name, part in (("train", parts.train), ("valid", parts.valid), ("test", parts.test)):
        found[f"{name}_loss"], found[f"{name}_error"] = means(problem, model, part)
    return found


@torch.no_grad()
def means(problem: Problem, model: nn.Module, part: Part) -> tuple[float | None, float | None]:
    """Mean loss and mean error, without augmentation."""
    model.eval()
    x, y = part
    z = torch.cat([model(chunk) for chunk in x.split(1000)])
    model.train()
    return finite(problem.losses(z, y)), finite(problem.errors(z, y))


def finite(values: Tensor) -> float | None:
    """Their mean with six digits, if it is finite."""
    mean = values.double().mean().item()
    return float(f"{mean:.6g}") if math.isfinite(mean) else None

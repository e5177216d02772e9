"""Is the steady factor right? The factor that a run applied, beside the exact one in logit and in parameter space.

    python -m benchmarks.factor_check --sst2 FOLDER
    python -m benchmarks.factor_check --only breast-cancer,digits,digits-rare --rate-times 0.1

EMAIS-auto at equal progress on problems of the harm suite, seed 0. Now and then the run is halted, and the gradients of
all training samples are computed: with respect to the logits, which the rule uses, and to all parameters, which the
optimizer moves. From them and from the sampler's probabilities f = (B + (N - 1)|mu|^2) / (A + (N - 1)|mu|^2) follows
without noise (docs/math.md). Takes about ten minutes on one core; a line for each look goes into factor_check.jsonl.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path

import torch
from torch import Tensor, nn

import emais
from emais import functional as F
from emais.experiments.runs.provenance import source_hash

from .common import RESULTS
from .harm.__main__ import RESULTS as HARM
from .harm.data import Folders
from .harm.problems import PROBLEMS, Problem
from .harm.suite import Store, Suite
from .harm.training import MOMENTUM, cosine

FILE = RESULTS / "factor_check.jsonl"
CHOSEN = ("breast-cancer", "diabetes-outliers", "digits", "digits-rare", "sst2", "fmnist-short")
LOOKS = (0.25, 0.5, 0.75, 1.0)  # shares of the progress at which the run is halted
CHUNK = 250


def gradients(problem: Problem, model: nn.Module, x: Tensor, y: Tensor, logits: bool) -> Iterator[Tensor]:
    """Per-sample gradients (n, D) in float64, some samples at a time."""
    for inputs, targets in zip(x.split(CHUNK), y.split(CHUNK), strict=True):
        if logits:
            z = model(inputs).detach().requires_grad_()
            yield F.logit_gradients(problem.losses(z, targets), z).double()
        else:
            yield F.parameter_gradients(model, lambda z, t: problem.losses(z, t).sum(), inputs, targets).double()


def exact_factor(found: Iterator[Tensor], r: Tensor, batch_size: int) -> dict[str, float]:
    """f of these gradients under r = 1/(M p), and the share of the mean gradient in E|g_U|^2 of a minibatch."""
    squares, total = [], torch.zeros(1, dtype=torch.float64)
    for g in found:
        squares.append(g.square().sum(1))
        total = total + g.sum(0)
    square = torch.cat(squares)
    uniform, drawn = square.mean(), (r * square).mean()
    mean = (batch_size - 1) * (total / len(square)).square().sum()
    return {"factor": float((uniform + mean) / (drawn + mean)), "share": float(mean / (uniform + mean))}


def looks(problem: Problem, rate: float, decay: float, folders: Folders) -> Iterator[dict[str, object]]:
    """Train one run, and look at it."""
    x, y = problem.data(folders, 0).train
    torch.manual_seed(0)
    model = problem.model()
    imp = emais.EMAISAuto(len(x), problem.batch_size, num_steps=problem.steps, effective_steps=True)
    optimizer = torch.optim.SGD(model.parameters(), rate, MOMENTUM, weight_decay=decay)
    imp.attach(optimizer)
    schedule = emais.EffectiveSchedule(cosine(optimizer, problem.steps, problem.warmup), imp)
    left = list(LOOKS)
    while not imp.finished:
        draw = imp.draw()
        z = model(x[draw.index])
        optimizer.zero_grad()
        imp.loss(problem.losses(z, y[draw.index]), z, draw).backward()
        optimizer.step()
        schedule.step()
        if imp.effective_steps >= left[0] * problem.steps:
            r = 1 / (len(x) * imp.probabilities())
            spaces = {"logits": True, "parameters": False}
            exact = {
                name: exact_factor(gradients(problem, model, x, y, logits), r, problem.batch_size)
                for name, logits in spaces.items()
            }
            yield {"progress": left.pop(0), "step": imp.step, "applied": float(imp.attached.applied), **exact}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.factor_check", description=__doc__)
    parser.add_argument("--only", default=",".join(CHOSEN), help="problems, with commas between them")
    parser.add_argument("--rate-times", type=float, default=1.0, help="a multiple of SGD's tuned rate to train with")
    parser.add_argument("--fmnist", type=Path, default=None, help="folder of Fashion-MNIST's four files")
    parser.add_argument("--sst2", type=Path, default=None, help="folder of SST-2's train.tsv")
    args = parser.parse_args()
    torch.set_num_threads(1)
    folders = Folders(args.fmnist, args.sst2)
    suite = Suite(Store(HARM), folders)
    for name in args.only.split(","):
        setting = suite.tuned(PROBLEMS[name])
        for found in looks(PROBLEMS[name], args.rate_times * setting.rate, setting.decay, folders):
            row = {"problem": name, "rate_times": args.rate_times, **found, "source": source_hash()}
            with FILE.open("a", encoding="utf-8") as file:
                file.write(json.dumps(row) + "\n")
            print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()

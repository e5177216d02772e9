"""The audit beside real runs: is the N_ems that it says the N_ems that a run with importance sampling has?

    nice -n 19 python benchmarks/audit.py --sst2 FOLDER    # writes results/audit.jsonl, in some minutes on one core

Four runs for each problem and seed, from the same initial weights, at a constant learning rate:

    projected   create("audit"): plain training, and its finding
    same rate   emais-auto with rule="none": the real run that differs from it in nothing but the draws
    real        emais-auto with its own learning-rate rule, as a user would train
    pilot       emais.audit, with draws of another seed than those of the real runs

docs/guides/audit.md has the table.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from common import RESULTS, hardware
from harm import data, problems
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.utils.data import TensorDataset

import emais
from emais.experiments.data import load
from emais.experiments.runs.provenance import source_hash
from emais.experiments.train.loop import initialised
from emais.experiments.train.models import SMALL

FILE = RESULTS / "audit.jsonl"
KINDS = ("projected", "same rate", "real", "pilot")
OTHER_DRAWS = 1000  # added to the seed of a pilot


@dataclass(frozen=True)
class Problem:
    """Data, network and settings; epochs: after which of them N_ems of the latest is written down."""

    name: str
    part: Callable[[Path | None], tuple[Tensor, Tensor]]
    model: Callable[[], nn.Module]
    batch_size: int
    rate: float
    decay: float
    epochs: tuple[int, ...]


def images(name: str) -> Callable[[Path | None], tuple[Tensor, Tensor]]:
    def part(folder: Path | None) -> tuple[Tensor, Tensor]:
        found = load(name)
        return found.scaled(found.x_train), found.y_train

    return part


PROBLEMS = (
    Problem("digits, rate 0.01", images("digits"), SMALL["perceptron"], 32, 0.01, 1e-4, (5, 10, 20)),
    Problem("digits, rate 0.1", images("digits"), SMALL["perceptron"], 32, 0.1, 1e-4, (5, 10, 20)),
    Problem("SST-2, rate 0.3", data.sentences, problems.Bag, 128, 0.3, 1e-4, (3, 4, 5)),
    Problem("Fashion-MNIST, rate 0.01", images("fmnist"), SMALL["lenet5"], 128, 0.01, 1e-3, (3, 4, 5)),
)


def runs(problem: Problem, dataset: TensorDataset, seed: int) -> Iterator[dict[str, object]]:
    """All four, epoch by epoch; a pilot for each epoch would take too long, so that it has the last alone."""
    for kind in KINDS[:3]:
        for epoch, found, seconds in trained(problem, dataset, kind, seed):
            yield {"kind": kind, "epoch": epoch, **found, "seconds": round(seconds, 2)}
    steps, start = problem.epochs[-1] * epoch_steps(problem, dataset), time.perf_counter()
    model, optimizer = made(problem, seed)
    finding = emais.audit(
        model, dataset, losses_of, optimizer, batch_size=problem.batch_size, steps=steps, seed=seed + OTHER_DRAWS
    )
    seconds = round(time.perf_counter() - start, 2)
    yield {"kind": "pilot", "epoch": problem.epochs[-1], **numbers(finding), "seconds": seconds}


def trained(
    problem: Problem, dataset: TensorDataset, kind: str, seed: int
) -> Iterator[tuple[int, dict[str, float], float]]:
    """One run: after each of the epochs asked for, its number, what N_ems was, and the seconds so far."""
    model, optimizer = made(problem, seed)
    method = "audit" if kind == "projected" else "emais-auto"
    imp = emais.create(method, len(dataset), problem.batch_size, seed=seed)
    imp.attach(optimizer, "none" if kind == "same rate" else None)
    loader, start = imp.loader(dataset), time.perf_counter()
    for epoch in range(1, problem.epochs[-1] + 1):
        for batch, draw in loader:
            optimizer.zero_grad()
            imp.loss(*losses_of(model, batch), draw).backward()
            optimizer.step()
        if epoch in problem.epochs:
            found = numbers(imp.finding()) if isinstance(imp, emais.Audit) else {"n_ems": imp.summary().n_ems}
            yield epoch, found, time.perf_counter() - start


def made(problem: Problem, seed: int) -> tuple[nn.Module, torch.optim.Optimizer]:
    model = initialised(problem.model, seed)
    return model, torch.optim.SGD(model.parameters(), problem.rate, 0.9, weight_decay=problem.decay)


def losses_of(model: nn.Module, batch: list[Tensor]) -> tuple[Tensor, Tensor]:
    logits = model(batch[0])
    return cross_entropy(logits, batch[1], reduction="none"), logits


def numbers(finding: emais.Finding) -> dict[str, float]:
    return {name: getattr(finding, name) for name in ("n_ems", "n_ems_low", "n_ems_high", "bound")}


def epoch_steps(problem: Problem, dataset: TensorDataset) -> int:
    return math.ceil(len(dataset) / problem.batch_size)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sst2", type=Path, help="folder with train.tsv of SST-2")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--out", type=Path, default=FILE)
    args = parser.parse_args()
    torch.set_num_threads(1)
    shared = {"source": source_hash(), **hardware()}
    with args.out.open("w", encoding="utf-8") as file:
        for problem in PROBLEMS:
            dataset = TensorDataset(*problem.part(args.sst2))
            for seed in range(args.seeds):
                for found in runs(problem, dataset, seed):
                    named = {"problem": problem.name, "batch_size": problem.batch_size, "seed": seed}
                    file.write(json.dumps(named | found | shared) + "\n")
                    file.flush()


if __name__ == "__main__":
    main()

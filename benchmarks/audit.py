"""The audit beside real runs: is the N_ems that it says the N_ems that a run with importance sampling has?

    nice -n 19 python benchmarks/audit.py --sst2 FOLDER    # writes results/audit.jsonl, in an hour on one core
    nice -n 19 python benchmarks/audit.py --only digits    # replaces these problems in it, in a minute
    nice -n 19 python benchmarks/audit.py --rates          # writes results/audit_rates.jsonl, in two minutes

Four runs for each problem and seed, from the same initial weights, at a constant learning rate:

    projected   create("audit"): plain training, and its finding
    same rate   emais-auto with rule="none": the real run that differs from it in nothing but the draws
    real        emais-auto with its own learning-rate rule, as a user would train
    pilot       emais.audit, with draws of another seed than those of the real runs

Of an audit, n_ems_low and n_ems_high are the 95 % interval from minibatch to minibatch alone, and `before` is n_ems of
the steps before. The model error of a projection, `Stretch.likely`, was fitted to these runs and to two seeds (3, 4) of
the digits at the rates and sizes of `RATES`. --rates trains other seeds of those, as a check: projected and same rate.

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
from emais.observing.stretch import NORMAL

FILE, RATES_FILE = RESULTS / "audit.jsonl", RESULTS / "audit_rates.jsonl"
KINDS = ("projected", "same rate", "real", "pilot")
OTHER_DRAWS = 1000  # added to the seed of a pilot
UNUSED = 5  # the first seed that nothing was fitted to


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

RATES = tuple(
    Problem(f"digits, N = {n}, rate {rate}", images("digits"), SMALL["perceptron"], n, rate, 1e-4, (3, 5, 10, 20))
    for rate in (0.003, 0.03, 0.1, 0.2)
    for n in (16, 32, 128)
)


def runs(problem: Problem, dataset: TensorDataset, seed: int, kinds: tuple[str, ...]) -> Iterator[dict[str, object]]:
    """All of them, epoch by epoch; a pilot for each epoch would take too long, so that it has the last alone."""
    for kind in kinds[:3]:
        for epoch, found, seconds in trained(problem, dataset, kind, seed):
            yield {"kind": kind, "epoch": epoch, **found, "seconds": round(seconds, 2)}
    if "pilot" not in kinds:
        return
    steps, start = problem.epochs[-1] * epoch_steps(problem, dataset), time.perf_counter()
    model, optimizer = made(problem, seed)
    finding = emais.audit(
        model, dataset, losses_of, optimizer, batch_size=problem.batch_size, steps=steps, seed=seed + OTHER_DRAWS
    )
    seconds = round(time.perf_counter() - start, 2)
    yield {"kind": "pilot", "epoch": problem.epochs[-1], **numbers(finding), "seconds": seconds}


def trained(
    problem: Problem, dataset: TensorDataset, kind: str, seed: int
) -> Iterator[tuple[int, dict[str, float | None], float]]:
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


def numbers(finding: emais.Finding) -> dict[str, float | None]:
    factor, before = math.exp(NORMAL * finding.error), finding.n_ems - finding.trend
    limits = {"n_ems_low": finding.n_ems / factor, "n_ems_high": finding.n_ems * factor, "bound": finding.bound}
    return {"n_ems": finding.n_ems, **limits, "before": None if math.isnan(before) else before}


def epoch_steps(problem: Problem, dataset: TensorDataset) -> int:
    return math.ceil(len(dataset) / problem.batch_size)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sst2", type=Path, help="folder with train.tsv of SST-2")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--only", default="", help="problems whose names begin so; the others' rows stay")
    parser.add_argument("--rates", action="store_true", help="the digits at more rates and sizes")
    parser.add_argument("--out", type=Path, help="(default: under results)")
    args = parser.parse_args()
    torch.set_num_threads(1)
    shared = {"source": source_hash(), **hardware()}
    problems, kinds, first = (RATES, KINDS[:2], UNUSED) if args.rates else (PROBLEMS, KINDS, 0)
    out = args.out or (RATES_FILE if args.rates else FILE)
    before = read(out)
    with out.open("w", encoding="utf-8") as file:
        for problem in problems:
            if not problem.name.startswith(args.only):
                file.writelines(line for line in before if json.loads(line)["problem"] == problem.name)
                continue
            dataset = TensorDataset(*problem.part(args.sst2))
            for seed in range(first, first + args.seeds):
                for found in runs(problem, dataset, seed, kinds):
                    named = {"problem": problem.name, "batch_size": problem.batch_size, "seed": seed}
                    file.write(json.dumps(named | found | shared) + "\n")
                    file.flush()


def read(path: Path) -> list[str]:
    return path.read_text("utf-8").splitlines(keepends=True) if path.is_file() else []


if __name__ == "__main__":
    main()

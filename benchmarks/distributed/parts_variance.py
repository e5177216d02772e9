"""What parts do to the variance of the gradient, on real gradients: random, sorted and unequal parts, K from 2 to 1024.

    python -m benchmarks.distributed.parts_variance [--steps 1500] [--out FOLDER]

EMAIS trains LeNet5 on Fashion-MNIST. Then the logit gradients of all samples and the weights that EMAIS has for them
give the trace of the variance exactly, without drawing anything: of one process that draws from all samples, and of K
processes that draw from parts. Each figure is their ratio; below 1, parts have the smaller variance.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy
from torch.utils.data import TensorDataset

import emais
from benchmarks.common import hardware, save
from emais.experiments.data import load
from emais.experiments.train.loop import initialised
from emais.experiments.train.models import LeNet5
from emais.functional import logit_gradients

N, SEEDS = 128, 5
PROCESSES = (2, 4, 8, 16, 64, 256, 1024)
Cut = Callable[[int, np.random.Generator], list[np.ndarray]]


def trained(x: Tensor, y: Tensor, steps: int) -> tuple[np.ndarray, np.ndarray]:
    """Gradients (M, D) and weights (M,) at the end of a run."""
    net = initialised(LeNet5, 0)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9, weight_decay=1e-3)
    imp = emais.EMAIS(len(x), batch_size=N, num_steps=steps)
    imp.attach(optimizer)
    for (inputs, targets), draw in imp.loader(TensorDataset(x, y)):
        logits = net(inputs)
        losses = cross_entropy(logits, targets, reduction="none")
        optimizer.zero_grad()
        imp.loss(losses, logits, draw).backward()
        optimizer.step()
    found = []
    for inputs, targets in zip(x.split(4096), y.split(4096), strict=True):
        z = net(inputs).detach().requires_grad_()
        found.append(logit_gradients(cross_entropy(z, targets, reduction="none"), z))
    return torch.cat(found).double().numpy(), imp.scores.weights().double().numpy()


def trace(g: np.ndarray, w: np.ndarray, parts: list[np.ndarray]) -> float:
    """mean over parts of (E|r g|^2 - |mu_k|^2), drawn in proportion to w in each; r holds K M_k/M."""
    found = []
    for part in parts:
        c, own, weights = len(parts) * len(part) / len(g), g[part], w[part]
        second = (c / len(part)) ** 2 * ((own**2).sum(1) / weights).sum() * weights.sum()
        mean = c * own.mean(0)
        found.append(second - mean @ mean)
    return float(np.mean(found))


def ways(labels: np.ndarray, norms: np.ndarray) -> dict[str, Cut]:
    """How samples are cut into K parts."""
    samples, by_class, by_norm = np.arange(len(labels)), labels.argsort(kind="stable"), norms.argsort(kind="stable")

    def unequal(k: int, rng: np.random.Generator) -> list[np.ndarray]:
        """Random parts; the largest has four times the samples of the smallest."""
        sizes = np.linspace(1, 4, k)
        cuts = (np.cumsum(sizes) / sizes.sum() * len(samples)).astype(int)[:-1]
        return np.split(rng.permutation(samples), cuts)

    return {
        "random": lambda k, rng: np.array_split(rng.permutation(samples), k),
        "unequal": unequal,
        "sorted by class": lambda k, rng: np.array_split(by_class, k),
        "sorted by norm": lambda k, rng: np.array_split(by_norm, k),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=1500)
    parser.add_argument("--out", type=Path, default=None)
    args = parser.parse_args()
    data = load("fmnist")
    x, y = data.scaled(data.x_train), data.y_train
    g, w = trained(x, y, args.steps)
    M, uniform = len(g), np.ones(len(g))
    whole, plain = (trace(g, weights, [np.arange(M)]) for weights in (w, uniform))
    rows: list[dict[str, object]] = [
        {"cut": "none", "processes": 1, "tr_is": whole, "tr_unif": plain, "steps": args.steps, "hardware": hardware()}
    ]
    for name, cut in ways(y.numpy(), np.linalg.norm(g, axis=1)).items():
        for k in PROCESSES:
            seeds = range(SEEDS if name in ("random", "unequal") else 1)
            ratios = [trace(g, w, cut(k, np.random.default_rng(seed))) / whole for seed in seeds]
            formula = 1 - (k - 1) / (M - 1)
            row = {"cut": name, "processes": k, "ratio": float(np.mean(ratios)), "seeds": len(ratios)}
            rows.append(row | {"low": min(ratios), "high": max(ratios), "formula": formula})
            spread = f"({min(ratios):.4f} to {max(ratios):.4f})"
            print(f"{name:16} K={k:<5} {np.mean(ratios):.4f} {spread}; formula {formula:.4f}", flush=True)
    save("parts_variance.jsonl", rows, args.out)


if __name__ == "__main__":
    main()

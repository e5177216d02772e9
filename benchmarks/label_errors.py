"""How many flipped labels are at the top of `imp.samples()`, beside the plain loss of the same run.

python benchmarks/label_errors.py [--steps T] [--seeds K] [--out FOLDER]

Fashion-MNIST with 2 % of its training labels replaced by another class, LeNet5, one core. Every sample is ranked at the
end of the run by what the method has kept of it, and by its loss under the final network.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
from common import hardware, save
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.utils.data import TensorDataset

import emais
from emais.experiments.data import load
from emais.experiments.train.loop import initialised
from emais.experiments.train.models import LeNet5

METHODS = ("emais", "emais-auto")
SHARE = 0.02
TOPS = (100, 300, 1200)
N = 128


def flipped(labels: Tensor, classes: int, seed: int) -> tuple[Tensor, Tensor]:
    """Labels of which a share is replaced by another class, and which ones those are."""
    generator = torch.Generator().manual_seed(seed)
    wrong = torch.randperm(len(labels), generator=generator)[: round(SHARE * len(labels))]
    shift = torch.randint(1, classes, (len(wrong),), generator=generator)
    noisy = labels.clone()
    noisy[wrong] = (labels[wrong] + shift) % classes
    is_wrong = torch.zeros(len(labels), dtype=torch.bool)
    is_wrong[wrong] = True
    return noisy, is_wrong


def trained(method: str, x: Tensor, y: Tensor, steps: int, seed: int) -> tuple[emais.Engine, nn.Module]:
    """The engine and the network at the end of a run."""
    net = initialised(LeNet5, seed)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9, weight_decay=1e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    imp = emais.create(method, len(x), batch_size=N, num_steps=steps, seed=seed)
    imp.attach(optimizer)
    for (inputs, targets), draw in imp.loader(TensorDataset(x, y)):
        logits = net(inputs)
        losses = cross_entropy(logits, targets, reduction="none")
        optimizer.zero_grad()
        imp.loss(losses, logits, draw).backward()
        optimizer.step()
        schedule.step()
    return imp, net


@torch.no_grad()
def losses_of(net: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    """The loss of every sample under the final network."""
    parts = zip(x.split(2000), y.split(2000), strict=True)
    return torch.cat([cross_entropy(net(a), b, reduction="none") for a, b in parts])


def precision(order: Tensor, is_wrong: Tensor) -> dict[str, float]:
    """The share of flipped labels among the first of the list, in percent."""
    return {str(top): round(100 * is_wrong[order[:top]].double().mean().item(), 2) for top in TOPS}


def measured(method: str, x: Tensor, y: Tensor, steps: int, seed: int) -> list[dict[str, object]]:
    """A row for each way to rank the samples of one run."""
    noisy, is_wrong = flipped(y, 10, seed)
    imp, net = trained(method, x, noisy, steps, seed)
    found = imp.samples(max(TOPS))
    lists = {"hardest": found.hardest, "unstable": found.unstable}
    orders = {name: torch.tensor([s.index for s in own]) for name, own in lists.items()}
    orders["loss"] = losses_of(net, x, noisy).argsort(descending=True)
    run = {"method": method, "seed": seed, "steps": steps, "never_seen": found.num_never_seen}
    return [run | {"ranked_by": name, "precision": precision(order, is_wrong)} for name, order in orders.items()]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=3000, help="of each run (default: 3000, 6.4 epochs)")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--out", type=Path, default=None)
    args = parser.parse_args()
    torch.set_num_threads(1)
    data = load("fmnist")
    x = data.scaled(data.x_train)
    rows: list[dict[str, object]] = []
    for seed in range(args.seeds):
        for method in METHODS:
            rows += measured(method, x, data.y_train, args.steps, seed)
            for row in rows[-3:]:
                print(seed, method, row["ranked_by"], row["precision"], flush=True)
            save("label_errors.jsonl", [row | {"hardware": hardware()} for row in rows], args.out)


if __name__ == "__main__":
    main()

"""The problems: data, network, minibatch size, number of steps, and what is tried in tuning."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from emais.experiments.train.models import LeNet5ReLU

from . import data
from .data import Folders, Split

RATES = (0.01, 0.03, 0.1, 0.3, 1.0)
DECAYS = (1e-4, 1e-3, 1e-2)
Augment = Callable[[Tensor, torch.Generator], Tensor]


@dataclass(frozen=True)
class Problem:
    """One problem. `data` takes the folders and the seed; `warmup`: steps until the full learning rate."""

    name: str
    data: Callable[[Folders, int], Split]
    model: Callable[[], nn.Module]
    batch_size: int = 32
    steps: int = 1500
    rates: tuple[float, ...] = RATES
    regression: bool = False
    augment: Augment | None = None
    warmup: int = 0

    def losses(self, z: Tensor, y: Tensor) -> Tensor:
        """The per-sample losses (n,): cross-entropy, or half the squared deviation."""
        if self.regression:
            return (z.squeeze(1) - y).square() / 2
        return nn.functional.cross_entropy(z, y, reduction="none")

    def errors(self, z: Tensor, y: Tensor) -> Tensor:
        """The per-sample errors (n,): 100 where the class is wrong, or the deviation without its sign."""
        return (z.squeeze(1) - y).abs() if self.regression else 100.0 * (z.argmax(1) != y)


# ---- networks


def perceptron(inputs: int, outputs: int, hidden: int = 64) -> Callable[[], nn.Module]:
    """A network with one hidden layer."""
    return lambda: nn.Sequential(nn.Linear(inputs, hidden), nn.ReLU(), nn.Linear(hidden, outputs))


class Bag(nn.Module):
    """The mean of the words' vectors, and a hidden layer."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.words = nn.Embedding(data.WORDS, width, padding_idx=0)
        self.head = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 2))

    def forward(self, words: Tensor) -> Tensor:
        """(n, length) numbers of words -> (n, 2) logits."""
        count = (words > 0).sum(1, keepdim=True).clamp(min=1)  # the vector of 0 is 0, and stays so
        logits: Tensor = self.head(self.words(words).sum(1) / count)
        return logits


# ---- data


def digits(folders: Folders, seed: int) -> Split:
    return data.split(data.table("digits"), seed)


def wrong_digits(share: float) -> Callable[[Folders, int], Split]:
    return lambda folders, seed: data.with_wrong_labels(digits(folders, seed), share, 10, seed)


def rare_digits(folders: Folders, seed: int) -> Split:
    return data.with_rare(digits(folders, seed), digit=8, share=0.01)


def repeated_digits(folders: Folders, seed: int) -> Split:
    return data.with_duplicates(digits(folders, seed), kept=400, repeated=100, times=10)


def breast_cancer(folders: Folders, seed: int) -> Split:
    return data.standardised(data.split(data.table("breast_cancer"), seed))


def wine(folders: Folders, seed: int) -> Split:
    return data.standardised(data.split(data.table("wine"), seed))


def diabetes(folders: Folders, seed: int) -> Split:
    return data.standardised(data.split(data.table("diabetes"), seed), targets=True)


def diabetes_outliers(folders: Folders, seed: int) -> Split:
    return data.with_outliers(diabetes(folders, seed), count=8, factor=8.0, seed=seed)


def fashion(count: int) -> Callable[[Folders, int], Split]:
    return lambda folders, seed: data.split(data.fashion(folders.fmnist), seed, (count, 3000, 5000))


def sentences(folders: Folders, seed: int) -> Split:
    return data.split(data.sentences(folders.sst2), seed, (8000, 3000, 5000))


def strong_noise(x: Tensor, generator: torch.Generator) -> Tensor:
    """So much noise that a sample's gradient norm says little about its next one."""
    return x + 0.7 * torch.randn(x.shape, generator=generator)


ALL = (  # cheapest first
    Problem("wine", wine, perceptron(13, 3), 16, 600),
    Problem("digits-n512", digits, perceptron(64, 10), 512, 300, rates=(0.03, 0.1, 0.3, 1.0, 3.0)),
    Problem("breast-cancer", breast_cancer, perceptron(30, 2), steps=1000),
    Problem("diabetes", diabetes, perceptron(10, 1), 32, 1000, (0.001, 0.003, 0.01, 0.03, 0.1), regression=True),
    Problem(
        "diabetes-outliers",
        diabetes_outliers,
        perceptron(10, 1),
        steps=1000,
        rates=(0.0003, 0.001, 0.003, 0.01, 0.03),
        regression=True,
    ),
    Problem("digits", digits, perceptron(64, 10)),
    Problem("digits-wrong10", wrong_digits(0.1), perceptron(64, 10)),
    Problem("digits-wrong40", wrong_digits(0.4), perceptron(64, 10)),
    Problem("digits-rare", rare_digits, perceptron(64, 2), rates=(0.03, 0.1, 0.3, 1.0, 3.0), warmup=150),
    Problem("digits-duplicates", repeated_digits, perceptron(64, 10)),
    Problem("digits-noise", digits, perceptron(64, 10), steps=2000, augment=strong_noise),
    Problem("sst2", sentences, Bag, steps=3000, rates=(0.03, 0.1, 0.3, 1.0, 3.0)),
    Problem("digits-n2", digits, perceptron(64, 10), 2, 5000, rates=(0.001, 0.003, 0.01, 0.03, 0.1)),
    Problem("digits-long", digits, perceptron(64, 10), steps=6000),
    Problem("fmnist-short", fashion(20_000), LeNet5ReLU, steps=2000),
    Problem("fmnist-long", fashion(5_000), LeNet5ReLU, steps=5000),
)
PROBLEMS = {problem.name: problem for problem in ALL}

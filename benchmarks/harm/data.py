"""The data: pools of samples, a split that depends on the seed, and what is done to the training part."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from emais.experiments.data import load

Part = tuple[Tensor, Tensor]  # inputs, targets
WORDS, LENGTH = 4096, 30  # of the sentences: size of the hashed vocabulary (0: no word), words that are read


@dataclass(frozen=True)
class Split:
    """Three parts that share no sample; those in `pool` are the samples' places in the pool, in the same order."""

    train: Part
    valid: Part
    test: Part
    pool: tuple[Tensor, Tensor, Tensor]


@dataclass(frozen=True)
class Folders:
    """Where the data are that do not come with scikit-learn; None: where `emais.experiments.data` looks for them."""

    fmnist: Path | None = None
    sst2: Path | None = None


class NotInstalled(Exception):
    """The data of a problem are not on this machine."""


def split(pool: Part, seed: int, sizes: Sequence[float | int] = (0.6, 0.2, 0.2)) -> Split:
    """Parts of these sizes (shares of the pool, or numbers of samples), drawn anew for each seed."""
    x, y = pool
    order = torch.from_numpy(np.random.default_rng((seed, 0)).permutation(len(x)))
    counts = [int(size * len(x)) if isinstance(size, float) else size for size in sizes]
    if sum(counts) > len(x):
        raise ValueError(f"{sum(counts)} samples were asked for, the pool has {len(x)}")
    places = order[: sum(counts)].split(counts)
    train, valid, test = ((x[place], y[place]) for place in places)
    return Split(train, valid, test, (places[0], places[1], places[2]))


# ---- pools


@cache
def table(name: str) -> Part:
    """One of scikit-learn's own tables: digits, breast_cancer, wine or diabetes."""
    from sklearn import datasets

    bunch: Any = getattr(datasets, f"load_{name}")()
    x = torch.from_numpy(np.asarray(bunch.data, np.float32))
    y = np.asarray(bunch.target)
    return (x / 16 if name == "digits" else x), torch.from_numpy(
        y.astype(np.float32 if name == "diabetes" else np.int64)
    )


@cache
def fashion(folder: Path | None) -> Part:
    """Fashion-MNIST's training images, from 0 to 1."""
    data = load("fmnist", folder)
    return data.scaled(data.x_train), data.y_train


@cache
def sentences(folder: Path | None) -> Part:
    """SST-2: hashed words and 0 or 1, from train.tsv, whose lines are sentence, tab, label."""
    path = None if folder is None else folder / "train.tsv"
    if path is None or not path.is_file():
        raise NotInstalled(f"no train.tsv of SST-2 ({path or 'no folder was given'}): give its folder with --sst2")
    lines = (line.rpartition("\t") for line in path.read_text("utf-8").splitlines()[1:])
    found = [(hashed(text), int(label)) for text, _, label in lines]
    return torch.tensor([words for words, _ in found]), torch.tensor([label for _, label in found])


def hashed(text: str) -> list[int]:
    """The first words as numbers from 1 on, filled up with 0."""
    words = text.lower().split()[:LENGTH]
    numbers = [int(hashlib.md5(word.encode()).hexdigest()[:8], 16) % (WORDS - 1) + 1 for word in words]
    return numbers + [0] * (LENGTH - len(numbers))


# ---- what is done to a split


def standardised(parts: Split, targets: bool = False) -> Split:
    """Inputs, and where asked targets, with mean 0 and deviation 1 over the training part."""

    def by_train(values: Tensor, like: Tensor) -> Tensor:
        return (values - like.mean(0)) / (like.std(0) + 1e-6)

    x, y = parts.train

    def part(own: Part) -> Part:
        return by_train(own[0], x), by_train(own[1], y) if targets else own[1]

    return replace(parts, train=part(parts.train), valid=part(parts.valid), test=part(parts.test))


def with_wrong_labels(parts: Split, share: float, classes: int, seed: int) -> Split:
    """A share of the training labels replaced by one of the other classes."""
    rng, (x, y) = np.random.default_rng((seed, 1)), parts.train
    chosen = torch.from_numpy(rng.permutation(len(y))[: round(share * len(y))])
    y = y.clone()
    y[chosen] = (y[chosen] + torch.from_numpy(rng.integers(1, classes, len(chosen)))) % classes
    return replace(parts, train=(x, y))


def with_outliers(parts: Split, count: int, factor: float, seed: int) -> Split:
    """So many training targets multiplied by a factor."""
    rng, (x, y) = np.random.default_rng((seed, 2)), parts.train
    y = y.clone()
    y[torch.from_numpy(rng.permutation(len(y))[:count])] *= factor
    return replace(parts, train=(x, y))


def with_rare(parts: Split, digit: int, share: float) -> Split:
    """Is it this digit? It makes up `share` of the training part; the other parts keep all, or four would decide."""

    def part(own: Part) -> Part:
        return own[0], (own[1] == digit).long()

    x, y = part(parts.train)
    positive, negative = (y == 1).nonzero().squeeze(1), (y == 0).nonzero().squeeze(1)
    kept = torch.cat((positive[: round(share / (1 - share) * len(negative))], negative))
    return replace(parts, train=(x[kept], y[kept]), valid=part(parts.valid), test=part(parts.test))


def with_duplicates(parts: Split, kept: int, repeated: int, times: int) -> Split:
    """The first `kept` training samples, of which the first `repeated` come another so many times."""
    x, y = parts.train
    index = torch.cat((torch.arange(kept), torch.arange(repeated).repeat(times)))
    return replace(parts, train=(x[index], y[index]))

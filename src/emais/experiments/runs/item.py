"""A table or figure as the runs behind it, and the data sets, methods and lengths that many of them share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from ...errors import positive_int
from ..config import Config
from .product import Each

# the methods of a table
EVERY_METHOD = Each(
    "sgd-scan", "sgd-uni", "rais", "presampling", "confidence", "confvar", "self-paced", "emais", "emais-auto"
)  # the last is not the paper's
WITHOUT_CLASS = Each("sgd-scan", "sgd-uni", "rais", "presampling", "self-paced", "emais", "emais-auto")
WITH_ADAM = Each("sgd-scan", "sgd-uni", "rais", "emais", "emais-auto")
MAIN_METHODS = Each("sgd-scan", "rais", "emais", "emais-auto")
EMAIS_BOTH = Each("emais", "emais-auto")

# how each data set is trained
FMNIST = {"data": "fmnist", "model": "lenet5", "weight_decay": 1e-3}
FMNIST_RELU = {"data": "fmnist", "model": "lenet5-relu", "weight_decay": 1e-3}
CIFAR10 = {"data": "cifar10", "model": "resnet18", "lr": 0.1}
CHEST = {"data": "chestxray14", "model": "resnet50", "lr": 0.1, "weight_decay": 1e-4}
DECAYS = Each(1e-4, 5e-4)  # of CIFAR-10
LENGTHS = {
    "fmnist": Each(6250, 12500, 25000),
    "cifar10": Each(17500, 35000),
    "chestxray14": Each(1000, 2000, 4000),
}

# variants of a method
ONE_CANDIDATE: dict[str, Any] = {"method": "emais-auto", "factors": Each(1, 0.3, 0.1, 0.03), "powers": 1}  # tau = c t
# three methods as they were in the first study
RAIS_EFFECTIVE: dict[str, Any] = {"method": "rais", "schedule": "effective"}
SELF_PACED_FROM_START: dict[str, Any] = {"method": "self-paced", "warmup_epochs": 0}
AUTO_TWO_POWERS: dict[str, Any] = {"method": "emais-auto", "powers": (1, 0.5)}

HELD_OUT = 100  # seeds from here on are kept for what was chosen with the others, and are in no other table


@dataclass(frozen=True)
class Item:
    """A table or figure: its label, what it shows, and the settings behind it, as configurations with any seed.

    needs: what a record must have to count; records from before it was measured do not have it. held_out: whether its
    seeds are those from `HELD_OUT` on.
    """

    label: str
    title: str
    settings: tuple[Config, ...]
    needs: str = ""
    held_out: bool = False

    @property
    def beyond(self) -> bool:
        """Whether it is not in the paper, whose labels all have a colon."""
        return ":" not in self.label

    def configs(self, seeds: int = 5) -> list[Config]:
        """All runs, for seeds 0 to seeds - 1, or as many of those held out."""
        positive_int("seeds", seeds)
        first = HELD_OUT if self.held_out else 0
        found = [replace(config, seed=seed) for config in self.settings for seed in range(first, first + seeds)]
        return list({config.key(): config for config in found}.values())

    def holds(self, record: Mapping[str, Any]) -> bool:
        """Whether a record may be one of its runs, by its seed and by what it has measured."""
        return (not self.needs or self.needs in record) and bool((record["seed"] >= HELD_OUT) == self.held_out)

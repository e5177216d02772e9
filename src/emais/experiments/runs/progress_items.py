"""The tables of equal progress: a run that ends when its effective steps reach T, and what it is compared with."""

from __future__ import annotations

from typing import Any

from ..config import Config
from .item import AUTO_TWO_POWERS, CIFAR10, FMNIST, FMNIST_RELU, Item
from .product import Each, runs

AT_EQUAL_PROGRESS: dict[str, Any] = {"method": "emais-auto", "rule": "steady", "schedule": "progress"}
SHORTENED: dict[str, Any] = {"method": "sgd-scan", "follow": "progress"}
# SGD-Scan's best rate and weight decay of those tried, for each network
TUNED_LENET5: dict[str, Any] = {**FMNIST, "lr": 0.1, "num_steps": Each(12500, 25000)}
TUNED_RELU: dict[str, Any] = {**FMNIST_RELU, "lr": 0.03, "num_steps": Each(12500, 25000)}
TUNED_CIFAR10: dict[str, Any] = {**CIFAR10, "weight_decay": 5e-4, "num_steps": 17500}
PAPER_RATE: dict[str, Any] = {**FMNIST, "lr": 0.01, "num_steps": 12500}  # a tenth of the best
SHORT_LENET5: dict[str, Any] = {**FMNIST, "lr": 0.01, "num_steps": 6250}
SHORT_RELU: dict[str, Any] = {**FMNIST_RELU, "lr": 0.01, "num_steps": 6250}
PROGRESS_BLOCKS = (TUNED_LENET5, TUNED_RELU, TUNED_CIFAR10, PAPER_RATE)


def beside_each_other(block: dict[str, Any]) -> tuple[Config, ...]:
    """SGD-Scan, EMAIS-auto at equal progress, and SGD-Scan shortened to as many steps."""
    return runs(**block, method="sgd-scan") + runs(**block, **AT_EQUAL_PROGRESS) + runs(**block, **SHORTENED)


EQUAL_PROGRESS = (
    Item(
        "equal_progress",
        "Equal progress: EMAIS-auto ends when its steps are worth T, beside SGD-Scan over T and over as few steps",
        tuple(config for block in PROGRESS_BLOCKS for config in beside_each_other(block)),
        needs="train_loss",
        held_out=True,
    ),
    Item(
        "steady_rule",
        "EMAIS-auto with the steady rule, its default in the library, and with the paper's rule, 6250 steps",
        runs(**SHORT_LENET5, method=Each("sgd-scan", "emais-auto"))
        + runs(**SHORT_LENET5, method="emais-auto", rule="steady")
        + runs(**SHORT_RELU, method="sgd-scan")
        + runs(**SHORT_RELU, **AUTO_TWO_POWERS)
        + runs(**SHORT_RELU, method="emais-auto", rule="steady"),
    ),
)

"""Tables beyond the paper: variants of its methods, tuned settings, normalisation, and steps to an error."""

from __future__ import annotations

from typing import Any

from ..config import Config
from .item import (
    AUTO_TWO_POWERS,
    CHEST,
    CIFAR10,
    DECAYS,
    EMAIS_BOTH,
    EVERY_METHOD,
    FMNIST,
    FMNIST_RELU,
    LENGTHS,
    MAIN_METHODS,
    ONE_CANDIDATE,
    RAIS_EFFECTIVE,
    SELF_PACED_FROM_START,
    WITHOUT_CLASS,
    Item,
)
from .product import Each, runs

RATES = Each(0.003, 0.01, 0.03, 0.1, 0.3)
RATES_CIFAR10 = Each(0.03, 0.1, 0.3)
DECAYS_TRIED = Each(1e-4, 1e-3, 3e-3)
FMNIST_RATE: dict[str, Any] = {**FMNIST, "lr": 0.01}
AUTO_6250: dict[str, Any] = {**FMNIST_RATE, "num_steps": 6250, "method": "emais-auto"}
SHORT_CIFAR10: dict[str, Any] = {"weight_decay": DECAYS, "num_steps": 17500}
ONE_CIFAR10: dict[str, Any] = {"weight_decay": 5e-4, "num_steps": 17500}  # one weight decay
LONG_CIFAR10: dict[str, Any] = {"weight_decay": 5e-4, "num_steps": 35000}
FMNIST_LENGTHS: dict[str, Any] = {"num_steps": LENGTHS["fmnist"]}
CHEST_LENGTHS: dict[str, Any] = {"num_steps": LENGTHS["chestxray14"]}
BATCH_STATISTICS: dict[str, Any] = {"method": "presampling", "batch_statistics": True}
# equal progress: a run that ends when its effective steps reach T, and what it is compared with
AT_EQUAL_PROGRESS: dict[str, Any] = {"method": "emais-auto", "rule": "steady", "schedule": "progress"}
SHORTENED_SCAN: dict[str, Any] = {"method": "sgd-scan", "follow": "progress"}
# SGD-Scan's best rate and weight decay of those tried, for each network
TUNED_LENET5: dict[str, Any] = {**FMNIST, "lr": 0.1, "num_steps": Each(12500, 25000)}
TUNED_RELU: dict[str, Any] = {**FMNIST_RELU, "lr": 0.03, "num_steps": Each(12500, 25000)}
TUNED_CIFAR10: dict[str, Any] = {**CIFAR10, "weight_decay": 5e-4, "num_steps": 17500}
PAPER_RATE: dict[str, Any] = {**FMNIST, "lr": 0.01, "num_steps": 12500}  # a tenth of the best
SHORT_LENET5: dict[str, Any] = {**FMNIST, "lr": 0.01, "num_steps": 6250}
SHORT_RELU: dict[str, Any] = {**FMNIST_RELU, "lr": 0.01, "num_steps": 6250}
HALF_CIFAR10: dict[str, Any] = {**CIFAR10, "weight_decay": 5e-4, "num_steps": 8750}
PROGRESS_BLOCKS = (TUNED_LENET5, TUNED_RELU, TUNED_CIFAR10, PAPER_RATE)
CHOSEN: dict[int, dict[str, tuple[float, float]]] = {  # the best rate of `tuned_lr`, and the best weight decay with it
    6250: {
        "sgd-scan": (0.1, 1e-4),
        "rais": (0.1, 1e-3),
        "emais": (0.03, 1e-4),
        "emais-auto": (0.1, 1e-3),
    },
    25000: {
        "sgd-scan": (0.1, 1e-3),
        "rais": (0.1, 1e-3),
        "emais": (0.03, 1e-3),
        "emais-auto": (0.1, 1e-3),
    },
}
# EMAIS-auto with the library's rule, over 6250 steps: the best rate, and the best weight decay with it
STEADY_6250: dict[str, Any] = {**FMNIST, "method": "emais-auto", "rule": "steady", "num_steps": 6250}
CHOSEN_STEADY = (0.1, 1e-3)


def chosen(decays: Each | None = None) -> tuple[Config, ...]:
    """The methods at the rates of `CHOSEN`, with its weight decays or with those given."""
    found: list[Config] = []
    for length, methods in CHOSEN.items():
        for method, (rate, decay) in methods.items():
            tuned = {"data": "fmnist", "model": "lenet5", "method": method, "lr": rate}
            found += runs(**tuned, weight_decay=decays or decay, num_steps=length)
    return tuple(found)


def beside_each_other(block: dict[str, Any]) -> tuple[Config, ...]:
    """SGD-Scan, EMAIS-auto at equal progress, and SGD-Scan shortened to as many steps."""
    return runs(**block, method="sgd-scan") + runs(**block, **AT_EQUAL_PROGRESS) + runs(**block, **SHORTENED_SCAN)


VARIANTS = (
    Item(
        "emais_auto",
        "EMAIS with its memory chosen during training, and with fixed multiples of Linear-tau",
        runs(**FMNIST, method=EMAIS_BOTH, lr=0.01, **FMNIST_LENGTHS)
        + runs(**FMNIST_RATE, **AUTO_TWO_POWERS, **FMNIST_LENGTHS)
        + runs(**FMNIST_RATE, **ONE_CANDIDATE, num_steps=12500)
        + runs(**CIFAR10, method=EMAIS_BOTH, **SHORT_CIFAR10)
        + runs(**CIFAR10, **AUTO_TWO_POWERS, **SHORT_CIFAR10)
        + runs(**CIFAR10, **ONE_CANDIDATE, **ONE_CIFAR10),
    ),
    Item(
        "auto_study",
        "What was tried with EMAIS-auto, Fashion-MNIST, LeNet5, 6250 steps",
        runs(**AUTO_6250, bound=Each(4, 30))
        + runs(**AUTO_6250, factors=(1, 0.3, 0.1))
        + runs(**AUTO_6250, hysteresis=0.05)
        + runs(**AUTO_6250, powers=Each(1, 0.5, (1, 0.5), (1, 0.5, 0.25)))
        + runs(**AUTO_6250, window=300, period=100)
        + runs(**{**AUTO_6250, **ONE_CANDIDATE})
        + runs(**AUTO_6250, factors=0.1, powers=1, bound=1_000_000),
    ),
    Item(
        "rais_rules",
        "RAIS with its schedule over steps and over effective steps, and with other learning-rate rules",
        runs(**FMNIST, method="rais", lr=0.01, **FMNIST_LENGTHS)
        + runs(**FMNIST, **RAIS_EFFECTIVE, lr=0.01, **FMNIST_LENGTHS)
        + runs(**FMNIST, method="rais", lr=0.01, num_steps=Each(6250, 12500), rule=Each("linear", "gain"))
        + runs(**CIFAR10, method="rais", **SHORT_CIFAR10)
        + runs(**CIFAR10, **RAIS_EFFECTIVE, **SHORT_CIFAR10)
        + runs(**CIFAR10, **RAIS_EFFECTIVE, **LONG_CIFAR10)
        + runs(**CIFAR10, method="rais", **ONE_CIFAR10, rule=Each("linear", "gain"))
        + runs(**CHEST, method="rais", **CHEST_LENGTHS)
        + runs(**CHEST, **RAIS_EFFECTIVE, **CHEST_LENGTHS),
    ),
    Item(
        "self_paced_starts",
        "Self-paced with 1/K set after two plain epochs, and at the random start",
        runs(**FMNIST, method="self-paced", lr=0.01, **FMNIST_LENGTHS)
        + runs(**FMNIST, **SELF_PACED_FROM_START, lr=0.01, **FMNIST_LENGTHS)
        + runs(**CIFAR10, method="self-paced", **SHORT_CIFAR10)
        + runs(**CIFAR10, **SELF_PACED_FROM_START, **SHORT_CIFAR10)
        + runs(**CHEST, method="self-paced", **CHEST_LENGTHS)
        + runs(**CHEST, **SELF_PACED_FROM_START, **CHEST_LENGTHS),
    ),
)

NORMALISATION = (
    Item(
        "groupnorm",
        "ResNet18 with GroupNorm in place of BatchNorm, CIFAR-10, 17500 steps",
        runs(**{**CIFAR10, "model": "resnet18-gn"}, method=Each("sgd-scan", *EMAIS_BOTH), **ONE_CIFAR10)
        + runs(**CIFAR10, method=Each("sgd-scan", *EMAIS_BOTH), **ONE_CIFAR10),
    ),
    Item(
        "batchnorm",
        "BatchNorm with the statistics of training, and with those of uniform minibatches",
        runs(**CIFAR10, method=EVERY_METHOD, **SHORT_CIFAR10)
        + runs(**CIFAR10, method=MAIN_METHODS, **LONG_CIFAR10)
        + runs(**CIFAR10, **RAIS_EFFECTIVE, **SHORT_CIFAR10)
        + runs(**CIFAR10, **SELF_PACED_FROM_START, **SHORT_CIFAR10)
        + runs(**CIFAR10, **AUTO_TWO_POWERS, **SHORT_CIFAR10)
        + runs(**CIFAR10, **RAIS_EFFECTIVE, **LONG_CIFAR10)
        + runs(**CIFAR10, **AUTO_TWO_POWERS, **LONG_CIFAR10)
        + runs(**CIFAR10, **BATCH_STATISTICS, **ONE_CIFAR10)
        + runs(**CHEST, method=WITHOUT_CLASS, **CHEST_LENGTHS)
        + runs(**CHEST, **RAIS_EFFECTIVE, **CHEST_LENGTHS)
        + runs(**CHEST, **SELF_PACED_FROM_START, **CHEST_LENGTHS)
        + runs(**CHEST, **AUTO_TWO_POWERS, **CHEST_LENGTHS),
        needs="recalibrated",
    ),
    Item(
        "presampling_modes",
        "Presampling on CIFAR-10, candidates seen in evaluation mode, and with BatchNorm statistics of their own",
        runs(**CIFAR10, method=Each("sgd-scan", "presampling"), **ONE_CIFAR10)
        + runs(**CIFAR10, **BATCH_STATISTICS, **ONE_CIFAR10)
        + runs(**CIFAR10, method=EMAIS_BOTH, **ONE_CIFAR10),
    ),
)

TUNING = (
    Item(
        "tuned_lr",
        "The learning rate tuned for each method, Fashion-MNIST, LeNet5, 6250 steps",
        runs(**FMNIST, method=MAIN_METHODS, lr=RATES, num_steps=6250),
    ),
    Item(
        "tuned_lr_25000",
        "The learning rate tuned for each method, Fashion-MNIST, LeNet5, 25000 steps",
        runs(**FMNIST, method=MAIN_METHODS, lr=RATES, num_steps=25000),
    ),
    Item(
        "tuned_lr_cifar10",
        "The learning rate tuned for each method, CIFAR-10, 17500 steps",
        runs(data="cifar10", model="resnet18", method=MAIN_METHODS, lr=RATES_CIFAR10, **ONE_CIFAR10)
        + runs(data="cifar10", model="resnet18", **RAIS_EFFECTIVE, lr=RATES_CIFAR10, **ONE_CIFAR10)
        + runs(data="cifar10", model="resnet18", **AUTO_TWO_POWERS, lr=RATES_CIFAR10, **ONE_CIFAR10),
    ),
    Item(
        "tuned_decay",
        "The weight decay tuned at each method's best learning rate, Fashion-MNIST, LeNet5",
        chosen(DECAYS_TRIED),
    ),
    Item(
        "tuned",
        "Each method at its tuned learning rate and weight decay, seeds not used for tuning, Fashion-MNIST, LeNet5",
        chosen(),
        held_out=True,
    ),
    Item(
        "tuned_lr_steady",
        "The learning rate tuned for EMAIS-auto with the library's rule, Fashion-MNIST, LeNet5, 6250 steps",
        runs(**STEADY_6250, lr=RATES),
    ),
    Item(
        "tuned_decay_steady",
        "The weight decay tuned for EMAIS-auto with the library's rule, Fashion-MNIST, LeNet5, 6250 steps",
        runs(**STEADY_6250 | {"lr": CHOSEN_STEADY[0], "weight_decay": DECAYS_TRIED}),
    ),
    Item(
        "tuned_steady",
        "EMAIS-auto with the library's rule and SGD-Scan, tuned, seeds not used for tuning, Fashion-MNIST, LeNet5",
        tuple(c for c in chosen() if (c.method, c.num_steps) == ("sgd-scan", 6250))
        + runs(**STEADY_6250 | {"lr": CHOSEN_STEADY[0], "weight_decay": CHOSEN_STEADY[1]}),
        held_out=True,
    ),
)

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
        "EMAIS-auto with the steady rule, its default in the library, and with the paper's rule, short runs",
        runs(**SHORT_LENET5, method=Each("sgd-scan", "emais-auto"))
        + runs(**SHORT_LENET5, method="emais-auto", rule="steady")
        + runs(**SHORT_RELU, method="sgd-scan")
        + runs(**SHORT_RELU, **AUTO_TWO_POWERS)
        + runs(**SHORT_RELU, method="emais-auto", rule="steady")
        + runs(**HALF_CIFAR10, method=Each("sgd-scan", "emais-auto"))
        + runs(**HALF_CIFAR10, method="emais-auto", rule="steady"),
    ),
)

SPEED = (
    Item(
        "steps_to_error",
        "Steps needed to reach a test error",
        runs(**FMNIST, method=EVERY_METHOD, lr=0.01, **FMNIST_LENGTHS)
        + runs(**CIFAR10, method=EVERY_METHOD, weight_decay=DECAYS, num_steps=LENGTHS["cifar10"]),
    ),
)

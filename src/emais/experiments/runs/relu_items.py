"""The first study, with ReLU and max-pooling in LeNet5, and RAIS, Self-paced and EMAIS-auto as they were then."""

from __future__ import annotations

from typing import Any

from .item import AUTO_TWO_POWERS, FMNIST_RELU, LENGTHS, ONE_CANDIDATE, RAIS_EFFECTIVE, SELF_PACED_FROM_START, Item
from .product import Each, runs

UNCHANGED = Each("sgd-scan", "sgd-uni", "presampling", "confidence", "confvar", "emais")  # methods as they are today
RELU_RATE: dict[str, Any] = {**FMNIST_RELU, "lr": 0.01}
RELU_LONG: dict[str, Any] = {**RELU_RATE, "num_steps": 25000}
EACH_LENGTH: dict[str, Any] = {"num_steps": LENGTHS["fmnist"]}
RELU_ADAM: dict[str, Any] = {"optimizer": "adam", "lr": 0.001, **EACH_LENGTH}
TWO_LENGTHS: dict[str, Any] = {"num_steps": Each(6250, 12500)}
RELU_RATES: dict[str, Any] = {"lr": Each(0.003, 0.01, 0.03, 0.1), "num_steps": 6250}

RELU_STUDY = (
    Item(
        "relu_res_fmnist",
        "Prediction error on the Fashion-MNIST test set with LeNet5-ReLU",
        runs(**RELU_RATE, method=UNCHANGED, **EACH_LENGTH)
        + runs(**RELU_RATE, **RAIS_EFFECTIVE, **EACH_LENGTH)
        + runs(**RELU_RATE, **SELF_PACED_FROM_START, **EACH_LENGTH)
        + runs(**RELU_RATE, **AUTO_TWO_POWERS, **EACH_LENGTH),
    ),
    Item(
        "relu_adam",
        "Results with Adam on Fashion-MNIST with LeNet5-ReLU",
        runs(**FMNIST_RELU, method=Each("sgd-scan", "sgd-uni", "emais"), **RELU_ADAM)
        + runs(**FMNIST_RELU, **RAIS_EFFECTIVE, **RELU_ADAM)
        + runs(**FMNIST_RELU, **AUTO_TWO_POWERS, **RELU_ADAM),
    ),
    Item(
        "relu_figures",
        "The runs behind the figures on Fashion-MNIST, with LeNet5-ReLU",
        runs(**RELU_LONG, method=Each("emais", "sgd-scan", "sgd-uni"))
        + runs(**RELU_LONG, method="emais", tau=Each(1000, 5000, 10000, 25000))
        + runs(**RELU_LONG, method="sgd-uni", follow="emais")
        + runs(**RELU_LONG, method="emais", rule="none")
        + runs(**RELU_LONG, method="emais", refresh_every=500),
    ),
    Item(
        "relu_emais_auto",
        "EMAIS-auto and fixed multiples of Linear-tau, Fashion-MNIST with LeNet5-ReLU",
        runs(**RELU_RATE, method="emais", **EACH_LENGTH)
        + runs(**RELU_RATE, **AUTO_TWO_POWERS, **EACH_LENGTH)
        + runs(**RELU_RATE, **ONE_CANDIDATE, num_steps=12500),
    ),
    Item(
        "relu_rais_rules",
        "RAIS with other learning-rate rules than its own, Fashion-MNIST with LeNet5-ReLU",
        runs(**RELU_RATE, **RAIS_EFFECTIVE, **TWO_LENGTHS)
        + runs(**RELU_RATE, method="rais", **TWO_LENGTHS, rule=Each("linear", "gain"))
        + runs(**RELU_RATE, method="emais", **TWO_LENGTHS)
        + runs(**RELU_RATE, **AUTO_TWO_POWERS, **TWO_LENGTHS),
    ),
    Item(
        "relu_momentum",
        "The momentum, which the paper does not state, Fashion-MNIST with LeNet5-ReLU",
        runs(**RELU_RATE, method=Each("sgd-scan", "emais"), **TWO_LENGTHS, momentum=Each(0.8, 0.85, 0.9)),
    ),
    Item(
        "relu_tuned_lr",
        "The learning rate tuned for each method, Fashion-MNIST with LeNet5-ReLU, 6250 steps",
        runs(**FMNIST_RELU, method=Each("sgd-scan", "emais"), **RELU_RATES)
        + runs(**FMNIST_RELU, **RAIS_EFFECTIVE, **RELU_RATES)
        + runs(**FMNIST_RELU, **AUTO_TWO_POWERS, **RELU_RATES),
    ),
)

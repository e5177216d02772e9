"""The paper's tables and figures, as far as they are made of runs.

The paper's figures on CINIC-10 are of 70000 steps. Ours on CIFAR-10 are of a quarter, and so are all numbers of steps
in them: tau (5000, 10000, 30000, 70000), steps between two refreshes (1000), and lengths (35000 to 140000).
"""

from __future__ import annotations

from typing import Any

from .item import CHEST, CIFAR10, DECAYS, EVERY_METHOD, FMNIST, LENGTHS, WITH_ADAM, WITHOUT_CLASS, Item
from .product import Each, runs

LONG_FMNIST: dict[str, Any] = {**FMNIST, "lr": 0.01, "num_steps": 25000}
EMAIS_CIFAR10: dict[str, Any] = {**CIFAR10, "method": "emais", "weight_decay": 5e-4}
QUARTER_CIFAR10: dict[str, Any] = {**EMAIS_CIFAR10, "num_steps": 17500}  # of the paper's 70000 steps

PAPER_TABLES = (
    Item(
        "tab:res_fmnist",
        "Prediction error on the Fashion-MNIST test set",
        runs(**FMNIST, method=EVERY_METHOD, lr=0.01, num_steps=LENGTHS["fmnist"]),
    ),
    Item(
        "tab:res_cinic10",
        "Prediction error on the test set of CIFAR-10, in place of CINIC-10",
        runs(**CIFAR10, method=EVERY_METHOD, weight_decay=DECAYS, num_steps=LENGTHS["cifar10"]),
    ),
    Item(
        "tab:res_nih",
        "Mean average precision on the test set, ChestX-ray14",
        runs(**CHEST, method=WITHOUT_CLASS, num_steps=LENGTHS["chestxray14"]),
    ),
    Item(
        "tab:adam",
        "Results with Adam on Fashion-MNIST (the paper has them on its other data, too)",
        runs(**FMNIST, method=WITH_ADAM, optimizer="adam", lr=0.001, num_steps=LENGTHS["fmnist"]),
    ),
)

PAPER_FIGURES = (
    Item(
        "fig:is_scores",
        "S(W) during training, for fixed tau and Linear-tau",
        runs(**LONG_FMNIST, method="emais", tau=Each(1000, 5000, 10000, 25000))
        + runs(**LONG_FMNIST, method="emais")
        + runs(**QUARTER_CIFAR10, tau=Each(1250, 2500, 7500, 17500))
        + runs(**QUARTER_CIFAR10),
    ),
    Item(
        "fig:fmnist_sgd_unif_n_ems",
        "EMAIS beside SGD-Uni with a minibatch that follows its N_ems",
        runs(**LONG_FMNIST, method=Each("sgd-scan", "sgd-uni", "emais"))
        + runs(**LONG_FMNIST, method="sgd-uni", follow="emais"),
    ),
    Item(
        "fig:fmnist_lr_adjust_ablation",
        "EMAIS with and without the learning-rate adjustment",
        runs(**LONG_FMNIST, method=Each("emais", "sgd-uni")) + runs(**LONG_FMNIST, method="emais", rule="none"),
    ),
    Item(
        "fig:additional_state_updates",
        "EMAIS with the statistics of all samples refreshed now and then",
        runs(**LONG_FMNIST, method="emais")
        + runs(**LONG_FMNIST, method="emais", refresh_every=500)
        + runs(**QUARTER_CIFAR10)
        + runs(**QUARTER_CIFAR10, refresh_every=250),
    ),
    Item(
        "fig:score_and_trvars",
        "S(W) and the variance traces behind it",
        runs(**LONG_FMNIST, method="emais") + runs(**QUARTER_CIFAR10),
    ),
    Item(
        "fig:cinic10_35000-140000_IS_score",
        "S(W) under Linear-tau for runs of different lengths",
        runs(**FMNIST, method="emais", lr=0.01, num_steps=LENGTHS["fmnist"])
        + runs(**EMAIS_CIFAR10, num_steps=Each(8750, 17500, 26250, 35000)),
    ),
)

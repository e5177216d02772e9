"""Every table and figure, the paper's and those beyond it, by its label: which runs `emais reproduce LABEL` makes."""

from __future__ import annotations

from dataclasses import dataclass

from ..errors import positive_int
from .config import Config, choose, parse

ALL = "sgd-scan,sgd-uni,rais,presampling,confidence,confvar,self-paced,emais,emais-auto"  # the last is not the paper's
MULTI_LABEL = "sgd-scan,sgd-uni,rais,presampling,self-paced,emais,emais-auto"  # methods that need no true class
FEW = "sgd-scan,sgd-uni,rais,emais,emais-auto"  # those with Adam
RIVALS = "sgd-scan,rais,emais,emais-auto"
FMNIST = "data=fmnist model=lenet5 weight_decay=1e-3"
CIFAR = "data=cifar10 model=resnet18 lr=0.1"
CHEST = "data=chestxray14 model=resnet50 lr=0.1 weight_decay=1e-4"
LENGTHS = {"fmnist": (6250, 12500, 25000), "cifar10": (17500, 35000), "chestxray14": (1000, 2000, 4000)}
# The paper's figures on CINIC-10 are of 70000 steps. Ours on CIFAR-10 are of a quarter, and so are all numbers of steps
# in them: tau (5000, 10000, 30000, 70000), steps between two refreshes (1000), and lengths (35000 to 140000).
QUARTER = f"{CIFAR} method=emais weight_decay=5e-4"
LONG = f"{FMNIST} lr=0.01 num_steps=25000"
FIXED = "method=emais-auto factors=1,0.3,0.1,0.03 powers=1"  # with one candidate only: tau = c t
OWN_STATISTICS = "method=presampling batch_statistics=true weight_decay=5e-4 num_steps=17500"


@dataclass(frozen=True)
class Item:
    """A table or figure: its label, what it shows, and the runs behind it as texts without seeds.

    needs: what a record must have to count; records from before it was measured do not have it.
    """

    label: str
    title: str
    texts: tuple[str, ...]
    needs: str = ""

    @property
    def beyond(self) -> bool:
        """Whether it is not in the paper, whose labels all have a colon."""
        return ":" not in self.label

    def configs(self, seeds: int = 5) -> list[Config]:
        """All runs, for seeds 0 to seeds - 1."""
        positive_int("seeds", seeds)
        found = [config for text in self.texts for config in parse(f"{text} seed=0-{seeds - 1}")]
        return list({config.key(): config for config in found}.values())


def steps(data: str) -> str:
    """The lengths of the runs on a data set, as part of a configuration."""
    return "num_steps=" + ",".join(map(str, LENGTHS[data]))


ITEMS: dict[str, Item] = {
    item.label: item
    for item in (
        Item(
            "tab:res_fmnist",
            "Prediction error on the Fashion-MNIST test set",
            (f"{FMNIST} method={ALL} lr=0.01 {steps('fmnist')}",),
        ),
        Item(
            "tab:res_cinic10",
            "Prediction error on the test set of CIFAR-10, in place of CINIC-10",
            (f"{CIFAR} method={ALL} weight_decay=1e-4,5e-4 {steps('cifar10')}",),
        ),
        Item(
            "tab:res_nih",
            "Mean average precision on the test set, ChestX-ray14",
            (f"{CHEST} method={MULTI_LABEL} {steps('chestxray14')}",),
        ),
        Item(
            "tab:adam",
            "Results with Adam on Fashion-MNIST (the paper has them on its other data, too)",
            (f"{FMNIST} method={FEW} optimizer=adam lr=0.001 {steps('fmnist')}",),
        ),
        Item(
            "fig:is_scores",
            "S(W) during training, for fixed tau and Linear-tau",
            (
                f"{LONG} method=emais tau=1000,5000,10000,25000",
                f"{LONG} method=emais",
                f"{QUARTER} num_steps=17500 tau=1250,2500,7500,17500",
                f"{QUARTER} num_steps=17500",
            ),
        ),
        Item(
            "fig:fmnist_sgd_unif_n_ems",
            "EMAIS beside SGD-Uni with a minibatch that follows its N_ems",
            (f"{LONG} method=sgd-scan,sgd-uni,emais", f"{LONG} method=sgd-uni follow=emais"),
        ),
        Item(
            "fig:fmnist_lr_adjust_ablation",
            "EMAIS with and without the learning-rate adjustment",
            (f"{LONG} method=emais,sgd-uni", f"{LONG} method=emais rule=none"),
        ),
        Item(
            "fig:additional_state_updates",
            "EMAIS with the statistics of all samples refreshed now and then",
            (
                f"{LONG} method=emais",
                f"{LONG} method=emais refresh_every=500",
                f"{QUARTER} num_steps=17500",
                f"{QUARTER} num_steps=17500 refresh_every=250",
            ),
        ),
        Item(
            "fig:score_and_trvars",
            "S(W) and the variance traces behind it",
            (f"{LONG} method=emais", f"{QUARTER} num_steps=17500"),
        ),
        Item(
            "fig:cinic10_35000-140000_IS_score",
            "S(W) under Linear-tau for runs of different lengths",
            (
                f"{FMNIST} method=emais lr=0.01 {steps('fmnist')}",
                f"{QUARTER} num_steps=8750,17500,26250,35000",
            ),
        ),
        Item(
            "emais_auto",
            "EMAIS with its memory chosen during training, and with fixed multiples of Linear-tau",
            (
                f"{FMNIST} method=emais,emais-auto lr=0.01 {steps('fmnist')}",
                f"{FMNIST} {FIXED} lr=0.01 num_steps=12500",
                f"{CIFAR} method=emais,emais-auto weight_decay=1e-4,5e-4 num_steps=17500",
                f"{CIFAR} {FIXED} weight_decay=5e-4 num_steps=17500",
            ),
        ),
        Item(
            "rais_rules",
            "RAIS with other learning-rate rules than its own",
            (
                f"{FMNIST} method=rais lr=0.01 num_steps=6250,12500",
                f"{FMNIST} method=rais lr=0.01 num_steps=6250,12500 rule=linear,gain",
                f"{FMNIST} method=emais,emais-auto lr=0.01 num_steps=6250,12500",
                f"{CIFAR} method=rais weight_decay=5e-4 num_steps=17500",
                f"{CIFAR} method=rais weight_decay=5e-4 num_steps=17500 rule=linear,gain",
                f"{CIFAR} method=emais,emais-auto weight_decay=5e-4 num_steps=17500",
            ),
        ),
        Item(
            "momentum",
            "The momentum, which the paper does not state, Fashion-MNIST",
            (f"{FMNIST} method=sgd-scan,emais lr=0.01 num_steps=6250,12500 momentum=0.8,0.85,0.9",),
        ),
        Item(
            "batchnorm",
            "BatchNorm with the statistics of training, and with those of uniform minibatches",
            (
                f"{CIFAR} method={ALL} weight_decay=1e-4,5e-4 num_steps=17500",
                f"{CIFAR} method={RIVALS} weight_decay=5e-4 num_steps=35000",
                f"{CIFAR} {OWN_STATISTICS}",
                f"{CHEST} method={MULTI_LABEL} {steps('chestxray14')}",
            ),
            needs="recalibrated",
        ),
        Item(
            "presampling_modes",
            "Presampling on CIFAR-10, candidates seen in evaluation mode, and with BatchNorm statistics of their own",
            (
                f"{CIFAR} method=sgd-scan,presampling weight_decay=5e-4 num_steps=17500",
                f"{CIFAR} {OWN_STATISTICS}",
                f"{CIFAR} method=emais,emais-auto weight_decay=5e-4 num_steps=17500",
            ),
        ),
        Item(
            "tuned_lr",
            "The learning rate tuned for each method, Fashion-MNIST, 6250 steps",
            (f"{FMNIST} method={RIVALS} lr=0.003,0.01,0.03,0.1 num_steps=6250",),
        ),
        Item(
            "tuned_lr_cifar10",
            "The learning rate tuned for each method, CIFAR-10, 17500 steps",
            (f"data=cifar10 model=resnet18 method={RIVALS} lr=0.03,0.1,0.3 weight_decay=5e-4 num_steps=17500",),
        ),
        Item(
            "steps_to_error",
            "Steps needed to reach a test error",
            (
                f"{FMNIST} method={ALL} lr=0.01 {steps('fmnist')}",
                f"{CIFAR} method={ALL} weight_decay=1e-4,5e-4 {steps('cifar10')}",
            ),
        ),
    )
}


def find(label: str) -> Item:
    """The item with this label, or an error that lists the labels."""
    choose("table or figure", label, ITEMS)
    return ITEMS[label]

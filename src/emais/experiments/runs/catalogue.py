"""Every table and figure, the paper's and those beyond it, by its label: which runs `emais reproduce LABEL` makes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ...errors import positive_int
from ..config import Config, choose
from .sweep import parse

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
# The first study: ReLU and max-pooling in LeNet5, and these three methods as they were then
RELU = "data=fmnist model=lenet5-relu weight_decay=1e-3"
SAME = "sgd-scan,sgd-uni,presampling,confidence,confvar,emais"  # methods that are today as they were then
EFFECTIVE = "method=rais schedule=effective"
AT_RANDOM = "method=self-paced warmup_epochs=0"
TWO_POWERS = "method=emais-auto powers=1:0.5"
HELD_OUT = 100  # seeds from here on are kept for what was chosen with the others, and are in no other table
CHOSEN: dict[int, dict[str, tuple[str, str]]] = {  # the best rate of `tuned_lr`, and the best weight decay with it
    6250: {
        "sgd-scan": ("0.1", "1e-4"),
        "rais": ("0.1", "1e-3"),
        "emais": ("0.03", "1e-4"),
        "emais-auto": ("0.1", "1e-3"),
    },
    25000: {
        "sgd-scan": ("0.1", "1e-3"),
        "rais": ("0.1", "1e-3"),
        "emais": ("0.03", "1e-3"),
        "emais-auto": ("0.1", "1e-3"),
    },
}


@dataclass(frozen=True)
class Item:
    """A table or figure: its label, what it shows, and the runs behind it as texts without seeds.

    needs: what a record must have to count; records from before it was measured do not have it. held_out: whether its
    seeds are those from `HELD_OUT` on.
    """

    label: str
    title: str
    texts: tuple[str, ...]
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
        found = [config for text in self.texts for config in parse(f"{text} seed={first}-{first + seeds - 1}")]
        return list({config.key(): config for config in found}.values())

    def holds(self, record: Mapping[str, Any]) -> bool:
        """Whether a record may be one of its runs, by its seed and by what it has measured."""
        return (not self.needs or self.needs in record) and (record["seed"] >= HELD_OUT) == self.held_out


def steps(data: str) -> str:
    """The lengths of the runs on a data set, as part of a configuration."""
    return "num_steps=" + ",".join(map(str, LENGTHS[data]))


def chosen(decays: str = "") -> tuple[str, ...]:
    """The methods at the rates of `CHOSEN`, with its weight decays or with those given."""
    return tuple(
        f"data=fmnist model=lenet5 method={method} lr={rate} weight_decay={decays or decay} num_steps={length}"
        for length, methods in CHOSEN.items()
        for method, (rate, decay) in methods.items()
    )


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
                f"{FMNIST} {TWO_POWERS} lr=0.01 {steps('fmnist')}",
                f"{FMNIST} {FIXED} lr=0.01 num_steps=12500",
                f"{CIFAR} method=emais,emais-auto weight_decay=1e-4,5e-4 num_steps=17500",
                f"{CIFAR} {TWO_POWERS} weight_decay=1e-4,5e-4 num_steps=17500",
                f"{CIFAR} {FIXED} weight_decay=5e-4 num_steps=17500",
            ),
        ),
        Item(
            "auto_study",
            "What was tried with EMAIS-auto, Fashion-MNIST, LeNet5, 6250 steps",
            tuple(
                f"{FMNIST} lr=0.01 num_steps=6250 method=emais-auto {tried}"
                for tried in (
                    "bound=4,30",
                    "factors=1:0.3:0.1",
                    "hysteresis=0.05",
                    "powers=1,0.5,1:0.5,1:0.5:0.25",
                    "window=300 period=100",
                    "factors=1,0.3,0.1,0.03 powers=1",
                    "factors=0.1 powers=1 bound=1e6",
                )
            ),
        ),
        Item(
            "rais_rules",
            "RAIS with its schedule over steps and over effective steps, and with other learning-rate rules",
            (
                f"{FMNIST} method=rais lr=0.01 {steps('fmnist')}",
                f"{FMNIST} {EFFECTIVE} lr=0.01 {steps('fmnist')}",
                f"{FMNIST} method=rais lr=0.01 num_steps=6250,12500 rule=linear,gain",
                f"{CIFAR} method=rais weight_decay=1e-4,5e-4 num_steps=17500",
                f"{CIFAR} {EFFECTIVE} weight_decay=1e-4,5e-4 num_steps=17500",
                f"{CIFAR} {EFFECTIVE} weight_decay=5e-4 num_steps=35000",
                f"{CIFAR} method=rais weight_decay=5e-4 num_steps=17500 rule=linear,gain",
                f"{CHEST} method=rais {steps('chestxray14')}",
                f"{CHEST} {EFFECTIVE} {steps('chestxray14')}",
            ),
        ),
        Item(
            "self_paced_starts",
            "Self-paced with 1/K set after two plain epochs, and at the random start",
            (
                f"{FMNIST} method=self-paced lr=0.01 {steps('fmnist')}",
                f"{FMNIST} {AT_RANDOM} lr=0.01 {steps('fmnist')}",
                f"{CIFAR} method=self-paced weight_decay=1e-4,5e-4 num_steps=17500",
                f"{CIFAR} {AT_RANDOM} weight_decay=1e-4,5e-4 num_steps=17500",
                f"{CHEST} method=self-paced {steps('chestxray14')}",
                f"{CHEST} {AT_RANDOM} {steps('chestxray14')}",
            ),
        ),
        Item(
            "groupnorm",
            "ResNet18 with GroupNorm in place of BatchNorm, CIFAR-10, 17500 steps",
            (
                "data=cifar10 model=resnet18-gn lr=0.1 method=sgd-scan,emais,emais-auto weight_decay=5e-4 "
                "num_steps=17500",
                f"{CIFAR} method=sgd-scan,emais,emais-auto weight_decay=5e-4 num_steps=17500",
            ),
        ),
        Item(
            "batchnorm",
            "BatchNorm with the statistics of training, and with those of uniform minibatches",
            (
                f"{CIFAR} method={ALL} weight_decay=1e-4,5e-4 num_steps=17500",
                f"{CIFAR} method={RIVALS} weight_decay=5e-4 num_steps=35000",
                *(
                    f"{CIFAR} {old} weight_decay=1e-4,5e-4 num_steps=17500"
                    for old in (EFFECTIVE, AT_RANDOM, TWO_POWERS)
                ),
                *(f"{CIFAR} {old} weight_decay=5e-4 num_steps=35000" for old in (EFFECTIVE, TWO_POWERS)),
                f"{CIFAR} {OWN_STATISTICS}",
                f"{CHEST} method={MULTI_LABEL} {steps('chestxray14')}",
                *(f"{CHEST} {old} {steps('chestxray14')}" for old in (EFFECTIVE, AT_RANDOM, TWO_POWERS)),
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
            "The learning rate tuned for each method, Fashion-MNIST, LeNet5, 6250 steps",
            (f"{FMNIST} method={RIVALS} lr=0.003,0.01,0.03,0.1,0.3 num_steps=6250",),
        ),
        Item(
            "tuned_lr_25000",
            "The learning rate tuned for each method, Fashion-MNIST, LeNet5, 25000 steps",
            (f"{FMNIST} method={RIVALS} lr=0.003,0.01,0.03,0.1,0.3 num_steps=25000",),
        ),
        Item(
            "tuned_lr_cifar10",
            "The learning rate tuned for each method, CIFAR-10, 17500 steps",
            (
                f"data=cifar10 model=resnet18 method={RIVALS} lr=0.03,0.1,0.3 weight_decay=5e-4 num_steps=17500",
                *(
                    f"data=cifar10 model=resnet18 {old} lr=0.03,0.1,0.3 weight_decay=5e-4 num_steps=17500"
                    for old in (EFFECTIVE, TWO_POWERS)
                ),
            ),
        ),
        Item(
            "tuned_decay",
            "The weight decay tuned at each method's best learning rate, Fashion-MNIST, LeNet5",
            chosen("1e-4,1e-3,3e-3"),
        ),
        Item(
            "tuned",
            "Each method at its tuned learning rate and weight decay, seeds not used for tuning, Fashion-MNIST, LeNet5",
            chosen(),
            held_out=True,
        ),
        Item(
            "steps_to_error",
            "Steps needed to reach a test error",
            (
                f"{FMNIST} method={ALL} lr=0.01 {steps('fmnist')}",
                f"{CIFAR} method={ALL} weight_decay=1e-4,5e-4 {steps('cifar10')}",
            ),
        ),
        Item(
            "relu_res_fmnist",
            "Prediction error on the Fashion-MNIST test set with LeNet5-ReLU",
            (
                f"{RELU} method={SAME} lr=0.01 {steps('fmnist')}",
                *(f"{RELU} {old} lr=0.01 {steps('fmnist')}" for old in (EFFECTIVE, AT_RANDOM, TWO_POWERS)),
            ),
        ),
        Item(
            "relu_adam",
            "Results with Adam on Fashion-MNIST with LeNet5-ReLU",
            (
                f"{RELU} method=sgd-scan,sgd-uni,emais optimizer=adam lr=0.001 {steps('fmnist')}",
                *(f"{RELU} {old} optimizer=adam lr=0.001 {steps('fmnist')}" for old in (EFFECTIVE, TWO_POWERS)),
            ),
        ),
        Item(
            "relu_figures",
            "The runs behind the figures on Fashion-MNIST, with LeNet5-ReLU",
            (
                f"{RELU} lr=0.01 num_steps=25000 method=emais,sgd-scan,sgd-uni",
                f"{RELU} lr=0.01 num_steps=25000 method=emais tau=1000,5000,10000,25000",
                f"{RELU} lr=0.01 num_steps=25000 method=sgd-uni follow=emais",
                f"{RELU} lr=0.01 num_steps=25000 method=emais rule=none",
                f"{RELU} lr=0.01 num_steps=25000 method=emais refresh_every=500",
            ),
        ),
        Item(
            "relu_emais_auto",
            "EMAIS-auto and fixed multiples of Linear-tau, Fashion-MNIST with LeNet5-ReLU",
            (
                f"{RELU} method=emais lr=0.01 {steps('fmnist')}",
                f"{RELU} {TWO_POWERS} lr=0.01 {steps('fmnist')}",
                f"{RELU} {FIXED} lr=0.01 num_steps=12500",
            ),
        ),
        Item(
            "relu_rais_rules",
            "RAIS with other learning-rate rules than its own, Fashion-MNIST with LeNet5-ReLU",
            (
                f"{RELU} {EFFECTIVE} lr=0.01 num_steps=6250,12500",
                f"{RELU} method=rais lr=0.01 num_steps=6250,12500 rule=linear,gain",
                f"{RELU} method=emais lr=0.01 num_steps=6250,12500",
                f"{RELU} {TWO_POWERS} lr=0.01 num_steps=6250,12500",
            ),
        ),
        Item(
            "relu_momentum",
            "The momentum, which the paper does not state, Fashion-MNIST with LeNet5-ReLU",
            (f"{RELU} method=sgd-scan,emais lr=0.01 num_steps=6250,12500 momentum=0.8,0.85,0.9",),
        ),
        Item(
            "relu_tuned_lr",
            "The learning rate tuned for each method, Fashion-MNIST with LeNet5-ReLU, 6250 steps",
            (
                f"{RELU} method=sgd-scan,emais lr=0.003,0.01,0.03,0.1 num_steps=6250",
                *(f"{RELU} {old} lr=0.003,0.01,0.03,0.1 num_steps=6250" for old in (EFFECTIVE, TWO_POWERS)),
            ),
        ),
    )
}


def find(label: str) -> Item:
    """The item with this label, or an error that lists the labels."""
    choose("table or figure", label, ITEMS)
    return ITEMS[label]

"""Every table and figure of the paper by its label: which runs it needs. `emais reproduce LABEL` runs them."""

from __future__ import annotations

from dataclasses import dataclass

from .config import Config, choose, parse

ALL = "sgd-scan,sgd-uni,rais,presampling,confidence,confvar,self-paced,emais"
MULTI_LABEL = "sgd-scan,sgd-uni,rais,presampling,self-paced,emais"  # methods that need no true class
ADAM = "sgd-scan,sgd-uni,rais,emais"
FMNIST = "data=fmnist model=lenet5 weight_decay=1e-3"
CIFAR = "data=cifar10 model=resnet18 lr=0.1"
CHEST = "data=chestxray14 model=resnet50 lr=0.1 weight_decay=1e-4"
LENGTHS = {"fmnist": (6250, 12500, 25000), "cifar10": (17500, 35000), "chestxray14": (1000, 2000, 4000)}


@dataclass(frozen=True)
class Item:
    """A table or figure: its label in the paper, what it shows, and the runs behind it as texts without seeds."""

    label: str
    title: str
    texts: tuple[str, ...]

    def configs(self, seeds: int = 5) -> list[Config]:
        """All runs, for seeds 0 to seeds - 1."""
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
            "Mean average precision on the test set of a ChestX-ray14 subset",
            (f"{CHEST} method={MULTI_LABEL} {steps('chestxray14')}",),
        ),
        Item(
            "tab:adam",
            "Results with Adam",
            (f"{FMNIST} method={ADAM} optimizer=adam lr=0.001 {steps('fmnist')}",),
        ),
        Item(
            "fig:is_scores",
            "S(W) during training, for fixed tau and Linear-tau",
            (
                f"{FMNIST} method=emais lr=0.01 num_steps=25000 tau=1000,5000,10000,25000",
                f"{FMNIST} method=emais lr=0.01 num_steps=25000",
            ),
        ),
        Item(
            "fig:fmnist_sgd_unif_n_ems",
            "EMAIS beside SGD-Uni with a minibatch that follows its N_ems",
            (
                f"{FMNIST} method=sgd-scan,sgd-uni,emais lr=0.01 num_steps=25000",
                f"{FMNIST} method=sgd-uni lr=0.01 num_steps=25000 follow=emais",
            ),
        ),
        Item(
            "fig:fmnist_lr_adjust_ablation",
            "EMAIS with and without the learning-rate adjustment",
            (
                f"{FMNIST} method=emais,sgd-uni lr=0.01 num_steps=25000",
                f"{FMNIST} method=emais lr=0.01 num_steps=25000 rule=none",
            ),
        ),
        Item(
            "fig:additional_state_updates",
            "EMAIS with the statistics of all samples refreshed every 500 steps",
            (
                f"{FMNIST} method=emais lr=0.01 num_steps=25000",
                f"{FMNIST} method=emais lr=0.01 num_steps=25000 refresh_every=500",
            ),
        ),
        Item(
            "fig:score_and_trvars",
            "S(W) and the variance traces behind it",
            (f"{FMNIST} method=emais lr=0.01 num_steps=25000",),
        ),
        Item(
            "tuned_lr",
            "Beyond the paper: the learning rate tuned for each method, Fashion-MNIST, 6250 steps",
            (f"{FMNIST} method=sgd-scan,rais,emais lr=0.003,0.01,0.03,0.1 num_steps=6250",),
        ),
        Item(
            "rais_rules",
            "Beyond the paper: what RAIS draws, with other learning-rate rules",
            (
                f"{FMNIST} method=rais,emais lr=0.01 num_steps=6250,12500",
                f"{FMNIST} method=rais lr=0.01 num_steps=6250,12500 rule=linear,gain",
            ),
        ),
        Item(
            "momentum",
            "Beyond the paper: the momentum, which the paper does not state",
            (f"{FMNIST} method=sgd-scan,emais lr=0.01 num_steps=6250,12500 momentum=0.8,0.85,0.9",),
        ),
        Item(
            "emais_auto",
            "Beyond the paper: EMAIS with its memory chosen on the way, and with fixed multiples of Linear-tau",
            (
                f"{FMNIST} method=emais,emais-auto lr=0.01 {steps('fmnist')}",
                f"{FMNIST} method=emais-auto lr=0.01 num_steps=12500 factors=0.3,0.1,0.03 shrinks=0.1",
            ),
        ),
    )
}


def find(label: str) -> Item:
    """The item with this label, or an error that lists the labels."""
    choose("table or figure", label, ITEMS)
    return ITEMS[label]

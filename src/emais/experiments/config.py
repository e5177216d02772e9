"""What one training run is: data, network, method and settings."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any

from ..errors import EmaisError, nearest, number_from_0, positive_float, positive_int, whole_number
from ..methods import METHODS
from ..rates.rules import RULES
from .data import DATA_NAMES

MODELS = ("lenet5", "lenet5-relu", "resnet18", "resnet18-gn", "resnet50", "perceptron")
OPTIMIZERS = ("sgd", "adam")
SCHEDULES = ("steps", "effective", "progress")
GIVEN_BY_THE_RUN = {
    "num_samples", "batch_size", "num_steps", "seed", "device", "resident", "effective_steps", "process_group",
    "sharded", "timeout",
}  # fmt: skip
FOLLOWERS = {"emais": "sgd-uni", "progress": "sgd-scan"}  # what a run may follow, and which method does
STEADY = {"sgd": "steady", "adam": "steady-sqrt"}  # EMAIS-auto's rule in the library, by optimizer


@dataclass(frozen=True)
class Config:
    """One training run.

    momentum: of SGD; rule None: the method's own, for emais-auto that of emais, as in all tables that name no rule;
    refresh_every: steps between two updates of the statistics of all samples, 0 for never; follow "emais": sgd-uni with
    the minibatch sizes that EMAIS's run of the same seed was worth; follow "progress": sgd-scan shortened to the steps
    that EMAIS-auto's run at equal progress took with this seed;
    schedule: the learning rate's cosine over "steps", or over "effective" ones, of which a step counts as many as its
    learning-rate factor, or over effective ones in a run that ends when they reach num_steps ("progress"); options:
    further settings of the method, e.g. tau.

    >>> Config("fmnist", "lenet5", "emais", num_steps=6250).weight_decay
    0.001
    """

    data: str
    model: str
    method: str
    optimizer: str = "sgd"
    lr: float = 0.01
    weight_decay: float = 1e-3
    num_steps: int = 6250
    seed: int = 0
    batch_size: int = 128
    momentum: float = 0.9
    rule: str | None = None
    refresh_every: int = 0
    follow: str = ""
    schedule: str = "steps"
    options: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name, known in KNOWN.items():
            choose(name, getattr(self, name), known)
        if self.rule is not None:
            choose("rule", self.rule, RULES)
        for name in ("num_steps", "batch_size"):
            positive_int(name, getattr(self, name))
        positive_float("lr", self.lr)
        number_from_0("weight_decay", self.weight_decay)
        number_from_0("momentum", self.momentum, below=1)
        for name in ("seed", "refresh_every"):
            whole_number(name, getattr(self, name), 0, 2**63 - 1)
        if self.follow and FOLLOWERS.get(self.follow) != self.method:
            known = " and ".join(f"{method} can follow {leader!r}" for leader, method in FOLLOWERS.items())
            raise EmaisError(f"only {known}: got {self.method} following {self.follow!r}")
        if "effective_steps" in self.options:
            raise EmaisError("a run here ends at equal progress with schedule=progress: leave effective_steps out")
        for option in self.options:
            choose(f"setting of {self.method}", option, options_of(self.method))

    def key(self) -> tuple[Any, ...]:
        """What tells this run from all others."""
        values = asdict(self)
        return (*(values[f.name] for f in fields(self) if f.name != "options"), *option_key(self.options))

    def group(self) -> tuple[Any, ...]:
        """Runs that agree in this can be trained side by side."""
        ends_early = self.schedule == "progress"
        return self.data, self.model, self.optimizer, self.num_steps, self.batch_size, self.follow, ends_early


KNOWN: dict[str, Iterable[str]] = {
    "data": DATA_NAMES,
    "model": MODELS,
    "method": METHODS,
    "optimizer": OPTIMIZERS,
    "schedule": SCHEDULES,
}


def options_of(method: str) -> set[str]:
    """The settings of a method that a run may give as its own.

    >>> sorted(options_of("sgd-scan"))
    ['max_scale', 'smoothing', 'unbiased']
    """
    return set(METHODS[method].settings()) - GIVEN_BY_THE_RUN


def option_key(options: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """The options of a run as a part of its key: sorted, and with tuples for lists, which files make of tuples.

    >>> option_key({"window": 50, "factors": [1, 0.3]})
    [('factors', (1, 0.3)), ('window', 50)]
    """
    return sorted((name, tuple(v) if isinstance(v, list) else v) for name, v in options.items())


def as_in_library(config: Config) -> Config:
    """The same run with the learning-rate rule that its method has in the library, if it names none.

    >>> as_in_library(Config("digits", "perceptron", "emais-auto")).rule
    'steady'
    """
    if config.rule is None and METHODS[config.method].rule == "steady":
        return replace(config, rule=STEADY[config.optimizer])
    return config


def choose(what: str, value: object, known: Iterable[str]) -> None:
    """Refuse a value that is not among the known ones, and name the nearest."""
    known = sorted(set(known))
    if value in known:
        return
    raise EmaisError(f"unknown {what} {value!r}: there are {', '.join(known)}{nearest(value, known)}")

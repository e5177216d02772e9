"""A run as one short text: `data=fmnist model=lenet5 method=emais lr=0.01 num_steps=6250 seed=0`."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from ..errors import EmaisError, nearest, number_from_0, positive_float, positive_int, whole_number
from ..lr import RULES
from ..methods import METHODS
from .datasets import NAMES

MODELS = ("lenet5", "lenet5-relu", "resnet18", "resnet18-gn", "resnet50", "perceptron")
OPTIMIZERS = ("sgd", "adam")
SCHEDULES = ("steps", "effective")
MOST_RUNS = 100_000
FRACTIONS = ("lr", "weight_decay", "momentum")
NUMBERS = (*FRACTIONS, "num_steps", "seed", "batch_size", "refresh_every")


@dataclass(frozen=True)
class Config:
    """One training run.

    momentum: of SGD; rule None: the method's own; refresh_every: steps between two updates of the statistics of all
    samples, 0 for never; follow "emais": sgd-uni with the minibatch sizes that EMAIS's run of the same seed was worth;
    schedule: the learning rate's cosine over "steps", or over "effective" ones, of which a step counts as many as its
    learning-rate factor; options: further settings of the method, e.g. tau.

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
        for name, known in _KNOWN.items():
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
        if self.follow and (self.follow, self.method) != ("emais", "sgd-uni"):
            raise EmaisError(f"only sgd-uni can follow, and only emais: got {self.method} following {self.follow!r}")
        allowed = set(METHODS[self.method].settings()) - {
            "num_samples",
            "batch_size",
            "num_steps",
            "seed",
            "device",
            "resident",
        }
        for option in self.options:
            choose(f"setting of {self.method}", option, allowed)

    def key(self) -> tuple[Any, ...]:
        """What tells this run from all others."""
        values = asdict(self)
        return (*(values[f.name] for f in fields(self) if f.name != "options"), *told_apart(self.options))

    def group(self) -> tuple[Any, ...]:
        """Runs that agree in this can be trained side by side."""
        return self.data, self.model, self.optimizer, self.num_steps, self.batch_size, self.follow


_KNOWN: dict[str, Iterable[str]] = {
    "data": NAMES,
    "model": MODELS,
    "method": METHODS,
    "optimizer": OPTIMIZERS,
    "schedule": SCHEDULES,
}


def told_apart(options: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """The part of a run's key that its options are; what is a tuple comes back from a file as a list.

    >>> told_apart({"window": 50, "factors": [1, 0.3]})
    [('factors', (1, 0.3)), ('window', 50)]
    """
    return sorted((name, tuple(v) if isinstance(v, list) else v) for name, v in options.items())


def choose(what: str, value: object, known: Iterable[str]) -> None:
    """Refuse a value that is not among the known ones, and name the nearest."""
    known = sorted(set(known))
    if value in known:
        return
    raise EmaisError(f"unknown {what} {value!r}: there are {', '.join(known)}{nearest(value, known)}")


def parse(text: str) -> list[Config]:
    """All runs that a text describes: `key=value` pairs, `a,b` for several values and `0-4` for a range of seeds;
    `a:b` is one value that is made of several.

    >>> [c.seed for c in parse("data=digits model=perceptron method=emais seed=0-2")]
    [0, 1, 2]
    """
    known = [f.name for f in fields(Config) if f.name != "options"]
    choices: dict[str, list[Any]] = {}
    if spaced := re.search(r"\S*(,\s+|\s+,\s*)\S*", text):
        got = spaced.group()
        raise EmaisError(f"a comma joins values of one key, without a space, e.g. method=emais,rais: got {got!r}")
    for word in text.split():
        name, separator, value = word.partition("=")
        if not separator or not value:
            raise EmaisError(f"a configuration is made of key=value pairs, got {word!r}")
        if name in choices:
            raise EmaisError(f"{name} is given twice in {text!r}: write {name}=a,b for several values")
        choices[name] = [convert(name, v) for v in spread(name, value)]
    # what is misspelt comes before what is missing: one is often why the other is
    methods = [METHODS[m] for m in choices.get("method", METHODS) if m in METHODS]
    ours = set(METHODS["emais"].settings()) - {"num_samples", "device", "resident"}
    for name, values in choices.items():
        if name not in known and not any(name in method.settings() for method in methods):
            choose("key", name, [*known, *ours])
        for value in values if name in _KNOWN else ():
            choose(name, value, _KNOWN[name])
    missing = [f"{name}=" for name in ("data", "model", "method") if name not in choices]
    if missing:
        raise EmaisError(f"the configuration {text!r} lacks {', '.join(missing)}")
    check_count(math.prod(map(len, choices.values())))
    runs = []
    for chosen in itertools.product(*choices.values()):
        given = dict(zip(choices, chosen, strict=True))
        options = {k: given.pop(k) for k in list(given) if k not in known}
        runs.append(Config(**given, options=options))
    return runs


def check_count(runs: int) -> None:
    """Say that nobody will wait for so many runs, before they are laid out one by one."""
    if runs > MOST_RUNS:
        raise EmaisError(f"these would be {runs:,} runs, at most {MOST_RUNS:,} are taken at once: give fewer values")


def spread(name: str, value: str) -> list[str]:
    """The values that a text stands for."""
    found = []
    for part in value.split(","):
        low, dash, high = part.partition("-")
        if name == "seed" and dash and low.isdigit() and high.isdigit():
            if int(low) > int(high):
                raise EmaisError(f"seed={part} names no seed: write the lower one first, e.g. seed=0-4")
            check_count(int(high) - int(low) + 1)
            found += [str(k) for k in range(int(low), int(high) + 1)]
        else:
            found.append(part)
    return found


def convert(name: str, value: str) -> Any:
    """A number where it reads as one; numbers that may have to be whole are whole if they can be; a tuple where there
    are colons.

    >>> convert("num_steps", "1e3"), convert("lr", "1.0"), convert("factors", "1:0.3")
    (1000, 1.0, (1, 0.3))
    """
    if ":" in value and name not in NUMBERS:
        return tuple(convert(name, part) for part in value.split(":"))
    if name in ("data", "model", "method", "optimizer", "rule", "follow", "schedule"):
        return value
    if value.lower() in ("true", "false"):
        return value.lower() == "true"
    for kind in (int, float):
        try:
            found = kind(value)
        except ValueError:
            continue
        whole = isinstance(found, float) and found.is_integer() and abs(found) < 2**53
        return int(found) if whole and name not in FRACTIONS else found
    if name in NUMBERS:
        raise EmaisError(f"{name} must be a number, got {value!r}")
    return value

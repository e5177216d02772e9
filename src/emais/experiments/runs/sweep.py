"""Many runs as one short text: `data=fmnist model=lenet5 method=emais,rais num_steps=6250 seed=0-4`.

This is for the command line; code says `product.runs(...)`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from ...errors import EmaisError
from ...methods import METHODS
from ..config import KNOWN, Config, choose, options_of
from .product import CONFIG_FIELDS, expand

MOST_RUNS = 100_000
FRACTIONS = ("lr", "weight_decay", "momentum")
NUMERIC = (*FRACTIONS, "num_steps", "seed", "batch_size", "refresh_every")


def parse(text: str) -> list[Config]:
    """All runs that a text describes: `key=value` pairs, `a,b` for several values and `0-4` for a range of seeds;
    `a:b` is one value that is made of several.

    >>> [c.seed for c in parse("data=digits model=perceptron method=emais seed=0-2")]
    [0, 1, 2]
    """
    choices = read_choices(text)
    check_names(choices)  # what is misspelt comes before what is missing: one is often why the other is
    missing = [f"{name}=" for name in ("data", "model", "method") if name not in choices]
    if missing:
        raise EmaisError(f"the configuration {text!r} lacks {', '.join(missing)}")
    check_count(math.prod(map(len, choices.values())))
    return expand(choices)


def read_choices(text: str) -> dict[str, list[Any]]:
    """The values of each key in a text, in its order."""
    if spaced := re.search(r"\S*(,\s+|\s+,\s*)\S*", text):
        got = spaced.group()
        raise EmaisError(f"a comma joins values of one key, without a space, e.g. method=emais,rais: got {got!r}")
    choices: dict[str, list[Any]] = {}
    for word in text.split():
        name, separator, value = word.partition("=")
        if not separator or not value:
            raise EmaisError(f"a configuration is made of key=value pairs, got {word!r}")
        if name in choices:
            raise EmaisError(f"{name} is given twice in {text!r}: write {name}=a,b for several values")
        choices[name] = [convert(name, v) for v in values_of(name, value)]
    return choices


def check_names(choices: Mapping[str, Sequence[Any]]) -> None:
    """Refuse keys that neither a run nor one of its methods has, and names of data, networks or methods not known."""
    methods = [METHODS[m] for m in choices.get("method", METHODS) if m in METHODS]
    for name, values in choices.items():
        if name not in CONFIG_FIELDS and not any(name in method.settings() for method in methods):
            choose("key", name, [*CONFIG_FIELDS, *options_of("emais")])
        for value in values if name in KNOWN else ():
            choose(name, value, KNOWN[name])


def check_count(runs: int) -> None:
    """Refuse a sweep of absurdly many runs before it is expanded."""
    if runs > MOST_RUNS:
        raise EmaisError(f"these would be {runs:,} runs, at most {MOST_RUNS:,} are taken at once: give fewer values")


def values_of(name: str, value: str) -> list[str]:
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
    if ":" in value and name not in NUMERIC:
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
    if name in NUMERIC:
        raise EmaisError(f"{name} must be a number, got {value!r}")
    return value

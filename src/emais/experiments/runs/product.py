"""Many runs as Python values: `runs(data="fmnist", model="lenet5", method=Each("emais", "rais"), lr=0.01)`."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

from ..config import Config

# of a run; all other names are options of its method
CONFIG_FIELDS = tuple(f.name for f in fields(Config) if f.name != "options")


class Each(tuple[Any, ...]):
    """Several values of one setting, each of which makes runs of its own; a plain tuple is one value.

    >>> Each(6250, 12500) == (6250, 12500)
    True
    """

    __slots__ = ()

    def __new__(cls, *values: Any) -> Each:
        """The values, as arguments."""
        return super().__new__(cls, values)


def runs(**values: Any) -> tuple[Config, ...]:
    """A run for every combination of the values, the last one changing fastest.

    >>> found = runs(data="fmnist", model="lenet5", method="emais-auto", lr=Each(0.1, 0.01), powers=(1, 0.5))
    >>> [(config.lr, config.options) for config in found]
    [(0.1, {'powers': (1, 0.5)}), (0.01, {'powers': (1, 0.5)})]
    """
    return tuple(expand({name: value if isinstance(value, Each) else (value,) for name, value in values.items()}))


def expand(choices: Mapping[str, Sequence[Any]]) -> list[Config]:
    """A run for every combination of the choices; what is no setting of a run is an option of its method.

    >>> [c.seed for c in expand({"data": ["digits"], "model": ["perceptron"], "method": ["emais"], "seed": [0, 1]})]
    [0, 1]
    """
    found = []
    for chosen in itertools.product(*choices.values()):
        given = dict(zip(choices, chosen, strict=True))
        options = {name: given.pop(name) for name in choices if name not in CONFIG_FIELDS}
        found.append(Config(**given, options=options))
    return found

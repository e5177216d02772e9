"""What is said below figures of several methods: only what is true of those that are drawn."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ...analysis.paper import NAMES
from ...analysis.quantities import last_moving
from ...analysis.settings import Setting
from ...runs.catalogue import Item
from ..tables.comparisons import ONE_DRAW

EVEN = ("sgd-scan", "sgd-uni", "self-paced")
BY_CONFIDENCE = ("confidence", "confvar")


def drawn(settings: Sequence[Setting], methods: Sequence[str]) -> str:
    """Those of the methods that are drawn, as words."""
    there = {s.config.method for s in settings}
    return " and ".join(NAMES[method] for method in methods if method in there)


def who(settings: Sequence[Setting], item: Item) -> str:
    """Whether these are all methods of a table."""
    wanted = {config.method for config in item.configs(1)}
    return "all methods" if {s.config.method for s in settings} == wanted else "the methods run so far"


def still_note(settings: Sequence[Setting]) -> str:
    """From where on RAIS no longer learns, if that is before the end of its runs."""
    stops = [(s.config.num_steps, last_moving(s)) for s in settings if s.config.method == "rais"]
    steps = [f"{stop:.0f} of {length}" for length, stop in stops if math.isfinite(stop)]
    if not steps:
        return ""
    return (
        f"The learning rate of RAIS comes down to 0 before the end, by step {', '.join(steps)} (means over seeds): "
        "from there on its parameters no longer change."
    )


def sizes_note(settings: Sequence[Setting]) -> str:
    """What N_ems means for methods that draw evenly, and for those that weight nothing."""
    said = ["The minibatch size N is 128 for all. N_ems of a point is made from sums over its steps; the mean of the"]
    said.append("minibatches' own N_ems, by which the learning rate is multiplied, is larger where they differ much.")
    if drawn(settings, EVEN):
        said.append("Methods that draw evenly stay there.")
    if plain := drawn(settings, BY_CONFIDENCE):
        said.append(f"{plain}: plain means, so it is what the draws would be worth with importance coefficients.")
    return " ".join(said)


def scores_note(settings: Sequence[Setting]) -> str:
    """What S(W) is taken from, and what it does not say of some methods."""
    said = ["S(W) is estimated from each method's own draws."]
    if name := drawn(settings, ("presampling",)):
        norms = "draws by the norms of the present model"
        if any(s.config.model.startswith("resnet") for s in settings):
            said.append(f"{name} {norms} in evaluation mode: with BatchNorm those in training are others.")
        else:
            said.append(f"{name} {norms}, so it is at 0 by construction.")
        said.append(ONE_DRAW.format("These values"))
    return " ".join([*said, still_note(settings)])

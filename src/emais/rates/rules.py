"""Which learning-rate rules there are, and which one suits an optimizer."""

from __future__ import annotations

from torch.optim import Optimizer

from ..errors import EmaisError
from ..functional.rates import LR_RULES

RULES = (*LR_RULES, "rais")


_LINEAR = ("SGD", "ASGD")


_SQRT = (
    "Adam",
    "AdamW",
    "NAdam",
    "RAdam",
    "Adamax",
    "SparseAdam",
    "RMSprop",
    "Adagrad",
    "Adadelta",
    "Adafactor",
)


def default_rule(optimizer: Optimizer | None) -> str:
    """The rule that suits an optimizer's class: linear for SGD, sqrt for the Adam family.

    Paper: sec:epsilon_ems
    """
    if optimizer is None:
        raise EmaisError(f"without an optimizer the rule must be given: one of {', '.join(RULES)}")
    names = {c.__name__ for c in type(optimizer).__mro__}
    if names.intersection(_SQRT):
        return "sqrt"
    if names.intersection(_LINEAR):
        return "linear"
    raise EmaisError(
        f"no learning-rate rule is known for {type(optimizer).__name__}: pass rule= one of {', '.join(RULES)}"
    )


def check_rule(rule: str) -> str:
    """Return the rule, or list the ones there are."""
    if rule not in RULES:
        raise EmaisError(f"rule must be one of {', '.join(RULES)}, got {rule!r}")
    return rule

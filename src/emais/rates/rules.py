"""Which learning-rate rules there are, and which one suits an optimizer."""

from __future__ import annotations

from torch.optim import Optimizer

from ..errors import EmaisError
from ..functional.rates import LR_RULES

RULES = (*LR_RULES, "rais", "steady", "steady-sqrt")
AT_LEAST_1 = ("none", "rais", "steady", "steady-sqrt")  # those whose factor never makes a step smaller


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


_ROOTS = {"linear": "sqrt", "steady": "steady-sqrt"}


def default_rule(optimizer: Optimizer | None, usual: str = "linear") -> str:
    """A method's usual rule as it suits an optimizer's class: of linear and steady, the Adam family gets the root.

    Paper: sec:epsilon_ems
    """
    if usual not in _ROOTS:
        return usual
    if optimizer is None:
        raise EmaisError(f"without an optimizer the rule must be given: one of {', '.join(RULES)}")
    names = {c.__name__ for c in type(optimizer).__mro__}
    if names.intersection(_SQRT):
        return _ROOTS[usual]
    if names.intersection(_LINEAR):
        return usual
    raise EmaisError(
        f"no learning-rate rule is known for {type(optimizer).__name__}: pass rule= one of {', '.join(RULES)}"
    )


def check_rule(rule: str) -> str:
    """Return the rule, or list the ones there are."""
    if rule not in RULES:
        raise EmaisError(f"rule must be one of {', '.join(RULES)}, got {rule!r}")
    return rule


def check_rate(optimizer: Optimizer | None) -> None:
    """Refuse an optimizer that has no rate to scale: it makes its own in each step."""
    for group in [] if optimizer is None else optimizer.param_groups:
        # transformers' AdafactorSchedule writes a rate into the groups, which the optimizer does not read
        if group.get("relative_step") or ("lr" in group and group["lr"] is None):
            given = "relative_step=True" if group.get("relative_step") else "lr=None"
            raise EmaisError(
                f"{type(optimizer).__name__} has {given}, it chooses its rate itself, so there is none to scale: give "
                'it one (for transformers\' Adafactor lr=1e-3, relative_step=False), or attach it with rule="none"'
            )


def check_decay(optimizer: Optimizer | None) -> None:
    """Refuse an optimizer whose weight decay is not simply multiplied by the rate."""
    names = {c.__name__ for c in type(optimizer).__mro__}
    groups = [] if optimizer is None else optimizer.param_groups
    decoupled = all(group.get("decoupled_weight_decay", False) for group in groups)
    if optimizer is None or not (names & {"SGD", "AdamW"} or decoupled):
        kind = "an update of your own" if optimizer is None else type(optimizer).__name__
        raise EmaisError(
            f"scale_decay=False needs SGD, AdamW or another optimizer with decoupled weight decay, got {kind}: leave "
            "it out, and the factor multiplies the weight decay, too"
        )

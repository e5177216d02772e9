"""What the saved state of a schedule may hold: all of it is checked before any of it is taken over."""

from __future__ import annotations

import math
from numbers import Real
from typing import Any

import torch

from ..errors import EmaisError, shortly
from ..statistics.limits import AS_SAVED, FROM_0, MOST_STEPS, Limit

RATE_LIMIT = Limit(-1e-9, 1e30)  # a schedule's last rate may be a little below 0 from rounding


def check_schedule_state(state: Any, mine: dict[str, Any], groups: int, unit: float) -> None:
    """Raise EmaisError unless `state` could have been saved by a schedule whose present state is `mine`.

    groups: parameter groups of the optimizer; unit: effective steps in one step of the scheduler.
    """
    if not isinstance(state, dict):
        raise EmaisError(f"the state of a schedule must be a dict made by state_dict(), got {type(state).__name__}")
    if "scheduler" in state and (state["scheduler"] is None) != (mine["scheduler"] is None):
        raise EmaisError("this state was saved with another kind of schedule (a function, or a torch scheduler)")
    _check_keys(state, mine, "the state of a schedule")
    for name in ("t_eff", "pending"):
        _check_numbers([state[name]], 1, name, FROM_0)
    place, high = state["place"], state["high"]
    if isinstance(place, bool) or not isinstance(place, int) or place < 0:
        raise EmaisError(f"place must be a whole number of at least 0, got {shortly(place)}: {AS_SAVED}")
    _check_numbers(state["low"], groups, "low", RATE_LIMIT)
    for name in ("high", "change", "written", "rates"):
        if state[name] is not None:
            _check_numbers(state[name], groups, name, RATE_LIMIT)
    if (state["written"] is None) != (state["rates"] is None):
        raise EmaisError(f"written and rates come together: {AS_SAVED}")
    _check_like(state["scheduler"], mine["scheduler"], "scheduler")
    _check_place(state["t_eff"] / unit, place, state["scheduler"], stepped=high is not None)


def _check_place(t: float, place: int, scheduler: Any, stepped: bool) -> None:
    """t lies between two steps of the scheduler, `place` and the next, to which it was stepped."""
    known = scheduler.get("last_epoch") if isinstance(scheduler, dict) else None
    between = place <= t <= place + 1 + 1e-9 if stepped else place == 0 and (scheduler is None or t == 0)
    if not between or (known is not None and not place + stepped <= known <= MOST_STEPS):
        raise EmaisError(f"t_eff (at {t:g}), place={place} and the scheduler's state do not fit together: {AS_SAVED}")


def _check_numbers(values: Any, count: int, name: str, limit: Limit) -> None:
    numbers = isinstance(values, list) and len(values) == count and all(map(_is_number, values))
    if not numbers:
        raise EmaisError(f"{name} must hold {count} finite numbers, got {shortly(values)}: {AS_SAVED}")
    limit.check(torch.tensor([float(v) for v in values], dtype=torch.float64, device="cpu"), name)


def _is_number(value: Any) -> bool:
    if isinstance(value, bool) or not isinstance(value, Real):
        return False
    try:
        return math.isfinite(value)
    except OverflowError:  # a whole number that is too large for a float
        return False


def _check_keys(state: dict[Any, Any], mine: dict[Any, Any], where: str) -> None:
    missing, extra = mine.keys() - state.keys(), state.keys() - mine.keys()
    if missing or extra:
        raise EmaisError(
            f"{where} has missing keys {sorted(map(str, missing))} and unexpected keys {sorted(map(str, extra))}: "
            f"{AS_SAVED}, and make the schedule as it was saved"
        )


def _check_like(value: Any, want: Any, name: str) -> None:
    """Whether a part of a scheduler's state is of the kind that it is in a scheduler of its own."""
    if isinstance(want, dict) and isinstance(value, dict):
        if all(isinstance(key, str) for key in want):  # not the milestones of MultiStepLR
            _check_keys(value, want, name)
            for key in want:
                _check_like(value[key], want[key], f"{name}.{key}")
        return
    if isinstance(want, list | tuple) and isinstance(value, list | tuple):
        for k, (one, other) in enumerate(zip(value, want, strict=False)):
            _check_like(one, other, f"{name}[{k}]")
        if len(value) == len(want):
            return
    elif _is_number(want):
        if _is_number(value):
            return
    elif want is None or type(value) is type(want):
        return
    raise EmaisError(f"{name} is {shortly(value)} in the state but {shortly(want)} in this schedule: {AS_SAVED}")

"""States of the sharded form: each has a part of the samples, and parts can be cut and joined for other processes."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ..errors import EmaisError
from ..statistics.limits import AS_SAVED

if TYPE_CHECKING:
    from ..engine import Engine

Part = tuple[int, int, dict[str, Any]]  # first sample, the one after the last, and their state


def part_key(engine: Engine) -> str:
    """Which samples an engine has, counted over all processes: "first:stop"."""
    first = engine.processes.first
    return f"{first}:{first + engine.num_samples}"


def is_parts(state: Any) -> bool:
    """Whether this is a state of the sharded form.

    >>> is_parts({"parts": {}}), is_parts({"version": 4})
    (True, False)
    """
    return isinstance(state, dict) and state.keys() == {"parts"} and isinstance(state["parts"], dict)


def own_state(engine: Engine, state: Any) -> tuple[Any, bool]:
    """The state of an engine's samples, from one of all samples or from parts; and whether it was put together.

    What was saved by a process with just these samples is taken as it is, with the minibatches that were drawn ahead.
    """
    if not is_parts(state):
        if not engine.processes.sharded or not isinstance(state, dict):
            return state, False
        state = {"parts": {f"0:{engine.total_samples}": state}}
    key = part_key(engine)
    parts = [_part(name, part) for name, part in state["parts"].items()]
    try:
        for first, stop, part in parts:
            if f"{first}:{stop}" == key and part["passes"]["index"].shape[1] == engine.source.batch_size:
                return part, False
        return _joined(engine, sorted(parts, key=lambda part: part[0])), True
    except (KeyError, TypeError, AttributeError, IndexError, RuntimeError) as error:
        raise EmaisError(f"the parts of this state cannot be joined ({error!r}): {AS_SAVED}") from error


def _part(name: Any, part: Any) -> Part:
    if not isinstance(name, str) or not (found := re.fullmatch(r"(\d{1,18}):(\d{1,18})", name)):
        raise EmaisError(f"parts must be named as first:stop, got {name!r}: {AS_SAVED}")
    if not isinstance(part, dict):
        raise EmaisError(f"parts.{name} must be a dict made by state_dict(), got {type(part).__name__}")
    return int(found[1]), int(found[2]), part


def _joined(engine: Engine, parts: list[Part]) -> dict[str, Any]:
    """The samples of an engine, cut out of parts in order. Minibatches that were drawn ahead are drawn again."""
    first = engine.processes.first
    stop = first + engine.num_samples
    overlapping = [part for part in parts if part[0] < stop and part[1] > first]
    _check_cover(overlapping, first, stop)
    base = overlapping[0][2]
    steps = {part["step"] - len(part["passes"]["step"]) for _, _, part in overlapping}
    if len(steps) > 1:
        raise EmaisError(f"the parts of this state are of different steps, {sorted(steps)}: {AS_SAVED}")
    columns = {name: _column(name, overlapping, first, stop) for name in engine.sample_columns}
    if base["state"] and not columns:
        raise EmaisError(
            f"a state of {engine.name} can only go on with the parts that it was saved with: {part_key(engine)} is none"
        )
    width, passes = engine.source.batch_size, base["passes"]
    none = {name: passes[name].new_empty(0, width) for name in ("index", "r")}
    passes = passes | {"step": passes["step"][:0], **none}
    return base | {"step": steps.pop(), "passes": passes, "state": base["state"] | columns}


def _check_cover(parts: list[Part], first: int, stop: int) -> None:
    at = first
    for start, end, _ in parts:
        if start > at or (at > first and start < at):
            break
        at = end
    if at < stop:
        has = ", ".join(f"{start}:{end}" for start, end, _ in parts) or "none of them"
        raise EmaisError(
            f"this process has the samples {first}:{stop}, the state has {has}: load the parts of all processes "
            "together, {'parts': {**one['parts'], **other['parts']}}, in the order of samples that they were saved with"
        )


def _column(name: str, parts: list[Part], first: int, stop: int) -> Tensor:
    cut = []
    for start, end, part in parts:
        column = part["state"][name]
        if column.shape[-1] != end - start:
            raise EmaisError(f"parts.{start}:{end}.state.{name} has {column.shape[-1]} samples: {AS_SAVED}")
        cut.append(column[..., max(first - start, 0) : stop - start])
    return torch.cat(cut, -1)

"""Saving and loading: puts a state together, checks every value of one, and takes over all of it or nothing."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from .errors import EmaisError, check_index
from .loading.draw import Draw
from .processes.parts import own_state, part_key
from .statistics.limits import ABOVE_0, AS_SAVED, FROM_0, MOST_STEPS, Limit

if TYPE_CHECKING:
    from .engine import Engine

STATE_VERSION = 4
# tensors whose first dimension varies: minibatches drawn ahead, attached optimizers, and logits behind a gradient
FREE_LENGTH = {"passes.step", "passes.index", "passes.r", "used", "monitor.before.grad", "monitor.window.grad"}
COUNTS = ("step", "passes.delivered", "monitor.added", "monitor.step")  # whole numbers that vary


def save(engine: Engine) -> dict[str, Any]:
    """Everything that an exact resume needs; minibatches drawn ahead by workers are delivered again.

    With sharded=True it is the part of one process, under a name of its own: parts of all can lie in one dict.
    """
    own = save_own(engine)
    return {"parts": {part_key(engine): own}} if engine.processes.sharded else own


def save_own(engine: Engine) -> dict[str, Any]:
    """The state of this process."""
    return {
        "version": STATE_VERSION,
        "method": engine.name,
        "settings": engine.saved_settings(),
        "step": int(engine.source.step),
        "passes": engine.passes.state_dict(engine.source.batch_size),
        "monitor": engine.monitor.state_dict(),
        "applied": torch.tensor(float(engine.attached.applied), dtype=torch.float64, device="cpu"),
        "effective": engine.progress.saved.cpu().clone(),
        "used": torch.tensor(engine.attached.used(), dtype=torch.int64, device="cpu"),
        "state": engine.state(),
    }


def load_into(engine: Engine, state: dict[str, Any]) -> None:
    """Take over what `save` gave, of an engine made alike. A state that is refused changes nothing."""
    before = save_own(engine)
    state, joined = own_state(engine, state)
    check_sizes(state, engine.batch_size, engine.processes.size)
    check_structure(state, before)
    check_values(engine, state)
    engine.source.restore(state["step"])
    try:
        engine.load_state(state["state"])  # a method's own code
        if joined:
            engine.parts_joined()
    except BaseException as error:  # Ctrl-C, too
        engine.source.restore(before["step"])
        engine.load_state(before["state"])
        if not isinstance(error, Exception):
            raise
        raise EmaisError(f"{engine.name} cannot take this state over ({error}): {AS_SAVED}") from error
    engine.monitor.load_state_dict(state["monitor"])
    engine.passes.load_state_dict(state["passes"], partial(loaded_draw, engine))
    engine.progress.saved.copy_(state["effective"])
    engine.attached.restore(state["used"].tolist(), float(state["applied"]))
    engine.processes.state_loaded(state)


def check_sizes(state: Any, batch_size: int, size: int, what: str = "engine") -> None:
    """A state goes on with any number of processes that train on as many samples a step together."""
    settings = state.get("settings") if isinstance(state, dict) else None
    saved = settings.get("batch_size") if isinstance(settings, dict) else None
    if size > 1 and isinstance(saved, int) and saved != size * batch_size:
        way = f"batch_size={saved // size}" if saved % size == 0 else f"a number of processes that divides {saved}"
        raise EmaisError(
            f"the state has {saved} samples a step over all processes, this {what} {size} x {batch_size} = "
            f"{size * batch_size}: go on with {way}"
        )


def loaded_draw(engine: Engine, step: int, index: Tensor, r: Tensor) -> Draw:
    """A draw that was on its way when the state was saved."""
    arrays = engine.arrays
    at = arrays.number(torch.tensor(step, device=arrays.device))
    return engine.make_draw(at, arrays.array(index), arrays.array(r))


# ---- structure


def check_structure(state: Any, mine: Mapping[str, Any], path: str = "", what: str = "engine") -> None:
    """Raise EmaisError unless `state` has the keys, values, dtypes and shapes that `mine`, of a `what`, has."""
    where = path or "state"
    if not isinstance(state, dict):
        raise EmaisError(f"{where} must be a dict made by state_dict(), got {type(state).__name__}")
    for key in ("version", "method"):  # first: where these differ, so does the rest
        if key in mine and key in state:
            _check_leaf(state[key], mine[key], key, what)
    missing, extra = mine.keys() - state.keys(), state.keys() - mine.keys()
    if missing or extra:
        raise EmaisError(
            f"{where} does not fit this {what}: missing keys {sorted(missing)}, unexpected keys "
            f"{sorted(map(str, extra))}: {AS_SAVED}, and make the {what} as it was saved"
        )
    for key in mine:
        _check_leaf(state[key], mine[key], f"{path}.{key}" if path else key, what)


def _check_leaf(value: Any, want: Any, name: str, what: str) -> None:
    if isinstance(want, dict):
        check_structure(value, want, name, what)
    elif isinstance(want, Tensor):
        _check_tensor(value, want, name)
    elif name in COUNTS:
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= MOST_STEPS:
            raise EmaisError(f"{name} must be a whole number of at least 0, got {value!r}")
    elif not _same(value, want):
        way = "use the release that saved it" if name == "version" else f"make the {what} as it was saved"
        raise EmaisError(f"{name} is {value!r} in the state but {want!r} in this {what}: {way}")


def _same(value: Any, want: Any) -> bool:
    """Whether two settings agree; arrays and the like, which do not compare to a plain truth, never do."""
    plain = (bool, int, float, str, list, tuple, type(None))
    return isinstance(value, plain) and (value is want or repr(value) == repr(want) or bool(value == want))


def _check_tensor(value: Any, want: Tensor, name: str) -> None:
    start = 1 if name in FREE_LENGTH else 0
    fits = isinstance(value, Tensor) and value.dtype == want.dtype and value.dim() == want.dim()
    if not fits or value.shape[start:] != want.shape[start:]:
        got = f"{value.dtype} {tuple(value.shape)}" if isinstance(value, Tensor) else type(value).__name__
        raise EmaisError(f"{name} must be {want.dtype} of shape {tuple(want.shape)}, got {got}")
    if value.is_meta or value.layout != torch.strided or value.requires_grad or not value.is_cpu:
        raise EmaisError(
            f"{name} must be a plain tensor on the CPU as state_dict() gives it, not sparse, meta or with gradients"
        )


# ---- values


def check_values(engine: Engine, state: dict[str, Any]) -> None:
    """Raise EmaisError if a value could not have been saved by an engine like this one."""
    step = state["step"]
    for name, limit in engine.limits(step).items():
        limit.check(state["state"][name], f"state.{name}")
    engine.monitor.check_state(state["monitor"])
    added = state["monitor"]["added"]
    if added > step:
        raise EmaisError(f"monitor.added is {added}, more than the {step} steps that were drawn: {AS_SAVED}")
    Limit(0, added).check(state["used"], "used")
    for name in ("applied", "effective"):
        FROM_0.check(state[name], name)
    check_passes(state["passes"], step, engine.num_samples)


def check_passes(passes: dict[str, Any], step: int, num_samples: int, usable: Limit = ABOVE_0) -> None:
    """The draws that were on their way: of one length, in order, of steps that were taken, with a usable r."""
    if len({len(passes[key]) for key in ("step", "index", "r")}) > 1:
        raise EmaisError(f"passes.step, passes.index and passes.r must be of one length: {AS_SAVED}")
    check_index(passes["index"].reshape(-1), num_samples)
    Limit(1, step).check(passes["step"], "passes.step")
    usable.check(passes["r"], "passes.r")
    if (passes["step"].diff() <= 0).any():
        raise EmaisError(f"passes.step must rise, got {passes['step'].tolist()}: {AS_SAVED}")

"""Checks a saved state against the engine that is to load it, and names what differs."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from .errors import EmaisError

# first dimensions that vary: minibatches drawn ahead, and logits behind a smoothed gradient
_FREE_LENGTH = {"passes.step", "passes.index", "passes.r", "monitor.grad"}


def check_state(state: Any, mine: dict[str, Any], path: str = "") -> None:
    """Raise EmaisError unless `state` has the keys, values, dtypes and shapes that `mine` says it should."""
    where = path or "state"
    if not isinstance(state, dict):
        raise EmaisError(f"{where} must be a dict made by state_dict(), got {type(state).__name__}")
    for key in ("version", "method"):  # first: where these differ, so does the rest
        if key in mine and key in state:
            _check_value(state[key], mine[key], key)
    missing, extra = mine.keys() - state.keys(), state.keys() - mine.keys()
    if missing or extra:
        raise EmaisError(
            f"{where} does not fit this engine: missing keys {sorted(missing)}, unexpected keys "
            f"{sorted(map(str, extra))}: pass what state_dict() gave, and make the engine as it was saved"
        )
    for key in mine:
        _check_value(state[key], mine[key], f"{path}.{key}" if path else key)
    if path == "passes" and len({len(state[key]) for key in ("step", "index", "r")}) > 1:
        raise EmaisError("passes.step, passes.index and passes.r must be of one length: pass what state_dict() gave")


def _check_value(value: Any, want: Any, name: str) -> None:
    if isinstance(want, dict):
        check_state(value, want, name)
    elif isinstance(want, Tensor):
        _check_tensor(value, want, name)
    elif name in ("step", "passes.into"):
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise EmaisError(f"{name} must be a whole number of at least 0, got {value!r}")
    elif isinstance(value, Tensor) or value != want:
        way = "use the release that saved it" if name == "version" else "make the engine as it was saved"
        raise EmaisError(f"{name} is {value!r} in the state but {want!r} in this engine: {way}")


def _check_tensor(value: Any, want: Tensor, name: str) -> None:
    start = 1 if name in _FREE_LENGTH else 0
    fits = isinstance(value, Tensor) and value.dtype == want.dtype and value.dim() == want.dim()
    if not fits or value.shape[start:] != want.shape[start:]:
        got = f"{value.dtype} {tuple(value.shape)}" if isinstance(value, Tensor) else type(value).__name__
        raise EmaisError(f"{name} must be {want.dtype} of shape {tuple(want.shape)}, got {got}")
    if value.is_meta or value.layout != torch.strided or value.requires_grad:
        raise EmaisError(f"{name} must be a plain tensor as state_dict() gives it, not sparse, meta or with gradients")

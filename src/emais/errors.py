"""The one error class, and the checks that every constructor shares."""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterable
from numbers import Number, Real
from operator import index

import torch
from torch import Tensor


class EmaisError(ValueError):
    """Something was used in a way that cannot give a right answer; the message says what to do instead."""

    shared = False  # whether the other processes of a group have the error, too


class UnknownOption(EmaisError, TypeError):
    """An unknown keyword, with the closest valid one."""

    def __init__(self, where: str, name: str, known: Iterable[str]) -> None:
        known = sorted(known)
        super().__init__(f"{where} takes no {name!r}: it takes {', '.join(known)}{nearest(name, known)}")


def nearest(value: object, known: Iterable[str]) -> str:
    """The end of a message about an unknown word: the closest known one, if there is one.

    >>> nearest("emias", ["emais", "rais"])
    "; did you mean 'emais'?"
    """
    words = {word.lower(): word for word in known}
    close = difflib.get_close_matches(str(value).lower(), words, n=1)
    return f"; did you mean {words[close[0]]!r}?" if close else ""


def positive_int(name: str, value: object) -> int:
    """Return `value` as an int of at least 1, or say what was given.

    >>> positive_int("batch_size", 128)
    128
    """
    whole = as_index(value)
    if whole is None or whole < 1:
        hint = ": pass len(dataset)" if name == "num_samples" and hasattr(value, "__getitem__") else ""
        raise EmaisError(f"{name} must be a whole number of at least 1, got {shortly(value)}{hint}")
    return whole


def truth(name: str, value: object) -> bool:
    """Return `value` if it is True or False, or say what was given.

    >>> truth("unbiased", True)
    True
    """
    if not isinstance(value, bool):
        raise EmaisError(f"{name} must be True or False, got {value!r}")
    return value


def whole_number(name: str, value: object, low: int, high: int) -> int:
    """Return `value` as an int from `low` to `high`, or say what was given.

    >>> whole_number("seed", 0, 0, 2**63 - 1)
    0
    """
    whole = as_index(value)
    if whole is None or not low <= whole <= high:
        raise EmaisError(f"{name} must be a whole number from {low} to {high}, got {shortly(value)}")
    return whole


def as_index(value: object) -> int | None:
    """Whatever serves as an index, numpy's and torch's whole numbers, too, as an int; None if it does not.

    >>> as_index(3), as_index(True), as_index(2.0)
    (3, None, None)
    """
    try:
        truth = isinstance(value, bool) or (isinstance(value, Tensor) and value.dtype == torch.bool)
        return None if truth else index(value)  # type: ignore[arg-type]
    except TypeError:
        return None


def shortly(value: object) -> str:
    """A value as it reads in a message: anything but a number or a short text is named by its type.

    >>> shortly(-1), shortly(torch.ones(100, 100))
    ('-1', 'a Tensor')
    """
    plain = value is None or isinstance(value, (Number, str)) or (isinstance(value, Tensor) and value.dim() == 0)
    return repr(value) if plain and len(repr(value)) <= 60 else f"a {type(value).__name__}"


def positive_float(name: str, value: object) -> float:
    """Return `value` as a finite float above 0, or say what was given.

    >>> positive_float("kappa", 1)
    1.0
    """
    if isinstance(value, bool) or not isinstance(value, Real) or not 0 < float(value) < math.inf:
        raise EmaisError(f"{name} must be a finite number above 0, got {value!r}")
    return float(value)


def number_from_0(name: str, value: object, below: float = math.inf) -> float:
    """Return `value` as a float of at least 0 and below a bound, or say what was given.

    >>> number_from_0("smoothing", 0.9, below=1)
    0.9
    """
    if isinstance(value, bool) or not isinstance(value, Real) or not 0 <= float(value) < below:
        limit = "" if below == math.inf else f" and below {below:g}"
        raise EmaisError(f"{name} must be a number of at least 0{limit}, got {value!r}")
    return float(value)


def number_above(name: str, value: object, low: float) -> float:
    """Return `value` as a float above `low`, infinity included, or say what was given.

    >>> number_above("bound", 10, 1)
    10.0
    """
    if isinstance(value, bool) or not isinstance(value, Real) or not float(value) > low:
        raise EmaisError(f"{name} must be a number above {low:g}, got {value!r}")
    return float(value)


def check_index(indices: Tensor, num_samples: int) -> None:
    """Refuse sample indices outside 0 to M - 1, where numpy would count from the end, and what are no whole numbers.

    >>> import torch
    >>> check_index(torch.tensor([0, 9]), 10)
    """
    if indices.dtype == torch.bool or indices.is_floating_point() or indices.is_complex():
        hint = ": of a mask, mask.nonzero().squeeze(1)" if indices.dtype == torch.bool else ""
        raise EmaisError(f"indices must be whole numbers (torch.int64), got {indices.dtype}{hint}")
    if len(indices) and not 0 <= int(indices.min()) <= int(indices.max()) < num_samples:  # sync on a device
        low, high = int(indices.min()), int(indices.max())
        raise EmaisError(f"indices must be from 0 to {num_samples - 1}, got values from {low} to {high}")


def usable_device(device: torch.device | str) -> torch.device:
    """The device, with its index, or say that it cannot be used here."""
    try:
        return torch.empty(0, device=device).device
    except (AssertionError, RuntimeError, TypeError) as error:
        reason = str(error).splitlines()[0]
        raise EmaisError(f"device {device!r} cannot be used here: {reason}") from None

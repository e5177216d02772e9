"""Sums over steps: their average with smoothing, RAIS's moving moments, and how sums are saved."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from ..functional.rates import moment_gain
from ..functional.traces import GradientSums
from ..statistics.arrays import Array, Arrays, Number

RAIS_WEIGHT = 0.01  # of a new window in the moving averages of the rule "rais"


def usable(sums: GradientSums, arrays: Arrays) -> bool | Tensor:
    """Whether all of these sums are finite."""
    found: bool | Tensor = arrays.finite(sums.moments) & arrays.finite(sums.grad)
    return found if sums.pairs is None else found & arrays.finite(sums.pairs)


class SmoothedSums:
    """The moving average of the windows' sums: s * (average) + (1 - s) * (window), for a smoothing s in [0, 1).

    A window with a non-finite gradient changes nothing. The average is written in place, so that CUDA graphs carry it.
    """

    def __init__(self, smoothing: float, arrays: Arrays) -> None:
        self.smoothing, self._arrays = smoothing, arrays
        self.average: GradientSums | None = None  # of all closed windows

    def fits(self, window: GradientSums) -> bool:
        """Whether a window has logits of the same shape as the average; there may be none yet."""
        return self.average is None or self.average.grad.shape == window.grad.shape

    def with_window(self, window: GradientSums) -> GradientSums:
        """The average with this window in it. One of another shape starts it again."""
        past = self.average
        if past is None or not self.fits(window):
            return window
        s, where = self.smoothing, self._arrays.where
        mixed = past * s + window * (1 - s)
        # a window that is not finite: the average stands. On a device the first window may have spoilt the average:
        # then the window takes its place
        past_usable, mixed_usable = usable(past, self._arrays), usable(mixed, self._arrays)
        stands, anew = past * (mixed.num / past.num), window * (mixed.num / window.num)

        def chosen(name: str) -> Array:
            new, old, own = (getattr(sums, name) for sums in (mixed, stands, anew))
            return where(mixed_usable, new, where(past_usable, old, own))

        pairs = None if mixed.pairs is None else chosen("pairs")
        return replace(mixed, moments=chosen("moments"), grad=chosen("grad"), pairs=pairs)

    def close(self, window: GradientSums) -> None:
        """Take a window in for good."""
        sums, past, arrays = self.with_window(window), self.average, self._arrays
        if past is not None and self.fits(window):
            past.moments[:], past.grad[:] = sums.moments, sums.grad  # type: ignore[assignment]
            if past.pairs is not None:
                past.pairs[:] = sums.pairs  # type: ignore[assignment]
            self.average = replace(past, num=sums.num, share=sums.share, num_pairs=sums.num_pairs)
        elif arrays.known(lambda: usable(sums, arrays), otherwise=True):
            moments, grad = (arrays.array(arrays.copy(x)) for x in (sums.moments, sums.grad))
            pairs = None if sums.pairs is None else arrays.array(arrays.copy(sums.pairs))
            self.average = replace(sums, moments=moments, grad=grad, pairs=pairs)


class RaisMoments:
    """Moving averages over windows of mean r|g|^2, mean r^2|g|^2 and |mean r g|^2, from which RAIS takes its gain."""

    def __init__(self, arrays: Arrays) -> None:
        self._arrays = arrays
        self.saved = torch.zeros(3, dtype=torch.float64, device=arrays.device)
        self._moments = arrays.array(self.saved)  # the same memory

    def with_window(self, window: GradientSums) -> Array:
        """The averages with this window in them; a window that is not finite changes nothing."""
        arrays, means = self._arrays, window.moments / window.num
        new = arrays.stack((means[1], means[0], window.square_at_most() / window.num**2))
        mixed = (1 - RAIS_WEIGHT) * self._moments + RAIS_WEIGHT * new
        return arrays.where(arrays.finite(mixed), mixed, self._moments)

    def close(self, window: GradientSums) -> None:
        """Take a window in for good."""
        self._moments[:] = self.with_window(window)  # type: ignore[assignment]

    def gain(self, window: GradientSums, is_open: bool) -> Number:
        """RAIS's gain for a window, which the averages hold already unless it is open."""
        number, moments = self._arrays.number, self.with_window(window) if is_open else self._moments
        found: Number = moment_gain(number(moments[0]), number(moments[1]), number(moments[2]), window.num)
        return found


def saved_sums(sums: GradientSums | None, arrays: Arrays) -> dict[str, Tensor]:
    """Sums as tensors on the CPU; `num` is 0 where there are none, and `grad` is empty where only norms are known."""
    none = torch.zeros(3, dtype=torch.float64, device="cpu")
    found = GradientSums(0, none, none[:0]) if sums is None else sums
    numbers = torch.tensor([found.num, found.share or 0.0, found.num_pairs], dtype=torch.float64, device="cpu")
    saved = {"moments": found.moments, "grad": found.grad, "pairs": none[:1] if found.pairs is None else found.pairs}
    tensors = {name: torch.as_tensor(x, device=arrays.device).to("cpu", copy=True) for name, x in saved.items()}
    return {"num": numbers[0].clone(), "share": numbers[1].clone(), "num_pairs": numbers[2].clone(), **tensors}


def loaded_sums(state: dict[str, Tensor], arrays: Arrays, ordered: bool = False) -> GradientSums | None:
    """What `saved_sums` gave, as arrays of their own."""
    num, share = float(state["num"]), float(state["share"]) or None
    moments, grad, pairs = (arrays.array(state[name].clone()) for name in ("moments", "grad", "pairs"))
    if not num:
        return None
    return GradientSums(num, moments, grad, share, None if len(grad) else pairs, float(state["num_pairs"]), ordered)

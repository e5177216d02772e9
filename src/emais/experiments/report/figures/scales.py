"""Scales: from values to pixels, with round ticks and their labels."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

AIR = 0.05  # of the range of the values, left free at both ends of an axis


@dataclass(frozen=True)
class Axis:
    """Maps values from `low` to `high` onto pixels from `start` to `end`."""

    low: float
    high: float
    start: float
    end: float
    log: bool = False

    def __call__(self, value: float) -> float:
        """The pixel of a value."""
        low, high = self.low, self.high
        if self.log:
            value, low, high = math.log10(max(value, low)), math.log10(low), math.log10(high)
        return round(self.start + (value - low) / (high - low) * (self.end - self.start), 1)

    def ticks(self) -> list[float]:
        """Round values inside the axis."""
        return log_ticks(self.low, self.high) if self.log else round_ticks(self.low, self.high)

    def clipped(self, value: float) -> float:
        """The pixel of a value, or of the nearest end of the axis."""
        low, high = sorted((self.start, self.end))
        return min(max(self(value), low), high)


def padded(values: Sequence[float]) -> tuple[float, float]:
    """From the lowest to the highest value, with some air.

    >>> padded([0.0, 10.0]), padded([3.0])
    ((-0.5, 10.5), (2.5, 3.5))
    """
    low, high = min(values), max(values)
    air = AIR * (high - low) or 0.5
    return low - air, high + air


def round_ticks(low: float, high: float, most: int = 6) -> list[float]:
    """Multiples of 1, 2 or 5 times a power of ten from low to high, at most `most` of them.

    >>> round_ticks(0.0, 4000.0), round_ticks(0.03, 0.11)
    ([0.0, 1000.0, 2000.0, 3000.0, 4000.0], [0.04, 0.06, 0.08, 0.1])
    """
    unit = 10.0 ** math.floor(math.log10((high - low) / most))
    for step in (unit, 2 * unit, 5 * unit, 10 * unit, 20 * unit):
        first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
        if last - first < most:
            break
    return [float(f"{k * step:.12g}") for k in range(first, last + 1)]


def log_ticks(low: float, high: float) -> list[float]:
    """Powers of ten from low to high, with their doubles and fives where there is room, and more within a decade.

    >>> log_ticks(0.002, 0.3), log_ticks(1e-5, 1.0)
    ([0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2], [1e-05, 0.0001, 0.001, 0.01, 0.1, 1.0])
    >>> log_ticks(8.5, 42.0)
    [10.0, 15.0, 20.0, 30.0, 40.0]
    """
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    width = math.log10(high / low)
    digits = (1, 1.5, 2, 3, 4, 6, 8) if width <= 1 else (1, 2, 5) if width <= 2.5 else (1,)
    values = [float(f"{d}e{k}") for k in decades for d in digits]
    return [v for v in values if low * (1 - 1e-9) <= v <= high * (1 + 1e-9)]


def tick_label(value: float) -> str:
    """Plain digits, thin spaces in long numbers.

    >>> tick_label(0.05), tick_label(25000.0).split(), tick_label(1e-4), tick_label(2e12)
    ('0.05', ['25', '000'], '1e−4', '2e+12')
    """
    if abs(value) >= 1e10:
        return f"{value:.4g}".replace("-", "\u2212")
    if abs(value) >= 10000:
        return f"{value:,.0f}".replace(",", "\u2009")
    if 0 < abs(value) < 1e-3:
        return f"{value:.0e}".replace("e-0", "e\u2212")
    return f"{value:.12g}".replace("-", "\u2212")

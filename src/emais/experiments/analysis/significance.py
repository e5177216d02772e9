"""Whether two means differ by more than chance: Welch's test, and Holm's correction where several are tested."""

from __future__ import annotations

import math
from collections.abc import Sequence

LEVEL = 0.05


def welch(first: tuple[float, float, int], second: tuple[float, float, int]) -> float:
    """The two-sided p-value of Welch's test for two means, each given as (mean, sample standard deviation, count).

    t = (a - b)/sqrt(A + B) with A = sd²/n of the first and B of the second; Welch and Satterthwaite's degrees of
    freedom. NaN with fewer than two values on a side, or without a spread.

    >>> round(welch((12.0, 0.4, 5), (10.5, 0.1, 5)), 4), welch((12.0, math.nan, 1), (10.5, 0.1, 5))
    (0.0007, nan)
    """
    (a, sd_a, n_a), (b, sd_b, n_b) = first, second
    if min(n_a, n_b) < 2 or not all(map(math.isfinite, (a, b, sd_a, sd_b))):
        return math.nan
    part_a, part_b = sd_a**2 / n_a, sd_b**2 / n_b
    if part_a + part_b == 0:
        return math.nan if a != b else 1.0
    t_square = (a - b) ** 2 / (part_a + part_b)
    freedom = (part_a + part_b) ** 2 / (part_a**2 / (n_a - 1) + part_b**2 / (n_b - 1))
    return incomplete_beta(freedom / 2, 0.5, freedom / (freedom + t_square))


def holm(values: Sequence[float]) -> list[float]:
    """p-values after Holm's correction: below a level, all those together are wrong with at most that probability.

    NaN stays NaN and is not counted as a test.

    >>> holm([0.01, 0.04, 0.03, math.nan])
    [0.03, 0.06, 0.06, nan]
    """
    order = sorted((p, k) for k, p in enumerate(values) if not math.isnan(p))
    found, largest = [math.nan] * len(values), 0.0
    for rank, (p, k) in enumerate(order):
        largest = max(largest, min(1.0, (len(order) - rank) * p))
        found[k] = largest
    return found


def incomplete_beta(a: float, b: float, x: float) -> float:
    """The regularised incomplete beta function I_x(a, b): twice the tail of Student's t for the right a, b and x.

    >>> round(incomplete_beta(2.0, 3.0, 0.5), 6)
    0.6875
    """
    if x <= 0 or x >= 1:
        return float(x >= 1)
    if x > (a + 1) / (a + b + 2):  # the continued fraction converges quickly only below
        return 1 - incomplete_beta(b, a, 1 - x)
    front = math.exp(math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)) / a
    return front / continued_fraction(a, b, x)


def continued_fraction(a: float, b: float, x: float, terms: int = 200) -> float:
    """1 + d1/(1 + d2/(1 + ...)) of the incomplete beta function, from its last term to its first."""
    value = 1.0
    for k in range(terms, 0, -1):
        m = k // 2
        if k % 2:
            d = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        else:
            d = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        value = 1 + d / value
    return value

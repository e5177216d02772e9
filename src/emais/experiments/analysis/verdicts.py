"""Who is best in a row, who is better than whom by more than chance, and whether ours agrees with the paper's value."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from ..numbers import DASH
from .paper import COMPARABLE, OURS, SEEDS, Value
from .settings import Setting, better
from .significance import LEVEL, holm, welch

BOLD = (
    "Bold: the best mean of the paper's methods in a row and every mean within the best's standard deviation of it, as "
    "in the paper; a starred method takes no bold away, and is bold where it does as well."
)
ENOUGH_SEEDS = 3  # seeds of each of two methods: from two, a spread is too uncertain to compare with
AGREES = (
    "Agrees: Welch's test does not tell ours from the paper's five seeds (p ≥ 0.05). By chance alone one in twenty "
    "would not agree."
)
LEVEL_NOTE = f"p: Welch's test, with Holm's correction over the rows; below {LEVEL} a difference is more than chance."


@dataclass(frozen=True)
class Verdict:
    """Whether ours agrees with the paper's value: kind is agrees, better, worse or none."""

    kind: str
    text: str


def best_of_paper(settings: Sequence[Setting]) -> Setting | None:
    """The best mean among the paper's methods; None where fewer than two of them have one."""
    there = [s for s in settings if math.isfinite(s.mean) and s.config.method not in OURS]
    if len(there) < 2:
        return None
    return (max if there[0].metric == "map" else min)(there, key=lambda s: s.mean)


def bold(settings: Sequence[Setting]) -> list[bool]:
    """Which of these have a mean within the standard deviation of the best of the paper's methods, or a better one."""
    best = best_of_paper(settings)
    if best is None:
        return [False] * len(settings)
    reach = 1e-9 + (best.sd if math.isfinite(best.sd) else 0.0)
    return [better(s, s.mean, best.mean) or abs(s.mean - best.mean) <= reach for s in settings]  # NaN: False


def mean_sd_count(setting: Setting) -> tuple[float, float, int]:
    """Mean, standard deviation and number of the seeds that have a value: one that diverged to NaN does not count."""
    return setting.mean, setting.sd, sum(map(math.isfinite, setting.values))


def standard_error(a: Setting, b: Setting) -> float:
    """Of the difference of two means; NaN where one of them has fewer than two seeds."""
    (_, sd_a, n_a), (_, sd_b, n_b) = mean_sd_count(a), mean_sd_count(b)
    return math.sqrt(sd_a**2 / n_a + sd_b**2 / n_b)


def p_value(a: Setting, b: Setting) -> float:
    """Of Welch's test for the means of two settings; NaN where one of them has fewer than three seeds."""
    first, second = mean_sd_count(a), mean_sd_count(b)
    return welch(first, second) if min(first[2], second[2]) >= ENOUGH_SEEDS else math.nan


def p_values(pairs: Sequence[tuple[Setting, Setting]]) -> list[float]:
    """Of Welch's test for each pair, with Holm's correction over all of them."""
    return holm([p_value(a, b) for a, b in pairs])


def differ(pairs: Sequence[tuple[Setting, Setting]]) -> list[bool]:
    """Which pairs of settings differ by more than chance: Welch's test with Holm's correction over all of them."""
    return [p < LEVEL for p in p_values(pairs)]


def paper_p_value(setting: Setting, value: Value) -> float:
    """Of Welch's test for our mean and the paper's, over its five seeds."""
    return welch(mean_sd_count(setting), (value.mean, value.sd, SEEDS))


def verdict(setting: Setting, value: Value | None) -> Verdict:
    """Whether Welch's test tells ours from the paper's value."""
    if value is None or not math.isfinite(setting.mean):
        return Verdict("none", DASH)
    if setting.config.data not in COMPARABLE:
        return Verdict("none", "not comparable")
    if not math.isfinite(setting.sd):
        return Verdict("none", "one seed: no spread")
    p = paper_p_value(setting, value)
    if not p < LEVEL:
        return Verdict("agrees", f"agrees (p = {p:.2f})")
    side = "better" if better(setting, setting.mean, value.mean) else "worse"
    return Verdict(side, f"{side} by {abs(setting.mean - value.mean):.2f} (p {small(p)})")


def small(p: float) -> str:
    """A p-value after its name.

    >>> small(0.034), small(0.0001)
    ('= 0.03', '< 0.01')
    """
    return f"= {p:.2f}" if p >= 0.01 else "< 0.01"


def tally(pairs: Sequence[tuple[Setting, Value | None]]) -> str:
    """How many of a table's values agree with the paper's, one by one and with a correction for their number."""
    judged = [(s, v, kind) for s, v in pairs if v is not None and (kind := verdict(s, v).kind) != "none"]
    if not judged:
        return "None of these values is compared with the paper's."
    kinds = [kind for *_, kind in judged]
    corrected = sum(not p < LEVEL for p in holm([paper_p_value(s, v) for s, v, _ in judged]))
    return (
        f"{kinds.count('agrees')} of {len(judged)} agree with the paper, ours are better in {kinds.count('better')} "
        f"and worse in {kinds.count('worse')}. With Holm's correction for {len(judged)} tests {corrected} agree."
    )

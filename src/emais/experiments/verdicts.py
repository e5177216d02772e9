"""Who is best in a row, and whether ours agrees with the paper's value."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from .paper import COMPARABLE, OURS, SEEDS, Value
from .selection import DASH, Setting, better

BOLD = (
    "Bold: the best mean of the paper's methods in a row and every mean within the best's standard deviation of it, as "
    "in the paper; a starred method takes no bold away, and is bold where it does as well."
)
ENOUGH = 3  # seeds of each of two methods: from two, a standard error is too uncertain to compare with
AGREES = (
    "Agrees: ours and the paper's mean differ by at most two standard errors of their difference, "
    "2·√(sd²/n + sd²/5). By chance alone about one in twelve would not."
)


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


def standard_error(a: Setting, b: Setting) -> float:
    """Of the difference of two means; NaN where one of them has fewer than two seeds."""
    return math.sqrt(a.sd**2 / len(a.values) + b.sd**2 / len(b.values))


def clearly(a: Setting, b: Setting) -> bool:
    """Whether two means, of three seeds or more, differ by more than two standard errors of their difference."""
    enough = min(len(a.values), len(b.values)) >= ENOUGH
    return enough and abs(a.mean - b.mean) > 2 * standard_error(a, b)  # NaN: False


def verdict(setting: Setting, value: Value | None) -> Verdict:
    """Whether ours and the paper's mean lie within two standard errors of their difference."""
    if value is None or not math.isfinite(setting.mean):
        return Verdict("none", DASH)
    if setting.config.data not in COMPARABLE:
        return Verdict("none", "not comparable")
    if not math.isfinite(setting.sd):
        return Verdict("none", "one seed: no spread")
    gap = abs(setting.mean - value.mean)
    error = math.sqrt(setting.sd**2 / len(setting.values) + value.sd**2 / SEEDS)
    if gap <= 2 * error:
        return Verdict("agrees", "agrees")
    side = "better" if better(setting, setting.mean, value.mean) else "worse"
    return Verdict(side, f"{side} by {gap:.2f}")


def tally(kinds: Sequence[str]) -> str:
    """How many agree."""
    judged = [kind for kind in kinds if kind != "none"]
    if not judged:
        return "None of these values is compared with the paper's."
    counts = {kind: judged.count(kind) for kind in ("agrees", "better", "worse")}
    return (
        f"{counts['agrees']} of {len(judged)} agree with the paper, ours are better in {counts['better']} "
        f"and worse in {counts['worse']}."
    )

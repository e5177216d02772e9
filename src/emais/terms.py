"""What processes that train one model must have alike at every step: 16 bytes of an exchange, and words for errors."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import NamedTuple
from zlib import crc32

# how many values a process can tell apart in the second 8 bytes, 63 bits: what was loaded, what is attached, the latest
# optimizer step, and the steps before the present pass
LOADED_CODES, ATTACHED_CODES, STEPPED_CODES, PASS_CODES = 2**13, 2**12, 2**14, 2**24
TERM_BYTES = 16


class Terms(NamedTuple):
    """Of one process, when it sends what it has observed of a step.

    loaded: a hash of the state that was loaded since the last exchange, 0 without one; attached: optimizers and rule,
    in words; trained, factor: minibatches up to the latest optimizer step, and its factor; began: steps before the
    present pass over a loader.
    """

    step: int
    loaded: int = 0
    attached: str = ""
    trained: int = 0
    factor: float = 1.0
    began: int = 0

    def packed(self) -> tuple[int, int]:
        """As two whole numbers.

        >>> Terms(7, began=3).packed()[0], unpacked(Terms(7, began=3).packed()[1])[3]
        (7, 3)
        """
        loaded = 1 + self.loaded % (LOADED_CODES - 1) if self.loaded else 0
        latest = crc32(struct.pack("=qd", self.trained, self.factor)) % STEPPED_CODES
        codes = (loaded * ATTACHED_CODES + _hash(self.attached)) * STEPPED_CODES + latest
        return self.step, codes * PASS_CODES + self.began % PASS_CODES


def unpacked(codes: int) -> tuple[int, int, int, int]:
    """What a process has told: hashes of what it has loaded, attached and stepped, and where its pass began."""
    rest, began = divmod(codes, PASS_CODES)
    rest, latest = divmod(rest, STEPPED_CODES)
    loaded, attached = divmod(rest, ATTACHED_CODES)
    return loaded, attached, latest, began


@lru_cache(maxsize=16)
def _hash(words: str) -> int:
    return crc32(words.encode()) % ATTACHED_CODES


def difference(mine: Terms, rank: int, told: Sequence[Sequence[int]]) -> str | None:
    """What the processes do not have alike, and what to do; None if they agree. told: `packed` of each, in order."""
    if all(other == told[0] for other in told):
        return None
    if len({step for step, _ in told}) > 1:
        steps = ", ".join(f"rank {k} observed step {step}" for k, (step, _) in enumerate(told))
        return (
            f"the processes are at different steps: {steps}. Each must observe every minibatch that it takes from the "
            "loader, and all must load the same state"
        )
    loaded, attached, latest, began = zip(*(unpacked(codes) for _, codes in told), strict=True)
    if len({*loaded} - {0}) > 1:  # 0: nothing was loaded there, and what was loaded elsewhere may be the same
        one = next(k for k, code in enumerate(loaded) if code)
        others = _listed(k for k, code in enumerate(loaded) if code not in (0, loaded[one]))
        return (
            f"the processes have loaded different states: rank {one} has loaded another one than rank {others}. Load "
            "the state of rank 0 on all of them, or with sharded=True the parts of one checkpoint"
        )
    if len({*attached}) > 1:
        return (
            f"the processes have attached their optimizers differently: rank {rank} has {mine.attached}, and not so "
            f"rank {_others(attached, rank)}. Call imp.attach alike on all processes"
        )
    if len({*began}) > 1:
        starts = ", ".join(f"that of rank {k} after {_before(mine.step, start)}" for k, start in enumerate(began))
        return (
            f"the processes are in different passes over their loaders at step {mine.step}, which began after "
            f"different numbers of steps: {starts}. Leave a loop early on all processes at the same step, or on none"
        )
    if len({*latest}) == 1:
        return None
    return (
        f"the processes have made different optimizer steps: before step {mine.step}, the latest one of rank {rank} "
        f"came after {mine.trained} minibatches and had the factor {mine.factor!r}, and not so that of rank "
        f"{_others(latest, rank)}. All must step after the same minibatches and load the same state"
    )


def _others(codes: Sequence[int], rank: int) -> str:
    return _listed(k for k, code in enumerate(codes) if code != codes[rank])


def _listed(ranks: Iterable[int]) -> str:
    return ", ".join(map(str, ranks))


def _before(step: int, code: int) -> int:
    """The number below a step that ends with these bits."""
    return step - 1 - (step - 1 - code) % PASS_CODES

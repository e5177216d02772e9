"""One process or several that train one model: which samples each draws, and what they learn from each other."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..distributed import Connection
from ..errors import EmaisError, positive_float, truth
from ..groups import group_size, refuse_forgotten_group
from .alone import Alone
from .form import Processes
from .replicas import Replicas
from .shards import Shards

if TYPE_CHECKING:
    from ..engine import Engine

__all__ = ["Processes", "processes_of", "samples_of_a_draw"]


def samples_of_a_draw(batch_size: int, process_group: Any, sharded: bool) -> int:
    """Samples that an engine draws a step: of all processes together, unless each draws from a part of its own.

    >>> samples_of_a_draw(32, None, False)
    32
    """
    return batch_size * (1 if sharded else group_size(process_group))


def processes_of(engine: Engine, process_group: Any, sharded: bool, timeout: float) -> Processes:
    """The processes that an engine trains with."""
    _check(engine, process_group, sharded, timeout)
    if process_group is None:
        return Alone(engine)
    return (Shards if sharded else Replicas)(engine, Connection(process_group, float(timeout)))


def _check(engine: Engine, process_group: Any, sharded: bool, timeout: float) -> None:
    truth("sharded", sharded)
    positive_float("timeout", timeout)
    if process_group is None:
        if sharded:
            raise EmaisError(
                "sharded=True needs process_group=, as dist.group.WORLD: each of its processes keeps a part of the "
                "samples"
            )
        refuse_forgotten_group()
        return
    group_size(process_group)
    if engine.alone:
        raise EmaisError(f"{engine.name} takes no process_group yet, because {engine.alone}: choose another method")
    if engine.device.type != "cpu" or engine.arrays.resident:
        raise EmaisError(
            f"an engine on {engine.device} takes no process_group yet: make it without device= and resident=, the "
            "model may be on any device"
        )

"""The process group that a user gives, or has forgotten."""

from __future__ import annotations

from typing import Any

import torch.distributed as dist

from .errors import EmaisError

NO_GROUP = (
    "this process is one of {}, and the {} was made without process_group=, so every process would draw the same "
    "minibatches: pass process_group=dist.group.WORLD, or the data-parallel group of a mesh, mesh.get_group('dp'), and "
    "as batch_size the samples of one process. Call dist.init_process_group first"
)


def refuse_forgotten_group(what: str = "engine") -> None:
    """Raise EmaisError if this is one of several processes, and nobody said so to the engine, or to another `what`."""
    if dist.is_available() and dist.is_initialized() and (size := dist.get_world_size()) > 1:
        raise EmaisError(NO_GROUP.format(size, what))


def group_size(group: Any) -> int:
    """Processes of a group, of which this one must be; 1 without a group.

    >>> group_size(None)
    1
    """
    if group is None:
        return 1
    if not isinstance(group, dist.ProcessGroup):
        hint = ": pass mesh.get_group('dp')" if hasattr(group, "get_group") else ", as dist.group.WORLD"
        raise EmaisError(f"process_group must be a group of torch.distributed, got a {type(group).__name__}{hint}")
    if dist.get_rank(group) < 0:
        raise EmaisError("this process does not belong to the process_group that it was given: pass its own group")
    return dist.get_world_size(group)

"""The process group that a user gives, or has forgotten."""

from __future__ import annotations

import weakref
from typing import Any

import torch.distributed as dist

from .errors import EmaisError

if dist.is_available():
    # torch imports it with the first optimizer, and its functions keep the default group of that moment: after
    # init_process_group that would outlive destroy_process_group, and its threads could abort Python at the exit
    import torch.distributed.nn.functional  # noqa: F401

NO_GROUP = (
    "this process is one of {}, and the {} was made without process_group=, so every process would draw the same "
    "minibatches: pass process_group=dist.group.WORLD, or the data-parallel group of a mesh, mesh.get_group('dp'), and "
    "as batch_size the samples of one process. Call dist.init_process_group first"
)


def refuse_forgotten_group(what: str = "engine") -> None:
    """Raise EmaisError if this is one of several processes, and nobody said so to the engine, or to another `what`."""
    if (size := processes_here()) > 1:
        raise EmaisError(NO_GROUP.format(size, what))


def processes_here() -> int:
    """Processes that this one was started with, as far as torch.distributed knows; 1 without it.

    >>> processes_here()
    1
    """
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


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


class HeldGroup:
    """A group that is there until dist.destroy_process_group(): torch owns it, and calling this gives it.

    Owned here as well, its threads would still run when Python shuts down, and one that frees a tensor then ends the
    process. what: whose group it is, for messages.
    """

    def __init__(self, group: dist.ProcessGroup, what: str) -> None:
        self._group, self._what = weakref.ref(group), what

    def __call__(self) -> dist.ProcessGroup:
        """The group, or an error once it is destroyed."""
        group = self._group()
        if group is None:
            raise EmaisError(
                f"the process group of this {self._what} has been destroyed: call dist.destroy_process_group() last, "
                f"and make the {self._what} anew after another dist.init_process_group()"
            )
        return group

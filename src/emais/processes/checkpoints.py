"""States of the sharded form in checkpoints of torch.distributed.checkpoint, read by any number of processes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import torch

from ..errors import EmaisError
from .group import Group

if TYPE_CHECKING:
    from ..engine import Engine

Saved = tuple[str, tuple[Any, ...], int, int]  # its name in the checkpoint, its place in the state, first, stop


def read_parts(engine: Engine, checkpoint: Any, name: str) -> dict[str, Any]:
    """The parts of a saved state that hold the samples of an engine: for its `load_state_dict`.

    checkpoint: the folder that ``dcp.save({name: imp.state_dict(), ...}, checkpoint_id=...)`` has written on all
    processes. All processes of the engine call it together, however many there are now.
    """
    # here: they are slow to import, and few need them
    from torch.distributed.checkpoint.filesystem import FileSystemReader
    from torch.distributed.checkpoint.state_dict_loader import load

    reader = FileSystemReader(checkpoint)
    found = reader.read_metadata()
    saved = list(_saved_parts(found.planner_data or {}, name))
    total = max((stop for *_, stop in saved), default=0)
    if total != engine.total_samples:  # the same on all processes, before any of them waits for the others
        raise EmaisError(
            f"{checkpoint} has parts of {total} samples under {name!r}, this run has {engine.total_samples}: save "
            f"{{{name!r}: imp.state_dict()}} with dcp.save on all processes, of engines with sharded=True"
        )
    first = engine.processes.first
    wanted: dict[str, Any] = {}
    for key, path, start, stop in saved:
        if start < first + engine.num_samples and stop > first:
            _put(wanted, path, _place(found.state_dict_metadata[key]))
    own = engine.processes.connection.group() if isinstance(engine.processes, Group) else None
    load(wanted, storage_reader=reader, process_group=own)
    for part in wanted[name]["parts"].values():
        part.setdefault("state", {})  # a checkpoint leaves out what is empty
    parts: dict[str, Any] = wanted[name]
    return parts


def _saved_parts(places: dict[str, Any], name: str) -> Iterator[Saved]:
    """What a checkpoint has of the parts under a name."""
    for key, path in places.items():
        if len(path) > 3 and path[:2] == (name, "parts"):
            start, _, stop = str(path[2]).partition(":")
            if start.isdecimal() and stop.isdecimal():
                yield key, path, int(start), int(stop)


def _place(saved: Any) -> Any:
    """Where a value is read to: a tensor of its size, or nothing for what is not one."""
    if hasattr(saved, "size"):
        return torch.empty(saved.size, dtype=saved.properties.dtype, device="cpu")
    return None


def _put(tree: dict[str, Any], path: tuple[Any, ...], value: Any) -> None:
    for key in path[:-1]:
        tree = tree.setdefault(key, {})
    tree[path[-1]] = value

"""How engines are made where several processes train one model: what one of them refuses, all are told."""

from __future__ import annotations

import inspect
from abc import ABCMeta
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import torch.distributed as dist

from ..distributed import AT_MOST, Connection
from ..errors import EmaisError, positive_float
from .group import NOT_MADE


class Making(ABCMeta):
    """The class of engine classes. It makes an engine, and then compares its settings with those of other processes.

    Here and not in a constructor, because it comes after the constructors of all methods, the user's own among them,
    and sees whatever they refuse. Without a process_group it does nothing. It is an ABCMeta, so that classes with
    abstract methods can be mixed in.
    """

    @property
    def __signature__(cls) -> inspect.Signature:
        """That of the constructor, for `help`."""
        own = inspect.signature(cls.__init__)  # type: ignore[misc]
        return own.replace(parameters=list(own.parameters.values())[1:])

    if not TYPE_CHECKING:  # type checkers shall see the constructors

        def __call__(cls, *args: Any, **settings: Any) -> Any:
            """Make an engine."""
            engine = cls.__new__(cls)
            try:
                engine.__init__(*args, **settings)
            except Exception as error:
                if not getattr(error, "shared", False):
                    _tell(engine, error, settings)
                raise
            engine.processes.check_settings(engine)
            return engine


def _tell(engine: Any, error: Exception, settings: dict[str, Any]) -> None:
    """Tell the others why this process has no engine, wherever they wait for it."""
    group = settings.get("process_group")
    if isinstance(group, dist.ProcessGroup) and dist.get_rank(group) >= 0:
        with suppress(EmaisError):  # nobody is there, or all have an error of their own
            made = getattr(engine, "processes", None)
            connection = Connection(group, _seconds(settings)) if made is None else made.connection
            connection.refuse(f"{type(error).__name__}: {error}", NOT_MADE)


def _seconds(settings: dict[str, Any]) -> float:
    try:
        return positive_float("timeout", settings.get("timeout", AT_MOST))
    except EmaisError:
        return AT_MOST

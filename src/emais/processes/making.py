"""How engines and samplers are made where several processes train one model: what one refuses, all are told."""

from __future__ import annotations

import inspect
from abc import ABCMeta
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import torch.distributed as dist

from ..distributed import AT_MOST, Connection
from ..errors import EmaisError, positive_float


class Making(ABCMeta):
    """The class of engine classes. It makes an engine, and then compares its settings with those of other processes.

    Here and not in a constructor, because it comes after the constructors of all methods, the user's own among them,
    and sees whatever they refuse. Without a process_group it does nothing. It is an ABCMeta, so that classes with
    abstract methods can be mixed in. What else is made in this way has a subclass with another `what`, `connection`
    and `compare`.
    """

    what = "engine"  # in messages

    @staticmethod
    def connection(made: Any) -> Connection | None:
        """To the other processes, if the constructor has come so far; None without a group, too."""
        return getattr(getattr(made, "processes", None), "connection", None)

    @staticmethod
    def compare(made: Any) -> None:
        """Compare the settings of all processes."""
        made.processes.check_settings(made)

    @property
    def __signature__(cls) -> inspect.Signature:
        """That of the constructor, for `help`."""
        own = inspect.signature(cls.__init__)  # type: ignore[misc]
        return own.replace(parameters=list(own.parameters.values())[1:])

    if not TYPE_CHECKING:  # type checkers shall see the constructors

        def __call__(cls, *args: Any, **settings: Any) -> Any:
            """Make one."""
            made, making = cls.__new__(cls), type(cls)
            try:
                made.__init__(*args, **settings)
            except Exception as error:
                if not getattr(error, "shared", False):
                    _tell(making.connection(made), making.what, error, settings)
                raise
            making.compare(made)
            return made


def _tell(connection: Connection | None, what: str, error: Exception, settings: dict[str, Any]) -> None:
    """Tell the others why this process has none, wherever they wait for it."""
    with suppress(EmaisError):  # nobody is there, or all have an error of their own
        group = settings.get("process_group")
        if connection is None and isinstance(group, dist.ProcessGroup) and dist.get_rank(group) >= 0:
            connection = Connection(group, _seconds(settings), what)
        if connection is not None:
            connection.refuse(error)


def _seconds(settings: dict[str, Any]) -> float:
    try:
        return positive_float("timeout", settings.get("timeout", AT_MOST))
    except EmaisError:
        return AT_MOST

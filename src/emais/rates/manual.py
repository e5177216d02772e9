"""The learning-rate factor for an update that is not a torch optimizer's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .attached import Attached


class ManualStep:
    """For an update that is not a torch optimizer's: what `attach(None)` returns.

    Call `lr_scale()` once after the minibatches of an update have been observed, and multiply its learning rate by it.
    """

    optimizer = None

    def __init__(self, attached: Attached) -> None:
        self._attached, self.used = attached, 0

    def lr_scale(self) -> Any:
        """The factor of this update: a float, or a 0-d tensor where the statistics live on a device."""
        factor = self._attached.lr_scale(self)
        self._attached.stepped(self)
        return factor

    def remove(self) -> None:
        """Detach."""
        self._attached.forget(self)

"""The deadline of a close, which may be brought forward while the close runs."""

from __future__ import annotations

import anyio

from aiokafkawire.runtime.interfaces import NEVER

__all__ = ("CloseDeadline",)


class CloseDeadline:
    """Latest end of a close.

    Attributes:
        at: Time of the clock at which the close ends at the latest.
    """

    __slots__ = ("_scope", "at")

    def __init__(self) -> None:
        self.at = NEVER
        self._scope: anyio.CancelScope | None = None

    def end_by(self, deadline: float) -> None:
        """End the close, also one that runs, at `deadline` or earlier."""
        self.at = min(self.at, deadline)
        if self._scope is not None:
            self._scope.deadline = min(self._scope.deadline, self.at)

    def scope(self, deadline: float, *, shield: bool = False) -> anyio.CancelScope:
        """Return a cancel scope for the next part of the close.

        Args:
            deadline: When the part ends, if the close does not end earlier.
            shield: Whether the part is shielded from other scopes.
        """
        self._scope = anyio.CancelScope(deadline=min(deadline, self.at), shield=shield)
        return self._scope

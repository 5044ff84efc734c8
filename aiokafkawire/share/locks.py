"""Acquisition locks: until when acquired records belong to this member."""

from __future__ import annotations

__all__ = ("AcquisitionLock",)


class AcquisitionLock:
    """The lock of the records that one fetch acquired. Times are those of the runtime's clock.

    A lock begins when the request was sent, which is before the broker's clock started it. So a
    record that is locked here is locked at the broker.
    """

    __slots__ = ("_expires_at", "_renewed", "duration_s")

    def __init__(self, acquired_at: float, duration_s: float) -> None:
        self.duration_s = duration_s
        self._expires_at = acquired_at + duration_s
        self._renewed: dict[int, float] | None = None

    def expires_at(self, offset: int) -> float:
        """Return when the lock of an offset expires."""
        if self._renewed is None:
            return self._expires_at
        return self._renewed.get(offset, self._expires_at)

    def renew(self, offset: int, expires_at: float) -> None:
        """Note that the broker has restarted the lock of an offset."""
        if self._renewed is None:
            self._renewed = {}
        self._renewed[offset] = expires_at

"""Acquisition locks: until when acquired records belong to this member."""

from __future__ import annotations

from .offset_ranges import OffsetRanges

__all__ = ("AcquisitionLock",)


class AcquisitionLock:
    """The lock of the records that one fetch acquired in one partition.

    Times are those of the runtime's clock. A lock begins when the request was sent, which is before
    the broker's clock started it. So a record that is locked here is locked at the broker.

    Attributes:
        duration_s: Time from the start of the lock, or its renewal, to its end.
        lost: Offsets whose lock ended before they were acknowledged.
    """

    __slots__ = ("_expires_at", "_renewed", "duration_s", "lost")

    def __init__(self, acquired_at: float, duration_s: float) -> None:
        self.duration_s = duration_s
        self._expires_at = acquired_at + duration_s
        self._renewed: OffsetRanges[float] = OffsetRanges()
        self.lost: OffsetRanges[bool] = OffsetRanges()

    def expires_at(self, offset: int) -> float:
        """Return when the lock of an offset expires."""
        renewed_until = self._renewed.get(offset)
        return self._expires_at if renewed_until is None else renewed_until

    def all_expire_after(self, time: float) -> bool:
        """Return whether no lock was renewed, and all expire after `time`."""
        return not self._renewed and self._expires_at > time

    def expiries(self, first: int, last: int) -> list[tuple[int, int, float]]:
        """Return (first offset, last offset, time of expiry) for all offsets between two."""
        if not self._renewed:
            return [(first, last, self._expires_at)]
        return self._renewed.filled(first, last, self._expires_at)

    def renew(self, first: int, last: int, expires_at: float) -> None:
        """Note that the broker has restarted the lock of the offsets from `first` to `last`."""
        self._renewed.set(first, last, expires_at)

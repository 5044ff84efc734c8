"""Limit of the records that a ShareFetch asks for."""

from __future__ import annotations

__all__ = ("AcquireLimit",)

TARGET_S = 0.1
"""A fetch asks for the records that the application takes in this time."""

MEASURED_S = 0.02
"""Shortest time in which taken records are counted."""

MAX_RECORDS = 10_000


class AcquireLimit:
    """The limit of records of one fetch, which follows the speed of the application.

    An application that is slow gets `minimum` records at a time: others wait in the log, where all
    members can acquire them. One that is fast gets more, since each request has a cost.
    """

    def __init__(self, minimum: int, now: float) -> None:
        self.records = minimum
        self._minimum = minimum
        self._counted_at = now
        self._delivered = 0

    @property
    def prefetch_below(self) -> int:
        """Number of buffered records below which more are acquired ahead.

        An application that is fast would otherwise wait for each fetch.
        """
        return self.records - self._minimum + self._minimum // 2

    def update(self, delivered: int, now: float) -> int:
        """Return the limit, after `delivered` records in total."""
        elapsed_s = now - self._counted_at
        if elapsed_s >= MEASURED_S:
            taken = int((delivered - self._delivered) / elapsed_s * TARGET_S)
            self.records = max(self._minimum, min(taken, MAX_RECORDS))
            self._delivered, self._counted_at = delivered, now
        return self.records

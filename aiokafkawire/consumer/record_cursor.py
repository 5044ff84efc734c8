"""A cursor that delivers decoded records one at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from operator import length_hint
from typing import Any, Generic, TypeVar

from aiokafkawire.records import Record

__all__ = ("CURSOR_RECORDS", "RecordCursor")

CURSOR_RECORDS = 256
"""The most records that a cursor delivers before the consumer checks for errors and rebalances."""

_NO_RECORDS: Iterator[Any] = iter(())

R = TypeVar("R", bound=Record)


class RecordCursor(Generic[R]):
    """Delivers decoded records of one partition to one caller, one at a time.

    The caller takes records from the iterator `ready`; taking one marks those before it as
    processed. To keep this cheap, nothing is notified: the buffer reads `delivered_count` when it
    needs the position. `owner` is the iterator that uses the cursor.
    """

    __slots__ = ("_counted", "_remaining", "owner", "ready", "records")

    def __init__(self, records: Sequence[R]) -> None:
        self.records = records
        self._remaining = self.ready = iter(records)
        self._counted = 0
        self.owner: object = None

    def next(self) -> R | None:
        """Return the next record, or None at the end."""
        return next(self.ready, None)

    def close(self) -> None:
        """Deliver no more records."""
        # mutation: iterator-keeps-records-after-seek
        self.ready = _NO_RECORDS

    @property
    def delivered_count(self) -> int:
        """Number of records delivered."""
        return len(self.records) - length_hint(self._remaining)

    def take_delivered_count(self) -> int:
        """Return the number of records delivered since the last call."""
        before, self._counted = self._counted, self.delivered_count
        return self._counted - before

"""Iterators over the records of a consumer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from aiokafkawire.records import Record, Records
from aiokafkawire.runtime import NEVER

from .record_cursor import RecordCursor

if TYPE_CHECKING:
    from .consumer import Consumer

__all__ = ("BatchIterator", "RecordIterator")


class RecordIterator:
    """Iterates over records: `async for record in consumer`. For use by one task."""

    def __init__(self, consumer: Consumer) -> None:
        self._consumer = consumer
        session = consumer._running
        self._record_poll = None if session.group is None else session.group.member.record_poll
        self._cursor: RecordCursor[Record] = RecordCursor(())

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Record:
        """Return the next record. Other tasks run at least every 256 records."""
        for record in self._cursor.ready:
            # mutation: iterated-records-do-not-reset-poll-timer
            if self._record_poll is not None:
                self._record_poll()
            return record
        await self._consumer._running.checkpoint()
        session = self._consumer._running
        next_record = await self._consumer._get_record(session, self, NEVER)
        assert next_record is not None
        cursor = session.delivery.cursor
        if cursor is not None and cursor.owner is self:
            self._cursor = cursor
        return next_record


class BatchIterator:
    """Iterates over batches: `async for batch in consumer.batches()`."""

    def __init__(self, consumer: Consumer) -> None:
        self._consumer = consumer

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Records:
        """Return the next records of one partition."""
        consumer = self._consumer
        records_by_partition = await consumer._get_records(
            consumer._running, None, consumer.config.max_poll_records, NEVER, single_partition=True
        )
        return next(iter(records_by_partition.values()))

"""Iterators over the records of a share consumer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from aiokafkawire.consumer.receiving import Receiving
from aiokafkawire.consumer.record_cursor import RecordCursor
from aiokafkawire.runtime import NEVER

from .record import ShareRecord
from .records import ShareRecords

if TYPE_CHECKING:
    from .consumer import ShareConsumer

__all__ = ("ShareBatchIterator", "ShareRecordIterator")


class ShareRecordIterator:
    """Iterates over records: `async for record in consumer`. For use by one task."""

    def __init__(self, consumer: ShareConsumer) -> None:
        self._consumer = consumer
        session = consumer._running
        self._now = session.runtime.clock.now
        self._poll_timer = session.member.poll_timer
        self._cursor: RecordCursor[ShareRecord] = RecordCursor(())
        self._deliver_before = 0.0

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ShareRecord:
        """Return the next record. Other tasks run at least every 256 records."""
        now = self._now()
        if now < self._deliver_before:
            for record in self._cursor.ready:
                self._poll_timer.last_poll = now
                return record
        return await self._open_cursor()

    # Not in `__anext__`, whose calls would be slower: variables of a closure cost time.
    async def _open_cursor(self) -> ShareRecord:
        """Poll for the next record, and open a cursor for those after it."""
        session = self._consumer._running
        delivery = session.delivery
        receiving = Receiving.begin(session.hooks, session.runtime.clock)
        next_record = await self._consumer._poll(
            session, lambda caller: delivery.next_record(self, caller), NEVER
        )
        assert next_record is not None
        cursor = delivery.cursor
        if receiving is not None and cursor is not None:
            receiving.end({next_record.topic_partition: cursor.records})
        if cursor is not None and cursor.owner is self:
            self._cursor, self._deliver_before = cursor, cursor.deliver_before
        return next_record


class ShareBatchIterator:
    """Iterates over batches: `async for batch in consumer.batches()`."""

    def __init__(self, consumer: ShareConsumer) -> None:
        self._consumer = consumer

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ShareRecords:
        """Return the next records of one partition."""
        records_by_partition = await self._consumer._get_records(
            self._consumer.config.max_poll_records, None, single_partition=True
        )
        return next(iter(records_by_partition.values()))

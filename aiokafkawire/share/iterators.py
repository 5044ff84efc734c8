"""Iterators over the records of a share consumer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from aiokafkawire.runtime import NEVER, current_task

from .record import ShareRecord

if TYPE_CHECKING:
    from .consumer import ShareConsumer

__all__ = ("ShareBatchIterator", "ShareRecordIterator")

RECORDS_PER_CHECKPOINT = 256
"""Records that an iteration returns before other tasks run."""


class ShareRecordIterator:
    """Iterates over records: `async for record in consumer`. For use by one task."""

    def __init__(self, consumer: ShareConsumer) -> None:
        self._consumer = consumer
        self._since_checkpoint = 0

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ShareRecord:
        """Return the next record. Other tasks run at least every 256 records."""
        session = self._consumer._running
        if self._since_checkpoint < RECORDS_PER_CHECKPOINT:
            record = session.next_buffered(current_task())
            if record is not None:
                self._since_checkpoint += 1
                return record
        self._since_checkpoint = 0
        await session.checkpoint()
        next_record = await self._consumer._get_record(session, NEVER)
        assert next_record is not None
        return next_record


class ShareBatchIterator:
    """Iterates over batches: `async for batch in consumer.batches()`."""

    def __init__(self, consumer: ShareConsumer) -> None:
        self._consumer = consumer

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> list[ShareRecord]:
        """Return the next records of one partition."""
        consumer = self._consumer
        records_by_partition = await consumer._get_records(
            consumer._running, consumer.config.max_poll_records, NEVER, single_partition=True
        )
        return next(iter(records_by_partition.values()))

"""Iterators over the records of a consumer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, Self

from aiokafkawire.records import Record, Records
from aiokafkawire.runtime import NEVER
from aiokafkawire.types import KeyT, ValueT

from .record_cursor import RecordCursor

if TYPE_CHECKING:
    from .consumer import Consumer
    from .record_deserializer import RecordDeserializer

__all__ = ("BatchIterator", "DeserializingIterator", "RecordIterator")


class RecordIterator(Generic[KeyT, ValueT]):
    """Iterates over records: `async for record in consumer`. For use by one task."""

    def __init__(self, consumer: Consumer[Any, Any]) -> None:
        self._consumer = consumer
        session = consumer._running
        self._record_poll = None if session.group is None else session.group.member.record_poll
        self._cursor: RecordCursor[Record[Any, Any]] = RecordCursor(())

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Record[KeyT, ValueT]:
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


class DeserializingIterator(RecordIterator[KeyT, ValueT]):
    """Iterates over records whose keys and values are deserialized."""

    def __init__(
        self, consumer: Consumer[KeyT, ValueT], deserializer: RecordDeserializer[KeyT, ValueT]
    ) -> None:
        super().__init__(consumer)
        self._deserializer = deserializer

    async def __anext__(self) -> Record[KeyT, ValueT]:
        """Return the next record.

        Raises:
            DeserializationFailed: A deserializer raised an error. The next call returns the record
                after this one.
        """
        return self._deserializer.deserialize(await super().__anext__())


class BatchIterator(Generic[KeyT, ValueT]):
    """Iterates over batches: `async for batch in consumer.batches()`."""

    def __init__(self, consumer: Consumer[KeyT, ValueT]) -> None:
        self._consumer = consumer

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Records[KeyT, ValueT]:
        """Return the next records of one partition."""
        consumer = self._consumer
        records_by_partition = await consumer._get_records(
            consumer._running, None, consumer.config.max_poll_records, NEVER, single_partition=True
        )
        return next(iter(records_by_partition.values()))

"""A share consumer that records what it is given, the decisions about it, and their results."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Self

from aiokafkawire import ShareConsumer, TopicPartition
from aiokafkawire.errors import AcknowledgementFailed, KafkaError
from aiokafkawire.share import AcknowledgeType, ShareRecord, ShareRecords
from verify.invariants.events import Event, ShareDecided, ShareReceived, ShareReported
from verify.invariants.recorded_client import RecordedClient
from verify.invariants.recorder import Journal, error_name

__all__ = ("RecordedShareConsumer",)


class _Given:
    """Iterator over recorded records or batches."""

    def __init__(self, iterator: Any, owner: RecordedShareConsumer) -> None:
        self._iterator = iterator
        self._owner = owner

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Any:
        return await self._owner._receive("anext", None, lambda: anext(self._iterator))


class RecordedShareConsumer(RecordedClient[ShareConsumer]):
    """As `ShareConsumer`, but records are acknowledged by its methods.

    In the implicit mode the next call of a task accepts the records that it was given.
    """

    def __init__(self, consumer: ShareConsumer, journal: Journal) -> None:
        super().__init__(consumer, journal)
        self._implicit = consumer.config.share_acknowledgement_mode == "implicit"
        self._given: dict[str, list[ShareRecord]] = {}
        consumer.set_acknowledgement_commit_callback(self._reported)

    def _note(self, kind: Callable[..., Event], *values: Any, **named: Any) -> None:
        """Record an event, unless the process has crashed."""
        if not self._journal.has_crashed:
            self._journal.note(kind, *values, **named)

    # --- life ---

    def _body_completed(self) -> str:
        self._accept_given(self._journal.task())
        return ""

    def _left(self, error: str | None, cancelled: bool = False) -> None:
        if not self._journal.has_crashed:
            super()._left(error, cancelled)

    def subscribe(self, topics: Iterable[str]) -> None:
        self.inner.subscribe(topics)

    # --- records ---

    async def getone(self, *, timeout_ms: float) -> ShareRecord | None:
        record: ShareRecord | None = await self._receive(
            "getone", timeout_ms / 1_000, lambda: self.inner.getone(timeout_ms=timeout_ms)
        )
        return record

    async def getmany(self, *, timeout_ms: float) -> dict[TopicPartition, ShareRecords]:
        found: dict[TopicPartition, ShareRecords] = await self._receive(
            "getmany", timeout_ms / 1_000, lambda: self.inner.getmany(timeout_ms=timeout_ms)
        )
        return found

    def __aiter__(self) -> _Given:
        return _Given(aiter(self.inner), self)

    def batches(self) -> _Given:
        return _Given(self.inner.batches(), self)

    async def _receive(self, name: str, limit_s: float | None, call: Callable[[], Any]) -> Any:
        task = self._journal.task()
        self._accept_given(task)
        with self._journal.call(name, limit_s, task):
            found = await call()
            for records in _by_partition(found).values():
                self._received(records, task)
        return found

    def _received(self, records: Sequence[ShareRecord], task: str) -> None:
        first = records[0]
        self._note(
            ShareReceived,
            first.topic,
            first.partition,
            tuple((each.offset, bytes(each.value or b"")) for each in records),
            tuple(each.delivery_count for each in records),
            task,
        )
        if self._implicit:
            self._given.setdefault(task, []).extend(records)

    def _accept_given(self, task: str) -> None:
        """Record that a task has processed what it was given."""
        for records in _by_partition(self._given.pop(task, [])).values():
            offsets = tuple(each.offset for each in records)
            self._note(ShareDecided, records[0].topic, records[0].partition, offsets, "accept")

    # --- acknowledgements ---

    def acknowledge(self, record: ShareRecord, type: AcknowledgeType) -> Any:
        """Acknowledge a record, and return the client's `Acknowledgement`.

        Raises:
            AcknowledgementFailed: The record is not held any more.
        """
        acknowledgement = record._held.acknowledge(record.offset, type)
        self._decided(record, type, owed=True)
        return acknowledgement

    async def confirm(self, record: ShareRecord, type: AcknowledgeType) -> None:
        """Acknowledge a record, and wait for the result.

        Raises:
            AcknowledgementFailed: The record is delivered again.
        """
        with self._journal.call("acknowledge", None):
            try:
                await self.acknowledge(record, type)
            except AcknowledgementFailed as error:
                self._result(record, type, error_name(error))
                raise
            self._result(record, type, None)

    def _result(self, record: ShareRecord, type: AcknowledgeType, error: str | None) -> None:
        place = (record.topic, record.partition, (record.offset,))
        self._note(ShareReported, *place, error, type.name.lower())

    @asynccontextmanager
    async def handling(self, record: ShareRecord) -> AsyncIterator[ShareRecord]:
        """Enter the record's own context, which accepts it, or releases it after an error."""
        async with record:
            yield record
            # Of a record that was delivered again meanwhile, this changes nothing.
            if record._held.is_undecided(record.offset):
                self._decided(record, AcknowledgeType.ACCEPT, owed=False)

    def _decided(self, record: ShareRecord, type: AcknowledgeType, *, owed: bool) -> None:
        place = (record.topic, record.partition, (record.offset,))
        self._note(ShareDecided, *place, type.name.lower(), owed)

    async def commit(self) -> dict[TopicPartition, KafkaError | None]:
        self._accept_given(self._journal.task())
        with self._journal.call("commit", self.config.default_api_timeout_ms / 1_000):
            return await self.inner.commit()

    def _reported(
        self, tp: TopicPartition, offsets: Sequence[int], error: AcknowledgementFailed | None
    ) -> None:
        name = None if error is None else error_name(error)
        self._note(ShareReported, tp.topic, tp.partition, tuple(offsets), name)


def _by_partition(found: Any) -> Mapping[TopicPartition, Sequence[ShareRecord]]:
    """Return the records of any call by partition."""
    if isinstance(found, dict):
        return found
    records = [] if found is None else found if isinstance(found, Sequence) else [found]
    by_partition: dict[TopicPartition, list[ShareRecord]] = {}
    for record in records:
        by_partition.setdefault(record.topic_partition, []).append(record)
    return by_partition

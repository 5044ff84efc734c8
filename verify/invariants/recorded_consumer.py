"""A consumer that records its polls, rebalances and commits."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, Self

from aiokafkawire import Consumer, Record, Records, TopicPartition
from aiokafkawire.consumer import RebalanceListener, SubscriptionPattern
from aiokafkawire.errors import CommitFailed
from aiokafkawire.types import (
    GroupMetadata,
    OffsetAndMetadata,
    PartitionArgument,
    parse_topic_partitions,
)
from verify.invariants.events import (
    Assigned,
    CallbackEnded,
    Committed,
    Committing,
    Event,
    Lost,
    Offsets,
    Outcome,
    PartitionsAssignedManually,
    Paused,
    Polled,
    PositionSought,
    Resumed,
    Revoked,
    Subscribed,
    Unsubscribed,
)
from verify.invariants.recorded_client import RecordedClient
from verify.invariants.recorded_producer import plain_offsets
from verify.invariants.recorder import Journal

__all__ = ("RecordedConsumer",)


class _Listener(RebalanceListener):
    """Records the callbacks, and calls the application's own listener."""

    def __init__(self, journal: Journal, own: RebalanceListener | None) -> None:
        self._journal = journal
        self._own = own

    async def on_partitions_assigned(self, partitions: Collection[TopicPartition]) -> None:
        await self._notify(Assigned, "on_partitions_assigned", partitions)

    async def on_partitions_revoked(self, partitions: Collection[TopicPartition]) -> None:
        await self._notify(Revoked, "on_partitions_revoked", partitions)

    async def on_partitions_lost(self, partitions: Collection[TopicPartition]) -> None:
        await self._notify(Lost, "on_partitions_lost", partitions)

    async def _notify(
        self, kind: type[Event], name: str, partitions: Collection[TopicPartition]
    ) -> None:
        self._note(kind, tuple(sorted(partitions)))
        if self._own is None:
            return
        try:
            result = getattr(self._own, name)(partitions)
            if inspect.isawaitable(result):
                await result
        finally:
            self._note(CallbackEnded, name)

    def _note(self, kind: type[Event], value: Any) -> None:
        """Record a callback, unless the process has crashed: its tasks are cancelled only then."""
        if not self._journal.has_crashed:
            self._journal.note(kind, value)


class _Given:
    """Iterator over recorded records or batches."""

    def __init__(self, iterator: Any, journal: Journal, note: Callable[[Any, str], None]) -> None:
        self._iterator = iterator
        self._journal = journal
        self._note = note

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Any:
        task = self._journal.task()
        with self._journal.call("anext", None, task):
            found = await anext(self._iterator)
            self._note(found, task)
        return found


class RecordedConsumer(RecordedClient[Consumer]):
    """As `Consumer`."""

    def __init__(self, consumer: Consumer, journal: Journal) -> None:
        super().__init__(consumer, journal)
        topics = consumer.subscription()
        if topics:
            self.subscribe(sorted(topics))

    @property
    def _api_s(self) -> float:
        return self.config.default_api_timeout_ms / 1_000

    # --- life ---

    def _body_completed(self) -> str:
        return self._journal.task()

    @property
    def _close_s(self) -> float:
        config = self.config
        return (config.close_timeout_ms + config.rebalance_callback_timeout_ms) / 1_000

    # --- what to read ---

    def subscribe(
        self,
        topics: Iterable[str] | SubscriptionPattern = (),
        *,
        pattern: Any = None,
        listener: RebalanceListener | None = None,
    ) -> None:
        recorded_listener = _Listener(self._journal, listener)
        if isinstance(topics, SubscriptionPattern):
            self.inner.subscribe(topics, listener=recorded_listener)
            self._journal.note(Subscribed, (), topics.pattern)
            return
        topics = tuple(topics)
        self.inner.subscribe(topics, pattern=pattern, listener=recorded_listener)
        shown = None if pattern is None else getattr(pattern, "pattern", pattern)
        self._journal.note(Subscribed, topics, shown)

    def assign(self, *partitions: PartitionArgument) -> None:
        self.inner.assign(*partitions)
        self._journal.note(PartitionsAssignedManually, tuple(parse_topic_partitions(partitions)))

    def unsubscribe(self) -> None:
        self.inner.unsubscribe()
        self._journal.note(Unsubscribed)

    def subscription(self) -> frozenset[str]:
        return self.inner.subscription()

    def assignment(self) -> frozenset[TopicPartition]:
        return self.inner.assignment()

    # --- records ---

    def _polled(self, records: Records, task: str) -> None:
        topic, partition = records.topic_partition
        pairs = tuple(zip(records.offsets(), map(_bytes, records.values()), strict=True))
        self._journal.note(Polled, topic, partition, pairs, records.next_offset, task)

    def _one(self, record: Record, task: str) -> None:
        pair = (record.offset, _bytes(record.value))
        self._journal.note(Polled, record.topic, record.partition, (pair,), record.offset + 1, task)

    async def getone(
        self, *partitions: PartitionArgument, timeout_ms: float | None = None
    ) -> Record | None:
        task = self._journal.task()
        limit = None if timeout_ms is None else timeout_ms / 1_000
        with self._journal.call("getone", limit, task):
            if timeout_ms is None:
                record: Record | None = await self.inner.getone(*partitions)
            else:
                record = await self.inner.getone(*partitions, timeout_ms=timeout_ms)
            if record is not None:
                self._one(record, task)
        return record

    async def getmany(
        self,
        *partitions: PartitionArgument,
        timeout_ms: float = 0,
        max_records: int | None = None,
    ) -> dict[TopicPartition, Records]:
        task = self._journal.task()
        with self._journal.call("getmany", timeout_ms / 1_000, task):
            found = await self.inner.getmany(
                *partitions, timeout_ms=timeout_ms, max_records=max_records
            )
            for records in found.values():
                self._polled(records, task)
        return found

    def __aiter__(self) -> _Given:
        return _Given(aiter(self.inner), self._journal, self._one)

    def batches(self) -> _Given:
        return _Given(self.inner.batches(), self._journal, self._polled)

    # --- offsets ---

    async def commit(self, offsets: Records | Mapping[TopicPartition, Any] | None = None) -> None:
        given: Offsets | None = None
        if isinstance(offsets, Records):
            given = ((offsets.topic_partition, offsets.next_offset),)
        elif offsets is not None:
            given = plain_offsets(offsets)
        # Like a poll, `commit()` marks all records of this task as processed; a commit of explicit
        # offsets only those.
        task = self._journal.task() if offsets is None else ""
        outcome: Outcome = "unknown"
        with self._journal.call("commit", self._api_s, task) as call:
            self._journal.note(Committing, call.number, given)
            try:
                await self.inner.commit(offsets)
                outcome = "ok"
            except CommitFailed:
                outcome = "failed"
                raise
            finally:
                self._journal.note(Committed, call.number, outcome)

    async def committed(
        self, *partitions: PartitionArgument
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        with self._journal.call("committed", self._api_s):
            return await self.inner.committed(*partitions)

    async def position(self, partition: TopicPartition) -> int:
        with self._journal.call("position", self._api_s):
            return await self.inner.position(partition)

    def positions(self) -> dict[TopicPartition, OffsetAndMetadata]:
        return self.inner.positions()

    def mark_committed(self, offsets: Any) -> None:
        self.inner.mark_committed(offsets)

    def group_metadata(self) -> GroupMetadata:
        return self.inner.group_metadata()

    def seek(self, partition: TopicPartition, offset: int) -> None:
        self.inner.seek(partition, offset)
        self._journal.note(PositionSought, (TopicPartition(*partition),), offset)

    async def seek_to_beginning(self, *partitions: PartitionArgument) -> None:
        await self._sought("beginning", partitions)

    async def seek_to_end(self, *partitions: PartitionArgument) -> None:
        await self._sought("end", partitions)

    async def seek_to_committed(self, *partitions: PartitionArgument) -> None:
        await self._sought("committed", partitions)

    async def _sought(self, where: str, partitions: tuple[PartitionArgument, ...]) -> None:
        chosen = parse_topic_partitions(partitions) or sorted(self.inner.assignment())
        call = getattr(self.inner, f"seek_to_{where}")
        with self._journal.call(f"seek_to_{where}", self._api_s):
            # The position is invalid from the start of the call.
            self._journal.note(PositionSought, tuple(chosen), where)
            await call(*partitions)

    # --- pausing ---

    def pause(self, *partitions: PartitionArgument) -> None:
        self.inner.pause(*partitions)
        self._journal.note(Paused, tuple(parse_topic_partitions(partitions)))

    def resume(self, *partitions: PartitionArgument) -> None:
        self.inner.resume(*partitions)
        self._journal.note(Resumed, tuple(parse_topic_partitions(partitions)))

    def paused(self) -> frozenset[TopicPartition]:
        return self.inner.paused()

    # --- what the cluster has ---

    async def beginning_offsets(self, *partitions: PartitionArgument) -> dict[TopicPartition, int]:
        with self._journal.call("beginning_offsets", self._api_s):
            return await self.inner.beginning_offsets(*partitions)

    async def end_offsets(self, *partitions: PartitionArgument) -> dict[TopicPartition, int]:
        with self._journal.call("end_offsets", self._api_s):
            return await self.inner.end_offsets(*partitions)

    async def offsets_for_times(self, timestamps_ms: Mapping[TopicPartition, int]) -> Any:
        with self._journal.call("offsets_for_times", self._api_s):
            return await self.inner.offsets_for_times(timestamps_ms)

    async def partitions_for(self, topic: str) -> tuple[int, ...]:
        with self._journal.call("partitions_for", self._api_s):
            return await self.inner.partitions_for(topic)

    async def topics(self) -> tuple[str, ...]:
        with self._journal.call("topics", self._api_s):
            return await self.inner.topics()

    def lag(self, partition: TopicPartition) -> int | None:
        return self.inner.lag(partition)

    def metrics(self) -> dict[str, int | float]:
        return self.inner.metrics()


def _bytes(value: Any) -> bytes:
    return b"" if value is None else bytes(value)

"""Turns fetched records into items of the scheduler."""

from __future__ import annotations

import logging
from collections.abc import Collection, Hashable, Iterable, Sequence
from typing import Any

from aiokafkawire.errors import CorruptRecord, DeserializationFailed
from aiokafkawire.logs import log_fields
from aiokafkawire.records import Record, Records
from aiokafkawire.runtime import Clock
from aiokafkawire.share.record import ShareRecord
from aiokafkawire.share.records import ShareRecords
from aiokafkawire.types import TopicPartition
from aiokafkawire.worker.failed_records import RetryTopic, retry_topics
from aiokafkawire.worker.handlers import RecordHandler, WorkerRecord
from aiokafkawire.worker.letters import read_retry_state, retry_topic_delay
from aiokafkawire.worker.outcomes import DeadLetter
from aiokafkawire.worker.partition_work import PartitionWork, WorkItem
from aiokafkawire.worker.retry_policy import RetryPolicy
from aiokafkawire.worker.scheduler import Scheduler

__all__ = ("RecordIntake",)

logger = logging.getLogger("aiokafkawire.worker")


def _reject(record: WorkerRecord[Any, Any]) -> None:
    raise DeadLetter("no handler: its topic has none any more, or another program wrote it")


NO_HANDLER = RecordHandler(
    function=_reject,
    topics=(),
    order_by=None,
    decode_key=None,
    decode_value=None,
    timeout_s=None,
    retries=RetryPolicy(),
)
"""RecordHandler of records in retry topics that belong to no handler."""


class RecordIntake:
    """Finds the handler of each record, and groups records that are processed in order.

    Args:
        group_id: Group of the worker, which names the retry topics.
        handlers: All handlers.
        scheduler: Gets the items.
        clock: Gives the times of delayed retries.
    """

    def __init__(
        self, group_id: str, handlers: Collection[RecordHandler], scheduler: Scheduler, clock: Clock
    ) -> None:
        self._group_id = group_id
        self._handlers = {topic: handler for handler in handlers for topic in handler.topics}
        self._retry_topics: dict[str, RetryTopic] = retry_topics(group_id, handlers)
        self._scheduler = scheduler
        self._clock = clock

    @property
    def retry_topics(self) -> Collection[str]:
        """Names of the retry topics."""
        return self._retry_topics.keys()

    def add_existing_topics(self, names: Iterable[str]) -> None:
        """Read the retry topics of delays that no handler has any more."""
        for name in names:
            delay_ms = retry_topic_delay(self._group_id, name)
            if delay_ms is not None and name not in self._handlers:
                self._retry_topics.setdefault(name, RetryTopic(name, delay_ms))
        self._scheduler.add_retry_topics(self._retry_topics)

    @property
    def topics(self) -> Collection[str]:
        """Names of all topics to read."""
        return [*self._handlers, *self._retry_topics]

    def add(self, tp: TopicPartition, records: Records) -> bool:
        """Add the records of a batch to the scheduler.

        Returns:
            False if the offsets went back: the topic was deleted and created again, or the log was
            truncated. Nothing is added then.
        """
        work, first = self._scheduler.partition(tp), records.first_offset
        if not work.is_active or first is None:
            return True
        if not work.offsets.is_before(first):
            return False
        self._add(tp, records, work)
        return True

    def _add(self, tp: TopicPartition, records: Records, work: PartitionWork) -> None:
        unfinished = work.offsets.add(records)
        if not unfinished:
            return
        retry = self._retry_topics.get(tp.topic)
        if retry is not None:
            for record in unfinished:
                self._scheduler.add(self._delayed_item(record, work, retry))
            return
        handler = self._handlers[tp.topic]
        if handler.batch is not None:
            self._scheduler.collect(work, handler, unfinished, self._clock.now())
            return
        if handler.order_by == "partition":
            self._scheduler.add(WorkItem(unfinished, work, handler, True))
        elif isinstance(unfinished, ShareRecords):
            for record in unfinished:
                item = WorkItem([record], work, handler)
                # A delivery that was not acknowledged may have ended a process.
                # mutation: deliveries-do-not-count-as-attempts
                item.own_failures().attempts = record.delivery_count - 1
                self._scheduler.add(item)
        elif callable(handler.order_by):
            self._add_by_function(unfinished, work, handler)
        else:
            keys = handler.ordering_keys(unfinished)
            self._scheduler.add(WorkItem(unfinished, work, handler, keys=keys))

    def _add_by_function(
        self, records: Sequence[Record], work: PartitionWork, handler: RecordHandler
    ) -> None:
        """Add records that a function of the application orders, which may raise."""
        ordered: list[Record] = []
        keys: list[Hashable] = []
        for record in records:
            try:
                keys.append(handler.ordering_key(record))
            except Exception as error:
                self._scheduler.add(WorkItem([record], work, handler.failing(error)))
            else:
                ordered.append(record)
        if ordered:
            self._scheduler.add(WorkItem(ordered, work, handler, keys=keys))

    def add_corrupt(self, records: Sequence[ShareRecord], error: CorruptRecord) -> None:
        """Add the records of a corrupt batch, as records that cannot be deserialized."""
        if not records:
            return  # their locks have ended
        logger.error(
            "Group %s: %d records cannot be read, and count as failed: %s",
            self._group_id,
            len(records),
            error,
            extra=log_fields(error=error),
        )
        for record in records:
            work = self._scheduler.partition(record.topic_partition)
            if not work.is_active:
                return
            failure = DeserializationFailed("the batch of the record is corrupt", record=record)
            failure.__cause__ = error
            handler = self._handlers[record.topic].failing(failure)
            item = WorkItem(work.offsets.add([record]), work, handler)
            item.own_failures().attempts = record.delivery_count - 1
            self._scheduler.add(item)

    def _delayed_item(self, record: Record, work: PartitionWork, retry: RetryTopic) -> WorkItem:
        """Return the item of a record of a retry topic."""
        clock = self._clock
        try:
            state = read_retry_state(record)
        except ValueError:
            return WorkItem([record], work, NO_HANDLER)
        handler, key = self._handlers.get(state.origin.topic, NO_HANDLER), None
        try:
            # The order of a partition is lost here, and that of keys is kept within the topic.
            key = None if handler.order_by == "partition" else handler.ordering_key(record)
        except Exception as error:
            handler = handler.failing(error)
        item = WorkItem([record], work, handler, key)
        failures = item.own_failures()
        failures.tier = state.tier
        failures.earlier_attempts = state.attempts
        failures.first_failure_ms = state.first_failure_ms
        # Clocks differ between hosts, so the delay is bounded by that of the topic.
        if handler is NO_HANDLER:
            return item
        wait_ms = min(state.not_before_ms - clock.wall_ms(), retry.delay_ms)
        item.due = clock.now() + max(0, wait_ms) / 1_000
        return item

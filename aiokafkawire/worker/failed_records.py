"""Writes failed records to retry topics and the dead letter topic."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Collection, Mapping

from aiokafkawire.admin import Admin
from aiokafkawire.config import WorkerConfig
from aiokafkawire.errors import RecordTooLarge
from aiokafkawire.logs import log_fields
from aiokafkawire.producer import Producer
from aiokafkawire.records import Record
from aiokafkawire.runtime import Clock
from aiokafkawire.worker.handlers import RecordHandler
from aiokafkawire.worker.letters import (
    FailedRecord,
    Origin,
    RetryState,
    dead_letter_headers,
    place_headers,
    read_origin,
    read_retry_state,
    retry_headers,
    retry_topic,
)
from aiokafkawire.worker.partition_work import WorkItem
from aiokafkawire.worker.retry_policy import RetryLater, WriteDeadLetter

__all__ = ("FailedRecordWriter", "RetryTopic", "ensure_topics", "retry_topics")

logger = logging.getLogger("aiokafkawire.worker")


class RetryTopic:
    """A topic of records that wait for their next attempt.

    Attributes:
        name: Name of the topic.
        delay_ms: Delay before the attempt.
    """

    __slots__ = ("delay_ms", "name")

    def __init__(self, name: str, delay_ms: int) -> None:
        self.name = name
        self.delay_ms = delay_ms


def retry_topics(group_id: str, handlers: Collection[RecordHandler]) -> dict[str, RetryTopic]:
    """Return the retry topics of all handlers, by name."""
    delays = sorted({delay for handler in handlers for delay in handler.retries.delays_ms})
    topics = [RetryTopic(retry_topic(group_id, delay), delay) for delay in delays]
    return {topic.name: topic for topic in topics}


async def ensure_topics(admin: Admin, topics: Collection[str]) -> None:
    """Create topics that do not exist, with the brokers' defaults.

    Raises:
        PartialFailure: A topic does not exist and cannot be created.
    """
    if topics:
        await admin.ensure_topics(topics)


class FailedRecordWriter:
    """Writes copies of failed records, and reads the state of those in retry topics."""

    def __init__(
        self, config: WorkerConfig, producer: Producer, clock: Clock, fields: Mapping[str, object]
    ) -> None:
        self._config = config
        self._producer = producer
        self._clock = clock
        self._fields = fields

    def origin(self, record: Record) -> Origin:
        """Return the place where a record was written first."""
        return read_origin(record, self._config.dead_letter_headers) or Origin(
            record.topic, record.partition, record.offset, record.timestamp_ms
        )

    async def write(self, item: WorkItem, decision: RetryLater | WriteDeadLetter) -> None:
        """Write a copy of a failed record, and wait until all in-sync replicas have it.

        Raises:
            KafkaError: The copy was not acknowledged.
        """
        if isinstance(decision, RetryLater):
            await self._write_retry(item, decision.tier)
        else:
            await self._write_dead_letter(item, decision.reason)

    def _state(self, item: WorkItem) -> tuple[Origin, int]:
        """Return the origin and the total of attempts."""
        origin = read_retry_state(item.record).origin if item.tier else self.origin(item.record)
        return origin, item.total_attempts

    async def _write_retry(self, item: WorkItem, tier: int) -> None:
        delay_ms = item.handler.retries.delays_ms[tier]
        origin, attempts = self._state(item)
        now_ms = self._clock.wall_ms()
        # mutation: retry-topic-not-passed
        state = RetryState(
            origin, attempts, tier + 1, now_ms + delay_ms, item.first_failure_ms or now_ms
        )
        await self._send(
            item, retry_topic(self._config.group, delay_ms), retry_headers(item.record, state)
        )

    async def _write_dead_letter(self, item: WorkItem, reason: str) -> None:
        assert item.error is not None
        origin, attempts = self._state(item)
        failed = FailedRecord(item.record, origin, self._config.group, attempts, reason, item.error)
        dialect = self._config.dead_letter_headers
        try:
            headers = dead_letter_headers(failed, dialect)
            await self._send(item, self._config.dead_letters, headers)
        except RecordTooLarge:
            await self._send(item, self._config.dead_letters, place_headers(failed, dialect))
        with contextlib.suppress(Exception):  # the text of an exception may raise
            logger.error(
                "Group %s: %s offset %d: written to %s at attempt %d (%s): %r",
                self._config.group_id,
                item.partition.tp,
                item.record.offset,
                self._config.dead_letters,
                attempts,
                reason,
                item.error,
                extra=log_fields(
                    self._fields, error=item.error, tp=item.partition.tp, offset=item.record.offset
                ),
            )

    async def _send(
        self, item: WorkItem, topic: str, headers: list[tuple[str, bytes | None]]
    ) -> None:
        record = item.record
        await self._producer.send_and_wait(
            topic, value=record.value, key=record.key, headers=headers
        )

"""Writes failed records to retry topics and the dead letter topic."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from aiokafkawire.config import WorkerConfig
from aiokafkawire.errors import KafkaError, RecordTooLarge
from aiokafkawire.logs import RateLimit
from aiokafkawire.producer import Producer
from aiokafkawire.records import Record
from aiokafkawire.runtime import Clock
from aiokafkawire.worker.failure_log import log_dead_letter
from aiokafkawire.worker.handlers import RecordHandler
from aiokafkawire.worker.letters import (
    FailedRecord,
    Origin,
    RetryState,
    dead_letter_headers,
    origin_headers,
    read_origin,
    read_retry_state,
    retry_headers,
    retry_topic,
)
from aiokafkawire.worker.outputs import OutputRecord, UncommittedRecord
from aiokafkawire.worker.partition_work import WorkItem
from aiokafkawire.worker.retry_policy import RetryLater, WriteDeadLetter

__all__ = ("FailedRecordWriter", "RetryTopic", "retry_topics")


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


class FailedRecordWriter:
    """Writes copies of failed records, and reads the state of those in retry topics.

    Attributes:
        log_limit: Limit of the lines about records that cannot be deserialized.
    """

    def __init__(
        self, config: WorkerConfig, producer: Producer, clock: Clock, fields: Mapping[str, object]
    ) -> None:
        self.log_limit = RateLimit()
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
        copy = self.copy(item, decision)
        try:
            await self._send(copy)
        except RecordTooLarge:
            if copy.failed is None:
                raise
            # mutation: too-large-dead-letter-not-written
            await self._send(self.dead_letter(copy.failed, is_short=True))
        if copy.failed is not None:
            now = self._clock.now()
            log_dead_letter(
                copy.failed, self._config.dead_letters, self._fields, self.log_limit, now
            )

    async def _send(self, copy: UncommittedRecord) -> None:
        for record in copy.output:
            await self._producer.send_and_wait(*record)

    def copy(self, item: WorkItem, decision: RetryLater | WriteDeadLetter) -> UncommittedRecord:
        """Return the copy of a failed record for a retry topic or the dead letter topic."""
        if isinstance(decision, RetryLater):
            return self._retry(item, decision.tier)
        assert item.failures.error is not None
        return self.dead_letter(
            FailedRecord(
                item.record,
                self.origin_of(item, item.record),
                self._config.group,
                item.failures.total_attempts,
                decision.reason,
                item.failures.error,
            )
        )

    def origin_of(self, item: WorkItem, record: Record) -> Origin:
        """Return the place where a record of an item was written first."""
        return read_retry_state(record).origin if item.failures.tier else self.origin(record)

    def _retry(self, item: WorkItem, tier: int) -> UncommittedRecord:
        record, delay_ms = item.record, item.handler.retries.delays_ms[tier]
        origin, attempts = self.origin_of(item, record), item.failures.total_attempts
        now_ms = self._clock.wall_ms()
        # mutation: retry-topic-not-passed
        state = RetryState(
            origin, attempts, tier + 1, now_ms + delay_ms, item.failures.first_failure_ms or now_ms
        )
        topic = retry_topic(self._config.group, delay_ms)
        output = OutputRecord(topic, record.value, record.key, headers=retry_headers(record, state))
        return UncommittedRecord(record, origin, attempts, (output,))

    def refused(self, finished: UncommittedRecord, error: KafkaError) -> UncommittedRecord:
        """Return the dead letter of a record whose output brokers refuse.

        A dead letter that is too large keeps only its origin.
        """
        if finished.failed is not None:
            return self.dead_letter(finished.failed, is_short=isinstance(error, RecordTooLarge))
        return self.dead_letter(
            FailedRecord(
                finished.record,
                finished.origin,
                self._config.group,
                finished.attempts,
                "its output is refused",
                error,
            )
        )

    def dead_letter(self, failed: FailedRecord, *, is_short: bool = False) -> UncommittedRecord:
        """Return the dead letter of a failed record.

        Args:
            failed: The record and its last failure.
            is_short: Whether only the origin is left of its headers.
        """
        record, make_headers = failed.record, origin_headers if is_short else dead_letter_headers
        headers = make_headers(failed, self._config.dead_letter_headers)
        output = OutputRecord(self._config.dead_letters, record.value, record.key, headers=headers)
        return UncommittedRecord(record, failed.origin, failed.attempts, (output,), failed)

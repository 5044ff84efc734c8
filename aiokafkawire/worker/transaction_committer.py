"""Commits offsets in transactions, with the output of the records before them (KIP-447)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import suppress
from typing import NamedTuple, TypeGuard

from aiokafkawire.consumer import Consumer
from aiokafkawire.errors import (
    AuthorizationFailed,
    BrokerError,
    ClientClosed,
    KafkaError,
    RecordTooLarge,
    RequestTimedOut,
    TransactionAborted,
    TransactionFailed,
    UnknownTopic,
)
from aiokafkawire.logs import RateLimit, log_fields
from aiokafkawire.producer import Delivery, Producer
from aiokafkawire.runtime import Clock
from aiokafkawire.types import TopicPartition
from aiokafkawire.wire import ErrorCode
from aiokafkawire.worker.committer import Committer
from aiokafkawire.worker.failure_log import log_dead_letter
from aiokafkawire.worker.outputs import OutputRecord, UncommittedRecord
from aiokafkawire.worker.partition_work import PartitionWork
from aiokafkawire.worker.scheduler import Scheduler
from aiokafkawire.worker.transaction_content import TransactionContent

__all__ = ("TransactionCommitter",)

logger = logging.getLogger("aiokafkawire.worker")

REFUSALS = frozenset(
    {
        ErrorCode.INVALID_RECORD,
        ErrorCode.INVALID_TIMESTAMP,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        ErrorCode.RECORD_LIST_TOO_LARGE,
    }
)
"""Errors of a record that fail again in every transaction."""

Refuse = Callable[[PartitionWork, UncommittedRecord, KafkaError], None]


class PartitionsLost(Exception):
    """A partition was revoked or lost before its offset was sent; aborts the transaction."""


class _Write(NamedTuple):
    """A record that a transaction writes; its delivery is None while `send` waits."""

    work: PartitionWork
    finished: UncommittedRecord
    record: OutputRecord
    delivery: Delivery | None = None


class TransactionCommitter(Committer):
    """Commits in transactions, one at a time.

    A transaction has the offsets of partitions that changed, and the output of all records before
    them that earlier transactions have not committed. After an abort, the next transaction writes
    the same output: handlers do not run again.

    Args:
        producer: Has a `transactional_id`.
        refuse: Called with finished records whose output brokers refuse, and the error.

    Attributes:
        producer: Present producer.
        producer_failure: Why the producer failed permanently; nothing is committed until it is
            replaced.
    """

    def __init__(
        self,
        consumer: Consumer,
        scheduler: Scheduler,
        clock: Clock,
        fields: Mapping[str, object],
        *,
        producer: Producer,
        refuse: Refuse,
    ) -> None:
        super().__init__(consumer, scheduler, clock, fields)
        self.producer = producer
        self.producer_failure: KafkaError | None = None
        self._refuse = refuse
        self._log_limit = RateLimit()
        self._interrupted: TransactionContent | None = None  # of a commit that was cancelled

    async def _commit(self, partitions: Collection[TopicPartition] | None) -> None:
        # The producer completes a commit that was cancelled. To write its output again would
        # duplicate it, so what is left of its partitions is processed again by the next owner.
        if self._interrupted is not None and not self._interrupted.is_over:
            return
        content = self._scheduler.next_transaction(partitions)
        if not content.offsets or self.producer_failure is not None:
            return
        writes: list[_Write] = []
        try:
            await self._run_transaction(content, writes)
        except PartitionsLost:
            return
        except KafkaError as error:
            self._on_failure(error, content.offsets)
            self.producer_failure = self._find_producer_failure()
            for work, finished, refusal in _refusals(content, writes, error):
                self._refuse(work, finished, refusal)
        except BaseException:
            self._interrupted = content
            raise
        else:
            self._interrupted = None
            self._scheduler.finish_transaction(content)
            with suppress(ClientClosed):  # a worker that stops waits for a limited time
                self._consumer.mark_committed(content.offsets)
            now = self._clock.now()
            for _, finished in content.finished:
                if finished.failed is not None:
                    topic = finished.output[0].topic
                    log_dead_letter(finished.failed, topic, self._fields, self._log_limit, now)
            self.failing_since = None

    async def _run_transaction(self, content: TransactionContent, writes: list[_Write]) -> None:
        """Commit a transaction.

        Raises:
            PartitionsLost: It is aborted.
            KafkaError: It is aborted, or the producer has failed.
        """
        is_written = False
        try:
            async with self.producer.transaction():
                await self._write(content, writes)
                # No await in between: the metadata is of the generation that owns the partitions,
                # or of an older one, which the coordinator refuses.
                # mutation: offsets-of-lost-partitions-committed
                if content.is_fenced:
                    raise PartitionsLost
                # mutation: output-written-without-offsets
                await self.producer.send_offsets_to_transaction(
                    content.offsets, self._consumer.group_metadata()
                )
                is_written = True
        except RequestTimedOut as error:
            if not is_written:
                raise
            await self._wait_for_outcome(error)

    async def _write(self, content: TransactionContent, writes: list[_Write]) -> None:
        for work, finished in content.finished:
            for record in finished.output:
                writes.append(_Write(work, finished, record))
                delivery = await self.producer.send(*record)
                writes[-1] = writes[-1]._replace(delivery=delivery)

    async def _wait_for_outcome(self, error: KafkaError) -> None:
        """Wait until a commit that timed out has succeeded.

        Raises:
            KafkaError: The transaction is aborted, or the producer has failed.
        """
        while True:
            logger.warning(
                "Group %s: waiting for the outcome of a transaction: %s",
                self._consumer.config.group_id,
                error,
                extra=log_fields(self._fields, error=error),
            )
            try:
                await self.producer.commit_transaction()
            except RequestTimedOut as again:
                error = again
            except TransactionFailed:
                await self.producer.abort_transaction()
                raise
            else:
                return

    def _find_producer_failure(self) -> KafkaError | None:
        try:
            self.producer.transaction()
        except KafkaError as error:
            return error
        return None


def _refusals(
    content: TransactionContent, writes: list[_Write], error: KafkaError
) -> Iterator[tuple[PartitionWork, UncommittedRecord, KafkaError]]:
    """Yield the finished records whose output is refused, and why."""
    refused: set[int] = set()
    for write in writes:
        failure = error if write.delivery is None else _failure(write, error.__cause__)
        if id(write.finished) not in refused and _is_refusal(failure):
            refused.add(id(write.finished))
            yield write.work, write.finished, failure
    # `send` waits for up to `max_block_ms` for a topic, so others must not wait for the same one.
    if not writes or writes[-1].delivery is not None or not _is_refusal(error):
        return
    if isinstance(error, RecordTooLarge):
        return
    unwritable = writes[-1].record
    for work, finished in content.finished:
        if id(finished) not in refused and any(
            (record.topic, record.partition) == (unwritable.topic, unwritable.partition)
            for record in finished.output
        ):
            yield work, finished, error


def _failure(write: _Write, cause: BaseException | None) -> KafkaError | None:
    """Return why a record was not delivered, if it has failed itself."""
    assert write.delivery is not None
    if isinstance(cause, AuthorizationFailed) and cause.resource_name == write.record.topic:
        return cause
    if not write.delivery.done:
        return None
    try:
        write.delivery.result()
    except TransactionAborted:
        return None
    except KafkaError as failure:
        return failure
    return None


def _is_refusal(error: KafkaError | None) -> TypeGuard[KafkaError]:
    if isinstance(error, AuthorizationFailed):
        return error.resource_type == "topic"
    if isinstance(error, BrokerError):
        return error.code in REFUSALS and not error.is_of_other_record
    return isinstance(error, RecordTooLarge | UnknownTopic)

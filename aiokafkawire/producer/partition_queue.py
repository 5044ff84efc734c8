"""The batches of one partition, in order: which one may be sent, and how a result changes them.

A batch is sent only after all earlier ones were sent, and retried only when no earlier one is in
flight. This keeps the order. With idempotence a broker also drops duplicates, by the sequence
numbers of `sequences`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter

from aiokafkawire.errors import DeliveryUnknown, KafkaError, TransactionAborted
from aiokafkawire.producer.accumulator_config import QueueConfig
from aiokafkawire.producer.attempt_result import AttemptResult
from aiokafkawire.producer.batch import Batch, BatchEvent, BatchState
from aiokafkawire.producer.batch_actions import BatchAction
from aiokafkawire.producer.batch_future import BatchAppended, BatchFailed
from aiokafkawire.producer.batch_split import split_batch
from aiokafkawire.producer.delivery_errors import (
    delivery_timed_out,
    delivery_unknown,
    oversize_suspected,
)
from aiokafkawire.producer.sequences import Draining, PartitionSequences, Sequencing
from aiokafkawire.records import BatchBuilder
from aiokafkawire.runtime import NEVER, copy_error
from aiokafkawire.types import NodeId, TopicPartition

__all__ = ("MAX_OVERSIZE_DISCONNECTS", "PartitionQueue")

MAX_OVERSIZE_DISCONNECTS = 4
"""A large batch fails after this many disconnects that it may have caused by its size."""

PRODUCER_ID_EXPIRATION_S = 3600.0
"""After this time without an acknowledgement the next batch is sent alone: the broker may have
expired the producer id (`producer.id.expiration.ms`, one day by default)."""

TOPIC_RECREATED = "the topic was deleted and recreated meanwhile"


Completed = Sequence[Batch]
"""Batches that have their outcome now."""

# Attribute access on an Enum class is slow up to Python 3.11.
_DONE, _SENT = BatchState.DONE, BatchEvent.SENT
_ORDER = attrgetter("order")


class PartitionQueue:
    """The batches of one partition.

    Methods that complete batches return them. A batch that was split has its parts in the outcome.

    Attributes:
        sequences: Assigns sequence numbers; None without idempotence.
        open: The batch that takes records, if any.
        builder: The builder of the open batch, while it takes records without a check of the
            producer: no other caller waits for room, none flushes, and the producer is not closed.
        waiting: Closed batches to send, and last the open one, in the batches' order.
        in_flight: Batches that were sent and have no response yet, in the batches' order.
        expired_in_flight: Batches that expired before their response; at most `max_in_flight`.
    """

    def __init__(
        self,
        topic_partition: TopicPartition,
        config: QueueConfig,
        sequences: PartitionSequences | None,
    ) -> None:
        self.topic_partition = topic_partition
        self.config = config
        self.sequences = sequences
        self.leader: NodeId | None = None
        self.open: Batch | None = None
        self.builder: BatchBuilder | None = None
        self.waiting: deque[Batch] = deque()
        self.in_flight: list[Batch] = []
        self.expired_in_flight: set[Batch] = set()
        self.last_order = 0
        self._acked_at = -NEVER

    # --- send ---

    def add_open_batch(self, batch: Batch, now: float) -> None:
        """Append an open batch behind all others."""
        if self.sequences is not None and now - self._acked_at > PRODUCER_ID_EXPIRATION_S:
            self.sequences.producer_id_expired()
        self.open = batch
        self.waiting.append(batch)

    def head(self) -> Batch | None:
        """Return the next batch to send; while draining, the first one with a sequence number."""
        if not self.waiting:
            return None
        sequences = self.sequences
        draining = sequences is not None and type(sequences.state) is Draining
        return self._first_sequenced() if draining else self.waiting[0]

    def _first_sequenced(self) -> Batch:
        sequenced = (batch for batch in self.waiting if batch.sequence is not None)
        return next(sequenced, self.waiting[0])

    def sendable_at(self, flushing: bool) -> float:
        """Return when the next batch may be sent; NEVER if a response must arrive first.

        Args:
            flushing: Send open batches without linger.
        """
        if not self.waiting:
            return NEVER
        sequences = self.sequences
        draining = sequences is not None and type(sequences.state) is Draining
        head = self._first_sequenced() if draining else self.waiting[0]
        if head.attempts:
            if any(other.order < head.order for other in self.in_flight):
                return NEVER
        # mutation: max-in-flight-exceeded
        elif len(self.in_flight) >= self.config.max_in_flight:
            return NEVER
        if sequences is not None:
            if self.in_flight and (
                sequences.first_batch_pending
                or head.order[0] - self.in_flight[0].order[0]
                >= sequences.producer_id_state.max_dedup_batches
            ):
                return NEVER
            if head.sequence is None and not self._can_sequence(sequences):
                return NEVER
        if head is self.open and not flushing:
            assert head.builder is not None
            if not head.builder.is_full:
                return head.linger_until
        return head.not_before

    def take(self, batch: Batch) -> None:
        """Move the `head`, which is closed, to `in_flight` once `sendable_at` is reached."""
        self.waiting.remove(batch)
        self.mark_sent(batch)
        if len(self.in_flight) > 1:
            self.in_flight.sort(key=_ORDER)

    def mark_sent(self, batch: Batch) -> None:
        """Move a closed batch that is not in `waiting` to `in_flight`."""
        if batch.sequence is None and self.sequences is not None:
            batch.sequence = self.sequences.assign(batch.future.count)
        batch.handle(_SENT)
        batch.attempts += 1
        self.in_flight.append(batch)

    def can_send_immediately(self, now: float) -> bool:
        """Return whether a new batch could be sent now.

        That is: no other batch is waiting or in flight, and the producer id and epoch of the
        partition stay the same.
        """
        if self.waiting or self.in_flight:
            return False
        sequences = self.sequences
        if sequences is None:
            return True
        producer_id_state, state = sequences.producer_id_state, sequences.state
        return (
            type(state) is Sequencing
            and state.identity is producer_id_state.current
            and producer_id_state.bumps_own_epoch
            and now - self._acked_at <= PRODUCER_ID_EXPIRATION_S
        )

    def _can_sequence(self, sequences: PartitionSequences) -> bool:
        producer_id_state, state = sequences.producer_id_state, sequences.state
        # mutation: records-sent-before-partition-added
        if not producer_id_state.bumps_own_epoch and not producer_id_state.can_send_to(
            self.topic_partition
        ):
            return False
        if type(state) is Sequencing and state.identity is producer_id_state.current:
            return True  # the usual case
        return sequences.can_assign(self._any_sequenced())

    def _any_sequenced(self) -> bool:
        if self.in_flight:
            return True
        for batch in self.waiting:  # noqa: SIM110 - a generator costs more for one batch
            if batch.sequence is not None:
                return True
        return False

    # --- results ---

    def handle_result(
        self,
        batch: Batch,
        result: AttemptResult,
        now: float,
        not_before: float,
        abort_error: TransactionAborted | None = None,
    ) -> Completed:
        """Apply the result of an attempt: complete, retry or split the batch.

        Does nothing for a batch that expired before its response.

        Args:
            not_before: Earliest time of a retry.
            abort_error: A refused batch fails with it instead of being retried.
        """
        if batch.state is _DONE:
            return ()
        if abort_error is not None and result.action is not BatchAction.APPENDED:
            maybe_written = batch.uncertain or result.action in _UNCERTAIN
            return self._abort_batch(batch, abort_error, maybe_written)
        return _ON_ACTION[result.action](self, batch, result, now, not_before)

    def _appended(self, batch: Batch, result: AttemptResult, now: float, _: float) -> Completed:
        self.in_flight.remove(batch)
        self._acked_at = now
        if (
            batch.sequence is not None
            and self.sequences is not None
            and not batch.sent_topic.is_deleted
        ):
            self.sequences.acknowledged(batch.sequence)
        batch.complete(BatchAppended(result.base_offset, result.log_append_time_ms))
        return (batch,)

    def _retry(
        self, batch: Batch, result: AttemptResult, now: float, not_before: float
    ) -> Completed:
        batch.last_error = result.error
        if batch.sent_topic.is_deleted and batch.uncertain:
            return self._fail(batch, delivery_unknown(batch, TOPIC_RECREATED, result.error))
        if batch.attempts > self.config.retries:
            return self._fail_with_error(batch, result, now, not_before)
        if now >= batch.expires_at:
            return self._expired(batch, batch.maybe_written)
        self._reenqueue(batch, not_before)
        return ()

    def _retry_uncertain(
        self, batch: Batch, result: AttemptResult, now: float, not_before: float
    ) -> Completed:
        # A request with the old topic id cannot have reached the recreated topic.
        if batch.sent_topic.is_deleted and not batch.sent_topic.by_name:
            batch.mark_only_in_deleted_topic()
        else:
            # mutation: uncertainty-cleared-before-retry
            batch.uncertain = True
        if result.closed_after_bytes:
            batch.oversize_disconnects += 1
            if batch.oversize_disconnects >= MAX_OVERSIZE_DISCONNECTS:
                return self._fail(batch, oversize_suspected(batch, result))
        return self._retry(batch, result, now, not_before)

    def _split_or_fail(
        self, batch: Batch, result: AttemptResult, now: float, not_before: float
    ) -> Completed:
        if batch.uncertain or batch.count == 1:
            return self._fail_with_error(batch, result, now, not_before)
        return self._split(batch, not_before)

    def _out_of_order(
        self, batch: Batch, result: AttemptResult, now: float, not_before: float
    ) -> Completed:
        sequences = self.sequences
        if sequences is None:
            return self._fail_with_error(batch, result, now, not_before)
        if self._has_earlier_sequenced_batch(batch):
            # The earlier batch is refused too; once it is appended, this sequence number fits.
            return self._retry(batch, result, now, not_before)
        if batch.uncertain and not sequences.gap_certain:
            return self._fail_with_error(batch, result, now, not_before)
        if not sequences.producer_id_state.bumps_own_epoch:
            if not sequences.draining:
                sequences.invalidate()
            batch.uncertain = False
            return self._fail_with_error(batch, result, now, not_before)
        sequences.invalidate()
        batch.uncertain = False
        completed = self._retry(batch, result, now, not_before)
        self._clear_sequences()
        return completed

    def _stale_epoch(
        self, batch: Batch, result: AttemptResult, now: float, not_before: float
    ) -> Completed:
        sequences = self.sequences
        if sequences is not None and self._has_earlier_sequenced_batch(batch):
            return self._retry(batch, result, now, not_before)
        if sequences is not None:
            # A broker never accepts a lower epoch than the log has seen: bump it.
            sequences.invalidate()
        if sequences is None or batch.uncertain or not sequences.producer_id_state.bumps_own_epoch:
            return self._fail_with_error(batch, result, now, not_before)
        completed = self._retry(batch, result, now, not_before)
        self._clear_sequences()
        return completed

    def _old_message_format(
        self, batch: Batch, result: AttemptResult, now: float, not_before: float
    ) -> Completed:
        if batch.sequence is None or self.sequences is not None:
            return self._fail_with_error(batch, result, now, not_before)
        # The producer has disabled idempotence since the batch got its sequence number.
        batch.sequence = None
        return self._retry(batch, result, now, not_before)

    def _fail_with_error(
        self, batch: Batch, result: AttemptResult, _: float, __: float
    ) -> Completed:
        assert result.error is not None
        error = result.error
        if batch.maybe_written:
            why = f"an earlier attempt may have written it; the last error: {error}"
            return self._fail(batch, delivery_unknown(batch, why, error))
        return self._fail(batch, error, result.record_errors)

    def _fail_unknown(self, batch: Batch, result: AttemptResult, _: float, __: float) -> Completed:
        batch.uncertain = True
        error = delivery_unknown(batch, "the broker's response does not say", result.error)
        return self._fail(batch, error)

    # --- expiry and abort ---

    def expire(self, now: float) -> Completed:
        """Fail the batches past their delivery timeout."""
        completed: list[Batch] = []
        for batch in [*self.in_flight, *self.waiting]:
            if batch.expires_at <= now and not batch.done:
                in_flight = batch.state is BatchState.IN_FLIGHT
                completed += self._expired(batch, self._maybe_written(batch))
                if in_flight:
                    self.expired_in_flight.add(batch)
        return completed

    def next_expiry(self) -> float:
        """Return when the first batch expires."""
        first = self.in_flight[0].expires_at if self.in_flight else NEVER
        # While draining, a sequenced batch may be in flight ahead of an older one that waits.
        return min(first, self.waiting[0].expires_at) if self.waiting else first

    def _expired(self, batch: Batch, maybe_written: bool) -> Completed:
        if batch.last_error is not None:
            reason = f"; the last error: {batch.last_error}"
        elif (
            self.sequences is not None
            and (why := self.sequences.producer_id_state.failure) is not None
        ):
            reason = f"; no producer id was assigned: {why}"
        elif self.leader is None:
            reason = "; the partition has no leader or no longer exists"
        else:
            reason = ""
        text = f"delivery_timeout_ms passed ({self.config.delivery_timeout_s:g} s){reason}"
        if maybe_written:
            return self._fail(batch, delivery_unknown(batch, text, batch.last_error))
        return self._fail(batch, delivery_timed_out(batch, text))

    def abort(self, error: KafkaError) -> Completed:
        """Fail all batches: with `error`, or as unknown if a broker may have the batch."""
        completed: list[Batch] = []
        for batch in [*self.in_flight, *self.waiting]:
            batch_error = copy_error(error)
            batch_error.topic, batch_error.partition = self.topic_partition
            if self._maybe_written(batch):
                completed += self._fail(batch, delivery_unknown(batch, error.reason, batch_error))
            else:
                completed += self._fail(batch, batch_error)
        return completed

    def abort_transaction(self, error: TransactionAborted, *, in_flight: bool) -> Completed:
        """Fail all waiting batches with `error`; with `in_flight` also those in flight."""
        completed: list[Batch] = []
        for batch in [*(self.in_flight if in_flight else ()), *self.waiting]:
            completed += self._abort_batch(batch, error, self._maybe_written(batch))
        return completed

    def _abort_batch(
        self, batch: Batch, error: TransactionAborted, maybe_written: bool
    ) -> Completed:
        batch_error = copy_error(error)
        batch_error.topic, batch_error.partition = self.topic_partition
        return self._fail(batch, batch_error, certain=not maybe_written)

    def topic_recreated(self) -> Completed:
        """Restart the sequence numbers: the new topic's log does not know the old ones.

        Its broker cannot detect duplicates of earlier attempts. A batch that was sent by topic name
        and may be in the new topic is therefore not retried.
        """
        completed: list[Batch] = []
        if self.sequences is None:
            return completed
        self.sequences.invalidate()
        for batch in self.in_flight:
            batch.sent_topic.is_deleted = True
            if batch.uncertain and not batch.sent_topic.by_name:
                batch.mark_only_in_deleted_topic()
        for batch in [batch for batch in self.waiting if batch.uncertain]:
            if batch.sent_topic.by_name:
                error = delivery_unknown(batch, TOPIC_RECREATED, batch.last_error)
                completed += self._fail(batch, error)
            else:
                batch.mark_only_in_deleted_topic()
        self._clear_sequences()
        return completed

    def _maybe_written(self, batch: Batch) -> bool:
        # mutation: sent-batch-counts-as-unsent
        return batch.maybe_written or batch.state is BatchState.IN_FLIGHT

    def _fail(
        self,
        batch: Batch,
        error: Exception,
        record_errors: Mapping[int, Exception] | None = None,
        *,
        certain: bool | None = None,
    ) -> Completed:
        if certain is None:
            certain = not isinstance(error, DeliveryUnknown)
        self._remove(batch)
        sequence, count = batch.sequence, batch.count
        batch.complete(BatchFailed(error, record_errors or {}))
        if sequence is not None and self.sequences is not None:
            self.sequences.batch_failed(sequence, count, certain)
            self._clear_sequences()
        return (batch,)

    def _split(self, batch: Batch, not_before: float) -> Completed:
        outcome, parts = split_batch(batch, not_before, keep_sequences=not self._draining())
        self.in_flight.remove(batch)
        for part in parts:
            self._insert(part)
        batch.complete(outcome)
        return (batch,)

    def _reenqueue(self, batch: Batch, not_before: float) -> None:
        batch.handle(BatchEvent.REENQUEUED)
        batch.sent_topic.is_deleted = False
        # mutation: delivery-timeout-restarts-with-each-attempt
        batch.not_before = not_before
        self.in_flight.remove(batch)
        if self._draining() and not batch.uncertain:
            batch.sequence = None
        self._insert(batch)

    def _insert(self, batch: Batch) -> None:
        position = 0
        for other in self.waiting:
            if other.order > batch.order:
                break
            position += 1
        # mutation: refused-batch-goes-to-front
        self.waiting.insert(position, batch)

    def _remove(self, batch: Batch) -> None:
        if batch.state is BatchState.IN_FLIGHT:
            self.in_flight.remove(batch)
        else:
            self.waiting.remove(batch)
            if batch is self.open:
                self.open = self.builder = None

    def _draining(self) -> bool:
        return self.sequences is not None and self.sequences.draining

    def _has_earlier_sequenced_batch(self, batch: Batch) -> bool:
        return any(
            other.sequence is not None and other.order < batch.order
            for other in [*self.in_flight, *self.waiting]
        )

    def _clear_sequences(self) -> None:
        """While draining, clear the sequence numbers of batches that are not in the log."""
        if self._draining():
            for batch in self.waiting:
                # mutation: uncertain-batch-gets-new-sequence
                if not batch.uncertain:
                    batch.sequence = None


_UNCERTAIN = frozenset({BatchAction.RETRY_UNCERTAIN, BatchAction.FAIL_UNKNOWN})

_ON_ACTION: Mapping[
    BatchAction, Callable[[PartitionQueue, Batch, AttemptResult, float, float], Completed]
] = {
    BatchAction.APPENDED: PartitionQueue._appended,
    BatchAction.RETRY: PartitionQueue._retry,
    BatchAction.RETRY_UNCERTAIN: PartitionQueue._retry_uncertain,
    BatchAction.SPLIT: PartitionQueue._split_or_fail,
    BatchAction.OUT_OF_ORDER: PartitionQueue._out_of_order,
    BatchAction.STALE_EPOCH: PartitionQueue._stale_epoch,
    BatchAction.OLD_MESSAGE_FORMAT: PartitionQueue._old_message_format,
    BatchAction.FAIL: PartitionQueue._fail_with_error,
    BatchAction.FAIL_UNKNOWN: PartitionQueue._fail_unknown,
    BatchAction.FATAL: PartitionQueue._fail_with_error,
}

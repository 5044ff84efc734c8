"""The batches of one partition, in order: which may be sent now, and what an answer changes.

Order holds because a batch goes out only after all earlier ones went out, and one that was refused
is sent again only when no earlier one is without an answer. With idempotence the numbers of
`sequences` add that a broker drops what it has already.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from aiokafkawire.errors import (
    DeliveryTimedOut,
    DeliveryUnknown,
    KafkaError,
    TransactionAborted,
)
from aiokafkawire.producer.answer import Answer
from aiokafkawire.producer.batch import Batch, BatchEvent, BatchState
from aiokafkawire.producer.delivery import Appended, Failed, Receipt, Split
from aiokafkawire.producer.outcomes import Verdict
from aiokafkawire.producer.sequences import (
    Draining,
    Flowing,
    PartitionSequences,
    Stamp,
    advance,
)
from aiokafkawire.records import BatchBuilder
from aiokafkawire.records.batch import BATCH_OVERHEAD_BYTES
from aiokafkawire.runtime import NEVER, copy_of
from aiokafkawire.types import NodeId, TopicPartition

__all__ = ("MAX_LARGE_LOSSES", "Owner", "PartitionQueue", "Policy")

MAX_LARGE_LOSSES = 4
"""So often may a large batch go out and the broker close the connection, before it is given up."""


DOUBTED_AFTER_S = 3600.0
"""A log forgets a producer that it has not heard of for long (producer.id.expiration.ms, a day by
default): after so long without an acknowledgement the first batch goes alone again."""

MADE_ANEW = "the topic was deleted and made anew meanwhile"


_tuple = tuple.__new__  # checks nothing, at half the time
# Up to Python 3.11 an enumeration looks for its members by a long way.
_DONE, _SENT = BatchState.DONE, BatchEvent.SENT


@dataclass(frozen=True, slots=True)
class Policy:
    """The options that the queues go by; times in seconds."""

    batch_size_bytes: int
    linger_s: float
    delivery_timeout_s: float
    max_in_flight: int
    retries: int


class Owner(Protocol):
    """Hears of batches that come and go.

    While `abandoned` is set, what was refused is not sent again but fails with it.
    """

    abandoned: TransactionAborted | None

    def opened(self, batch: Batch) -> None:
        """A queue has a batch more."""
        ...

    def closed(self, queue: PartitionQueue, batch: Batch, body_bytes: int) -> None:
        """A batch takes no more records; they take so much without compression."""
        ...

    def settled(self, batch: Batch) -> None:
        """A batch has its outcome."""
        ...


class PartitionQueue:
    """One partition's batches. `sequences` is None without idempotence.

    `waiting` holds closed batches and, last, the one that takes records, if any; `in_flight` those
    without an answer. Both are sorted by the batches' order. `late` have expired and are still
    under way, as many as may be in flight.
    """

    def __init__(
        self,
        topic_partition: TopicPartition,
        policy: Policy,
        owner: Owner,
        sequences: PartitionSequences | None,
    ) -> None:
        self.topic_partition = topic_partition
        self.policy = policy
        self.sequences = sequences
        self.leader: NodeId | None = None
        self.open: Batch | None = None
        self.builder: BatchBuilder | None = None  # the open batch's
        self.waiting: deque[Batch] = deque()
        self.in_flight: list[Batch] = []
        self.late: set[Batch] = set()
        self.last_order = 0
        self._acked_at = -NEVER
        self._owner = owner

    # --- what may be sent ---------------------------------------------------------------------

    def add(self, batch: Batch, now: float) -> None:
        """A batch that takes records, after all others."""
        if self.sequences is not None and now - self._acked_at > DOUBTED_AFTER_S:
            self.sequences.doubted()
        self.open = batch
        self.builder = batch.builder
        self.waiting.append(batch)
        self._owner.opened(batch)

    def close_open(self) -> None:
        """The open batch takes no more records."""
        batch = self.open
        if batch is not None:
            assert batch.builder is not None
            body_bytes = batch.builder.body_bytes
            batch.close()
            self.open = self.builder = None
            self._owner.closed(self, batch, body_bytes)

    def head(self) -> Batch | None:
        """The batch that goes next: while numbers are drained, the first that has one."""
        if not self.waiting:
            return None
        sequences = self.sequences
        draining = sequences is not None and type(sequences.state) is Draining
        return self._first_numbered() if draining else self.waiting[0]

    def _first_numbered(self) -> Batch:
        for batch in self.waiting:
            if batch.stamp is not None:
                return batch
        return self.waiting[0]

    def sendable_at(self, pressing: bool) -> float:
        """When the next batch may be sent, on the clock; NEVER: some answer must come first.

        `pressing` (a flush, or callers that wait for room) ends the wait for more records.
        """
        if not self.waiting:
            return NEVER
        sequences = self.sequences
        draining = sequences is not None and type(sequences.state) is Draining
        head = self._first_numbered() if draining else self.waiting[0]
        if head.attempts:
            if any(other.order < head.order for other in self.in_flight):
                return NEVER
        # mutation: max-in-flight-exceeded
        elif len(self.in_flight) >= self.policy.max_in_flight:
            return NEVER
        if sequences is not None:
            if self.in_flight and (
                sequences.alone
                or head.order[0] - self.in_flight[0].order[0] >= sequences.identities.remembered
            ):
                return NEVER
            if head.stamp is None and not self._may_number(sequences):
                return NEVER
        if head is self.open and not pressing:
            assert head.builder is not None
            if not head.builder.is_full:
                return head.linger_until
        return head.not_before

    def close_head(self) -> Batch:
        """The batch that goes next, closed."""
        head = self.head()
        assert head is not None
        if head is self.open:
            self.close_open()
        return head

    def take(self, closed: Batch | None = None) -> Batch:
        """Take the next batch, to be sent now; only when `sendable_at` says so. `closed`: it is the
        one that `close_head` has just given."""
        batch = closed or self.close_head()
        self.waiting.remove(batch)
        self.send(batch)
        if len(self.in_flight) > 1:
            self.in_flight.sort(key=_order)
        return batch

    def send(self, batch: Batch) -> None:
        """A closed batch, which does not wait here, is sent now; only when `at_rest`, or taken."""
        if batch.stamp is None and self.sequences is not None:
            batch.stamp = self.sequences.stamp(batch.receipt.count)
        batch.handle(_SENT)
        batch.attempts += 1
        self.in_flight.append(batch)

    def at_rest(self, now: float) -> bool:
        """Whether a batch made now could go at once: none is before it, and it would be numbered
        under the identity that is in use here already."""
        if self.waiting or self.in_flight:
            return False
        sequences = self.sequences
        if sequences is None:
            return True
        identities, state = sequences.identities, sequences.state
        return (
            type(state) is Flowing
            and state.identity is identities.current
            and identities.local
            and now - self._acked_at <= DOUBTED_AFTER_S
        )

    def _may_number(self, sequences: PartitionSequences) -> bool:
        identities, state = sequences.identities, sequences.state
        # mutation: records-sent-before-partition-added
        if not identities.local and not identities.admits(self.topic_partition):
            return False
        if type(state) is Flowing and state.identity is identities.current:
            return True  # as mostly
        return sequences.ready(self._anything_numbered())

    def _anything_numbered(self) -> bool:
        if self.in_flight:
            return True
        for batch in self.waiting:  # noqa: SIM110 - of mostly one, a generator costs more
            if batch.stamp is not None:
                return True
        return False

    # --- answers ------------------------------------------------------------------------------

    def answered(self, batch: Batch, answer: Answer, now: float, not_before: float) -> None:
        """An attempt ended; if the batch is to be sent again, then from `not_before` on.

        A batch that expired meanwhile has its outcome already.
        """
        if batch.state is _DONE:
            return
        abandoned = self._owner.abandoned
        if abandoned is not None and answer.verdict is not Verdict.APPENDED:
            maybe_written = batch.uncertain or answer.verdict in _UNCERTAIN
            self._give_up(batch, abandoned, maybe_written)
        else:
            _ON_ANSWER[answer.verdict](self, batch, answer, now, not_before)

    def _appended(self, batch: Batch, answer: Answer, now: float, _: float) -> None:
        self.in_flight.remove(batch)
        self._acked_at = now
        if batch.stamp is not None and self.sequences is not None and not batch.old_topic:
            self.sequences.acknowledged(batch.stamp)
        batch.settle(_tuple(Appended, (answer.base_offset, answer.log_append_time_ms)))
        self._owner.settled(batch)

    def _refused(self, batch: Batch, answer: Answer, now: float, not_before: float) -> None:
        batch.last_error = answer.error
        if batch.old_topic and batch.uncertain:
            self._fail(batch, _unknown(batch, MADE_ANEW, answer.error))
        elif batch.attempts > self.policy.retries:
            self._failed(batch, answer, now, not_before)
        elif now >= batch.expires_at:
            self._expired(batch, batch.maybe_written)
        else:
            self._wait_again(batch, not_before)

    def _refused_uncertain(
        self, batch: Batch, answer: Answer, now: float, not_before: float
    ) -> None:
        # A request by its id cannot have reached the topic that there is now.
        if batch.old_topic and not batch.by_name:
            batch.leave_deleted_topic()
        else:
            # mutation: uncertainty-cleared-before-retry
            batch.uncertain = True
        if answer.closed_after_bytes:
            batch.large_losses += 1
            if batch.large_losses >= MAX_LARGE_LOSSES:
                self._fail(batch, _unknown(batch, _closed_for_size(batch, answer), answer.error))
                return
        self._refused(batch, answer, now, not_before)

    def _too_large(self, batch: Batch, answer: Answer, now: float, not_before: float) -> None:
        if batch.uncertain or batch.count == 1:
            self._failed(batch, answer, now, not_before)
        else:
            self._split(batch, not_before)

    def _gap(self, batch: Batch, answer: Answer, now: float, not_before: float) -> None:
        sequences = self.sequences
        if sequences is None:
            self._failed(batch, answer, now, not_before)
            return
        if self._numbered_before(batch):
            # The earlier one was refused too, or will be; after it this number is right.
            self._refused(batch, answer, now, not_before)
            return
        if batch.uncertain and not sequences.gap_certain:
            self._failed(batch, answer, now, not_before)
            return
        if not sequences.identities.local:
            if not sequences.draining:
                sequences.lost()
            batch.uncertain = False
            self._failed(batch, answer, now, not_before)
            return
        sequences.lost()
        batch.uncertain = False
        self._refused(batch, answer, now, not_before)
        self._take_numbers_back()

    def _stale_epoch(self, batch: Batch, answer: Answer, now: float, not_before: float) -> None:
        sequences = self.sequences
        if sequences is not None and self._numbered_before(batch):
            self._refused(batch, answer, now, not_before)
            return
        if sequences is not None:
            # A lower epoch than the log's will be refused for ever: raise it.
            sequences.lost()
        if sequences is None or batch.uncertain or not sequences.identities.local:
            self._failed(batch, answer, now, not_before)
        else:
            self._refused(batch, answer, now, not_before)
            self._take_numbers_back()

    def _old_format(self, batch: Batch, answer: Answer, now: float, not_before: float) -> None:
        if batch.stamp is None or self.sequences is not None:
            self._failed(batch, answer, now, not_before)
        else:
            # By now the producer does without its ids.
            batch.stamp = None
            self._refused(batch, answer, now, not_before)

    def _failed(self, batch: Batch, answer: Answer, _: float, __: float) -> None:
        assert answer.error is not None
        error = answer.error
        if batch.maybe_written:
            why = f"an earlier attempt may have written it; the last one: {error}"
            self._fail(batch, _unknown(batch, why, error))
        else:
            self._fail(batch, error, answer.record_errors)

    def _unknown(self, batch: Batch, answer: Answer, _: float, __: float) -> None:
        batch.uncertain = True
        self._fail(batch, _unknown(batch, "the broker's answer leaves that open", answer.error))

    # --- ends ---------------------------------------------------------------------------------

    def expire(self, now: float) -> None:
        """Settle what is past its delivery timeout."""
        for batch in [*self.in_flight, *self.waiting]:
            if batch.expires_at <= now and not batch.done:
                under_way = batch.state is BatchState.IN_FLIGHT
                self._expired(batch, self._maybe_written(batch))
                if under_way:
                    self.late.add(batch)

    def next_expiry(self) -> float:
        """When the first batch expires."""
        first = self.in_flight[0].expires_at if self.in_flight else NEVER
        # A batch whose numbers are drained may stand behind an older one.
        return min(first, self.waiting[0].expires_at) if self.waiting else first

    def _expired(self, batch: Batch, maybe_written: bool) -> None:
        limit = f"delivery_timeout_ms passed ({self.policy.delivery_timeout_s:g} s)"
        if batch.last_error is not None:
            limit += f", the last error: {batch.last_error}"
        elif self.sequences is not None and (why := self.sequences.identities.failure) is not None:
            limit += f", there was no producer id: {why}"
        elif self.leader is None:
            limit += ", the partition has no leader, or does not exist any more"
        if maybe_written:
            self._fail(batch, _unknown(batch, limit, batch.last_error))
            return
        error = DeliveryTimedOut(
            f"{limit}; no broker has the record",
            topic=batch.receipt.topic,
            partition=batch.receipt.partition,
            attempt=batch.attempts or None,
        )
        error.__cause__ = batch.last_error
        self._fail(batch, error)

    def abort(self, error: KafkaError) -> None:
        """Settle everything: what no broker can have with `error`."""
        for batch in [*self.in_flight, *self.waiting]:
            mine = copy_of(error)
            mine.topic, mine.partition = self.topic_partition
            if self._maybe_written(batch):
                self._fail(batch, _unknown(batch, error.reason, mine))
            else:
                self._fail(batch, mine)

    def abandon(self, error: TransactionAborted, *, in_flight: bool) -> None:
        """Settle what waits with `error`, with `in_flight` also what has no answer yet."""
        for batch in [*(self.in_flight if in_flight else ()), *self.waiting]:
            self._give_up(batch, error, self._maybe_written(batch))

    def _give_up(self, batch: Batch, error: TransactionAborted, maybe_written: bool) -> None:
        mine = copy_of(error)
        mine.topic, mine.partition = self.topic_partition
        self._fail(batch, mine, certain=not maybe_written)

    def renumber(self) -> None:
        """The topic was made anew: numbers given before mean nothing to it.

        So it cannot tell a batch that it has from a later one. What was sent by the topic's name,
        and may be in there, is not sent again.
        """
        if self.sequences is None:
            return
        self.sequences.lost()
        for batch in self.in_flight:
            batch.old_topic = True
            if batch.uncertain and not batch.by_name:
                batch.leave_deleted_topic()
        for batch in list(self.waiting):
            if batch.uncertain and batch.by_name:
                self._fail(batch, _unknown(batch, MADE_ANEW, batch.last_error))
            elif batch.uncertain:
                batch.leave_deleted_topic()
        self._take_numbers_back()

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
    ) -> None:
        if certain is None:
            certain = not isinstance(error, DeliveryUnknown)
        self._remove(batch)
        stamp, count = batch.stamp, batch.count
        batch.settle(Failed(error, record_errors or {}))
        self._owner.settled(batch)
        if stamp is not None and self.sequences is not None:
            self.sequences.failed(stamp, count, certain)
            self._take_numbers_back()

    def _split(self, batch: Batch, not_before: float) -> None:
        """Go on with the halves, under the same numbers."""
        assert batch.records is not None
        body_bytes = len(batch.records.columns().data)
        # mutation: last-half-of-split-lost
        pieces = batch.records.split(BATCH_OVERHEAD_BYTES + body_bytes // 2)
        starts: list[int] = []
        parts: list[Batch] = []
        start = 0
        for number, records in enumerate(pieces):
            receipt = Receipt(
                batch.receipt.topic,
                batch.receipt.partition,
                batch.receipt.tally,
                batch.receipt.pacer,
            )
            receipt.count = records.count
            receipt.dated = batch.receipt.dated
            part = Batch(
                receipt, records, (*batch.order, number), batch.linger_until, batch.expires_at
            )
            part.attempts = batch.attempts
            part.maybe_in_deleted_topic = batch.maybe_in_deleted_topic
            part.last_error = batch.last_error
            part.not_before = not_before
            part.reserved_bytes = batch.reserved_bytes * records.count // batch.count
            if batch.stamp is not None and not self._draining():
                # mutation: split-halves-share-sequence
                base = advance(batch.stamp.base_sequence, start)
                part.stamp = Stamp(batch.stamp.identity, base)
            starts.append(start)
            parts.append(part)
            start += records.count
        parts[-1].reserved_bytes += batch.reserved_bytes - sum(p.reserved_bytes for p in parts)
        batch.reserved_bytes = 0
        self.in_flight.remove(batch)
        for part in parts:
            self._owner.opened(part)
            self._insert(part)
        batch.settle(Split(tuple(starts), tuple(part.receipt for part in parts)))
        self._owner.settled(batch)

    def _wait_again(self, batch: Batch, not_before: float) -> None:
        batch.handle(BatchEvent.REFUSED)
        batch.old_topic = False
        # mutation: delivery-timeout-restarts-with-each-attempt
        batch.not_before = not_before
        self.in_flight.remove(batch)
        if self._draining() and not batch.uncertain:
            batch.stamp = None
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

    def _numbered_before(self, batch: Batch) -> bool:
        return any(
            other.stamp is not None and other.order < batch.order
            for other in [*self.in_flight, *self.waiting]
        )

    def _take_numbers_back(self) -> None:
        """Behind a gap, batches that surely are not in the log get new numbers later."""
        if self._draining():
            for batch in self.waiting:
                # mutation: uncertain-batch-gets-new-sequence
                if not batch.uncertain:
                    batch.stamp = None


def _closed_for_size(batch: Batch, answer: Answer) -> str:
    return (
        f"the broker closed the connection {batch.large_losses} times after a request of"
        f" {answer.closed_after_bytes} bytes, as it does with what is over its"
        " socket.request.max.bytes"
    )


def _order(batch: Batch) -> tuple[int, ...]:
    return batch.order


def _unknown(batch: Batch, why: str, cause: Exception | None) -> DeliveryUnknown:
    error = DeliveryUnknown(
        f"the record was sent, and the log may hold it or not: {why}",
        topic=batch.receipt.topic,
        partition=batch.receipt.partition,
        attempt=batch.attempts,
    )
    error.__cause__ = cause
    return error


_UNCERTAIN = frozenset({Verdict.RETRY_UNCERTAIN, Verdict.UNKNOWN})

_ON_ANSWER: Mapping[Verdict, Callable[[PartitionQueue, Batch, Answer, float, float], None]] = {
    Verdict.APPENDED: PartitionQueue._appended,
    Verdict.RETRY: PartitionQueue._refused,
    Verdict.RETRY_UNCERTAIN: PartitionQueue._refused_uncertain,
    Verdict.SPLIT: PartitionQueue._too_large,
    Verdict.GAP: PartitionQueue._gap,
    Verdict.STALE_EPOCH: PartitionQueue._stale_epoch,
    Verdict.OLD_FORMAT: PartitionQueue._old_format,
    Verdict.FAIL: PartitionQueue._failed,
    Verdict.UNKNOWN: PartitionQueue._unknown,
    Verdict.FATAL: PartitionQueue._failed,
}

"""One batch and its states, from its first record to its outcome."""

from __future__ import annotations

import enum
from collections.abc import Mapping

from aiokafkawire.producer.batch_future import BatchFuture, BatchOutcome
from aiokafkawire.producer.sequences import BatchSequence
from aiokafkawire.records import BatchBuilder, ClosedBatch
from aiokafkawire.runtime.state_machine import transition

__all__ = ("TRANSITIONS", "Batch", "BatchEvent", "BatchState", "SentTopic")


class BatchState(enum.Enum):
    """State of a batch."""

    OPEN = "accepts records"
    WAITING = "closed, waits to be sent or retried"
    IN_FLIGHT = "sent, without a response"
    DONE = "completed"

    # Faster than Enum's hash of the name: members are looked up in tables for each batch.
    __hash__ = object.__hash__


class BatchEvent(enum.Enum):
    """Event in the life of a batch."""

    CLOSED = enum.auto()
    SENT = enum.auto()
    REENQUEUED = enum.auto()
    COMPLETED = enum.auto()

    # Faster than Enum's hash of the name: members are looked up in tables for each batch.
    __hash__ = object.__hash__


TRANSITIONS: Mapping[tuple[BatchState, BatchEvent], BatchState] = {
    (BatchState.OPEN, BatchEvent.CLOSED): BatchState.WAITING,
    (BatchState.OPEN, BatchEvent.COMPLETED): BatchState.DONE,
    (BatchState.WAITING, BatchEvent.SENT): BatchState.IN_FLIGHT,
    (BatchState.WAITING, BatchEvent.COMPLETED): BatchState.DONE,
    (BatchState.IN_FLIGHT, BatchEvent.REENQUEUED): BatchState.WAITING,
    (BatchState.IN_FLIGHT, BatchEvent.COMPLETED): BatchState.DONE,
}
"""(state, event) -> the next state; other pairs raise `InvalidTransition`."""

# Attribute access on an Enum class is slow up to Python 3.11.
_OPEN, _WAITING, _DONE = BatchState.OPEN, BatchState.WAITING, BatchState.DONE
_CLOSED, _COMPLETED = BatchEvent.CLOSED, BatchEvent.COMPLETED


class SentTopic:
    """The topic that the attempts of a batch reached, if it was deleted and recreated since.

    Attributes:
        by_name: An attempt named the topic instead of its id.
        is_deleted: The attempt in flight went to the deleted topic.
        maybe_in_deleted: The deleted topic may have held the records: the batch may be retried, but
            must not fail as not written.
    """

    __slots__ = ("by_name", "is_deleted", "maybe_in_deleted")

    def __init__(self) -> None:
        self.by_name = self.is_deleted = self.maybe_in_deleted = False


class Batch:
    """Records of one partition that are sent together.

    Times are in seconds on the runtime's clock.

    Attributes:
        future: Future of the outcome, shared by the deliveries of the records.
        order: Position in the partition. The parts of a split batch sort between its neighbours.
        linger_until: When the batch may be sent although it is not full.
        expires_at: When `delivery_timeout_ms` ends.
        not_before: When the retry backoff ends.
        sequence: Producer id, epoch and base sequence, once assigned.
        uncertain: An earlier attempt may have written the records to the log.
        oversize_disconnects: Number of connections lost after a large request with this batch.
        sent_topic: The topic that the attempts reached.
    """

    __slots__ = (
        "attempts",
        "builder",
        "expires_at",
        "future",
        "last_error",
        "linger_until",
        "not_before",
        "order",
        "oversize_disconnects",
        "records",
        "reserved_bytes",
        "sent_topic",
        "sequence",
        "state",
        "uncertain",
    )

    def __init__(
        self,
        future: BatchFuture,
        content: BatchBuilder | ClosedBatch,
        order: tuple[int, ...],
        linger_until: float,
        expires_at: float,
    ) -> None:
        self.future = future
        self.order = order
        self.linger_until = linger_until
        self.expires_at = expires_at
        self.builder: BatchBuilder | None = None
        self.records: ClosedBatch | None = None
        if type(content) is ClosedBatch:
            self.records = content
            self.state = _WAITING
        else:
            assert isinstance(content, BatchBuilder)
            self.builder = content
            self.state = _OPEN
        self.reserved_bytes = 0
        self.attempts = 0
        self.oversize_disconnects = 0
        self.sent_topic = SentTopic()
        self.not_before = 0.0
        self.sequence: BatchSequence | None = None
        self.uncertain = False
        self.last_error: Exception | None = None

    @property
    def done(self) -> bool:
        """True if the batch has its outcome."""
        return self.state is _DONE

    @property
    def maybe_written(self) -> bool:
        """True if an earlier attempt may have written the records, also to a deleted topic."""
        return self.uncertain or self.sent_topic.maybe_in_deleted

    def mark_only_in_deleted_topic(self) -> None:
        """Note that earlier attempts can have written the records only to the deleted topic."""
        self.uncertain = False
        self.sent_topic.maybe_in_deleted = True

    @property
    def count(self) -> int:
        """Number of records; 0 until the batch is closed."""
        return self.future.count

    @property
    def size_bytes(self) -> int:
        """Size in bytes, before compression until the batch is compressed."""
        content = self.records if self.builder is None else self.builder
        return 0 if content is None else content.size_bytes

    def close(self) -> None:
        """Close the batch to new records."""
        assert self.builder is not None
        self.handle(_CLOSED)
        self.records = built = self.builder.close()
        self.future.count = built.count
        self.builder = None

    def complete(self, outcome: BatchOutcome) -> None:
        """Complete the future with the outcome, and free the records."""
        if self.builder is not None:
            self.future.count = self.builder.count
        self.handle(_COMPLETED)
        self.builder = self.records = None
        self.future.complete(outcome)

    def handle(self, event: BatchEvent) -> None:
        """Move to the next state."""
        try:
            self.state = TRANSITIONS[self.state, event]
        except KeyError:
            self.state = transition(TRANSITIONS, self.state, event)  # raises the error

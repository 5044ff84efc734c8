"""One batch on its way, from its first record to its outcome."""

from __future__ import annotations

import enum
from collections.abc import Mapping

from aiokafkawire.producer.delivery import BatchFuture, BatchOutcome
from aiokafkawire.producer.sequences import BatchSequence
from aiokafkawire.records import BatchBuilder, ClosedBatch
from aiokafkawire.runtime.transitions import step

__all__ = ("TRANSITIONS", "Batch", "BatchEvent", "BatchState")


class BatchState(enum.Enum):
    """Where a batch stands."""

    OPEN = "takes records"
    WAITING = "closed, to be sent or to be sent again"
    IN_FLIGHT = "sent, no answer yet"
    DONE = "has its outcome"

    # By identity, not by name as Enum has it: looked up in tables for each batch.
    __hash__ = object.__hash__


class BatchEvent(enum.Enum):
    """What happens to a batch."""

    CLOSED = enum.auto()
    SENT = enum.auto()
    REENQUEUED = enum.auto()
    COMPLETED = enum.auto()

    # By identity, not by name as Enum has it: looked up in tables for each batch.
    __hash__ = object.__hash__


TRANSITIONS: Mapping[tuple[BatchState, BatchEvent], BatchState] = {
    (BatchState.OPEN, BatchEvent.CLOSED): BatchState.WAITING,
    (BatchState.OPEN, BatchEvent.COMPLETED): BatchState.DONE,
    (BatchState.WAITING, BatchEvent.SENT): BatchState.IN_FLIGHT,
    (BatchState.WAITING, BatchEvent.COMPLETED): BatchState.DONE,
    (BatchState.IN_FLIGHT, BatchEvent.REENQUEUED): BatchState.WAITING,
    (BatchState.IN_FLIGHT, BatchEvent.COMPLETED): BatchState.DONE,
}
"""(state, event) -> the next state; a pair that is absent cannot happen."""

# Up to Python 3.11 an enumeration looks for its members by a long way.
_OPEN, _WAITING, _DONE = BatchState.OPEN, BatchState.WAITING, BatchState.DONE
_CLOSED, _COMPLETED = BatchEvent.CLOSED, BatchEvent.COMPLETED


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
        sent_by_topic_name: An attempt named the topic instead of its id.
        sent_to_deleted_topic: The attempt in flight went to a topic that was recreated since.
        maybe_in_deleted_topic: The deleted topic may have held the records: the batch may be
            retried, but must not fail as not written.
    """

    __slots__ = (
        "attempts",
        "builder",
        "expires_at",
        "future",
        "last_error",
        "linger_until",
        "maybe_in_deleted_topic",
        "not_before",
        "order",
        "oversize_disconnects",
        "records",
        "reserved_bytes",
        "sent_by_topic_name",
        "sent_to_deleted_topic",
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
        self.sent_by_topic_name = False
        self.sent_to_deleted_topic = self.maybe_in_deleted_topic = False
        self.not_before = 0.0
        self.sequence: BatchSequence | None = None
        self.uncertain = False
        self.last_error: Exception | None = None

    @property
    def done(self) -> bool:
        """Whether it has its outcome."""
        return self.state is _DONE

    @property
    def maybe_written(self) -> bool:
        """Whether an earlier attempt may have written the records, if only to a deleted topic."""
        return self.uncertain or self.maybe_in_deleted_topic

    def mark_only_in_deleted_topic(self) -> None:
        """Note that what an earlier attempt may have written is in the deleted topic alone."""
        self.uncertain = False
        self.maybe_in_deleted_topic = True

    @property
    def count(self) -> int:
        """How many records it has; 0 until it is closed."""
        return self.future.count

    @property
    def size_bytes(self) -> int:
        """What it takes as it is known: without compression until that was done."""
        content = self.records if self.builder is None else self.builder
        return 0 if content is None else content.size_bytes

    def close(self) -> None:
        """Take no more records."""
        assert self.builder is not None
        self.handle(_CLOSED)
        self.records = closed = self.builder.close()
        self.future.count = closed.count
        self.builder = None

    def complete(self, outcome: BatchOutcome) -> None:
        """Give the outcome to whoever waits, and let the records go."""
        if self.builder is not None:
            self.future.count = self.builder.count
        self.handle(_COMPLETED)
        self.builder = self.records = None
        self.future.complete(outcome)

    def handle(self, event: BatchEvent) -> None:
        """Go to the next state of the table."""
        try:
            self.state = TRANSITIONS[self.state, event]
        except KeyError:
            self.state = step(TRANSITIONS, self.state, event)  # which says what is wrong

"""One batch on its way, from its first record to its outcome."""

from __future__ import annotations

import enum
from collections.abc import Mapping

from aiokafkawire.producer.delivery import Outcome, Receipt
from aiokafkawire.producer.sequences import Stamp
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
    REFUSED = enum.auto()
    SETTLED = enum.auto()

    # By identity, not by name as Enum has it: looked up in tables for each batch.
    __hash__ = object.__hash__


TRANSITIONS: Mapping[tuple[BatchState, BatchEvent], BatchState] = {
    (BatchState.OPEN, BatchEvent.CLOSED): BatchState.WAITING,
    (BatchState.OPEN, BatchEvent.SETTLED): BatchState.DONE,
    (BatchState.WAITING, BatchEvent.SENT): BatchState.IN_FLIGHT,
    (BatchState.WAITING, BatchEvent.SETTLED): BatchState.DONE,
    (BatchState.IN_FLIGHT, BatchEvent.REFUSED): BatchState.WAITING,
    (BatchState.IN_FLIGHT, BatchEvent.SETTLED): BatchState.DONE,
}
"""(state, event) -> the next state; a pair that is absent cannot happen."""

# Up to Python 3.11 an enumeration looks for its members by a long way.
_OPEN, _WAITING, _DONE = BatchState.OPEN, BatchState.WAITING, BatchState.DONE
_CLOSED, _SETTLED = BatchEvent.CLOSED, BatchEvent.SETTLED


class Batch:
    """Records of one partition that are sent together.

    `order` rises within a partition; the parts of a split batch sort between its neighbours.
    `uncertain` tells that an attempt was made whose effect is not known, so that the log may hold
    the records. `expires_at`, `linger_until` and `not_before` are seconds of the clock.
    `large_losses` counts the connections that were lost after a large request with it. `by_name`:
    an attempt named the topic, not its id; `old_topic`: the one under way is to a topic that was
    deleted and made anew since. `maybe_in_deleted_topic`: that topic may have held the records, so
    that the batch may be sent again but never fail as not written.
    """

    __slots__ = (
        "attempts",
        "builder",
        "by_name",
        "expires_at",
        "large_losses",
        "last_error",
        "linger_until",
        "maybe_in_deleted_topic",
        "not_before",
        "old_topic",
        "order",
        "receipt",
        "records",
        "reserved_bytes",
        "stamp",
        "state",
        "uncertain",
    )

    def __init__(
        self,
        receipt: Receipt,
        content: BatchBuilder | ClosedBatch,
        order: tuple[int, ...],
        linger_until: float,
        expires_at: float,
    ) -> None:
        self.receipt = receipt
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
        self.large_losses = 0
        self.by_name = False
        self.old_topic = self.maybe_in_deleted_topic = False
        self.not_before = 0.0
        self.stamp: Stamp | None = None
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

    def leave_deleted_topic(self) -> None:
        """Note that what an earlier attempt may have written is in the deleted topic alone."""
        self.uncertain = False
        self.maybe_in_deleted_topic = True

    @property
    def count(self) -> int:
        """How many records it has; 0 until it is closed."""
        return self.receipt.count

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
        self.receipt.count = closed.count
        self.builder = None

    def settle(self, outcome: Outcome) -> None:
        """Give the outcome to whoever waits, and let the records go."""
        if self.builder is not None:
            self.receipt.count = self.builder.count
        self.handle(_SETTLED)
        self.builder = self.records = None
        self.receipt.settle(outcome)

    def handle(self, event: BatchEvent) -> None:
        """Go to the next state of the table."""
        try:
            self.state = TRANSITIONS[self.state, event]
        except KeyError:
            self.state = step(TRANSITIONS, self.state, event)  # which says what is wrong

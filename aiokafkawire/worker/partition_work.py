"""The records of a partition that a worker has not finished."""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Sequence
from enum import Enum
from typing import NamedTuple

from aiokafkawire.records import Record, Records
from aiokafkawire.types import TopicPartition
from aiokafkawire.worker.handlers import RecordHandler
from aiokafkawire.worker.offset_tracker import OffsetTracker
from aiokafkawire.worker.outputs import UncommittedRecord
from aiokafkawire.worker.retry_policy import RetryLater, WriteDeadLetter

__all__ = (
    "RESUME_SHARE",
    "BatchFailure",
    "Budget",
    "CollectedBatch",
    "PartitionWork",
    "PartitionWorkState",
    "WorkItem",
)

RESUME_SHARE = 2
"""A paused partition resumes when its records are at most the limit divided by this."""


def records_size(records: Sequence[Record]) -> int:
    """Return the bytes of keys, values and headers."""
    # `isinstance` is slow for an abstract Sequence.
    if type(records) is Records and not records.has_headers:
        return records.size_bytes
    size = 0
    for record in records:
        if (key := record.key) is not None:
            size += len(key)
        if (value := record.value) is not None:
            size += len(value)
        for name, content in record.headers:
            size += len(name) + len(content or b"")
    return size


class UnwrittenCopy(NamedTuple):
    """A copy of a failed record to write.

    Attributes:
        decision: Where it is written.
        since: When the first write started.
    """

    decision: RetryLater | WriteDeadLetter
    since: float


class BatchFailure(NamedTuple):
    """Failed attempts of a batch, and the wall-clock time of the first one."""

    attempts: int
    first_failure_ms: int


class WorkItem:
    """Records of a partition that are processed one after the other, by one task at a time.

    Attributes:
        records: The records, in the order of offsets, without the first ones that are finished and
            counted. A whole fetched batch is `Records`, which makes a `Record` when it runs.
        index: Place of the first unfinished record. The attributes from `attempts` on are about
            that record.
        partition: Work of the partition in the assignment that delivered the records.
        handler: Processes the records.
        ordering_key: The next item with the same key waits for this one; None for any order.
        size: Bytes of keys, values and headers.
        due: When the first record may run; None for at once.
        started: When the attempt or the run of the item started.
        attempts: Failed attempts since the fetch.
        earlier_attempts: Failed attempts before the record was written to its retry topic, or
            in its batch.
        tier: Retry topics that the record has passed.
        batch_failure: Failure of the batch whose records are now tried one by one; else None.
        first_failure_ms: Wall-clock time of the first failure; None if there was none.
        error: Exception of the last attempt.
        unwritten: Write of a copy of the record that has not succeeded yet.
    """

    __slots__ = (
        "attempts",
        "batch_failure",
        "due",
        "earlier_attempts",
        "error",
        "first_failure_ms",
        "handler",
        "index",
        "ordering_key",
        "partition",
        "records",
        "size",
        "started",
        "tier",
        "unwritten",
    )

    def __init__(
        self,
        records: Sequence[Record],
        partition: PartitionWork,
        handler: RecordHandler,
        ordering_key: Hashable = None,
    ) -> None:
        self.records = records
        self.index = 0
        self.partition = partition
        self.handler = handler
        self.ordering_key = ordering_key
        self.size = records_size(records)
        self.due: float | None = None
        self.started = 0.0
        self.batch_failure: BatchFailure | None = None
        self.forget_failures()

    @property
    def record(self) -> Record:
        """The first unfinished record."""
        return self.records[self.index]

    @property
    def remaining(self) -> int:
        """Number of unfinished records."""
        return len(self.records) - self.index

    @property
    def total_attempts(self) -> int:
        """Failed attempts of that record."""
        return self.earlier_attempts + self.attempts

    def count_finished(self) -> None:
        """Let the tracker of the partition know which records are finished, and forget them.

        It is cheaper for several records at once, so running items are counted when the offsets
        are needed.
        """
        records, index = self.records, self.index
        if not index:
            return
        if index == len(records):
            self.records = ()
        else:
            self.records, records = records[index:], records[:index]
        self.index = 0
        self.partition.offsets.finish(records)

    def forget_failures(self) -> None:
        """Reset what is known about the attempts of the first unfinished record."""
        self.attempts = self.tier = self.earlier_attempts = 0
        self.first_failure_ms: int | None = None
        if self.batch_failure is not None:
            self.earlier_attempts, self.first_failure_ms = self.batch_failure
        self.error: BaseException | None = None
        self.unwritten: UnwrittenCopy | None = None


class CollectedBatch:
    """Records of a partition that wait until they are a batch.

    Attributes:
        size: Bytes of keys, values and headers.
    """

    __slots__ = ("handler", "partition", "records", "size")

    def __init__(self, partition: PartitionWork, handler: RecordHandler) -> None:
        self.partition = partition
        self.handler = handler
        self.records: list[Record] = []
        self.size = 0

    def extend(self, records: Sequence[Record]) -> int:
        """Add records; return their size."""
        size = records_size(records)
        self.records.extend(records)
        self.size += size
        return size


class PartitionWorkState(Enum):
    ACTIVE = "active"
    DRAINING = "draining"
    FENCED = "fenced"


class Budget:
    """Bytes of keys, values and headers that several partitions share.

    Attributes:
        limit: Size at which the partitions are paused.
        size: Size of the unfinished records.
        was_full: True from the limit on, until the size is a part of it (`RESUME_SHARE`).
    """

    __slots__ = ("limit", "size", "was_full")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.size = 0
        self.was_full = False

    @property
    def may_resume(self) -> bool:
        """True if the size has fallen far enough since it reached the limit."""
        return self.was_full and self.size * RESUME_SHARE <= self.limit

    def update(self) -> None:
        """Set `was_full` by the present size."""
        self.was_full = self.size >= self.limit or (self.was_full and not self.may_resume)


class PartitionWork:
    """The unfinished records of a partition during one assignment.

    Attributes:
        batch: Records that wait until they are a batch.
        uncommitted: Finished records with output that no transaction has committed, by offset.
        previous: Work of the former assignment while its records still run: no record starts
            before they have ended.
    """

    __slots__ = (
        "batch",
        "budget",
        "is_paused",
        "offsets",
        "previous",
        "ready",
        "running",
        "size",
        "state",
        "tp",
        "uncommitted",
        "waiting",
    )

    def __init__(
        self,
        tp: TopicPartition,
        budget: Budget,
        previous: PartitionWork | None = None,
        offsets: OffsetTracker | None = None,
    ) -> None:
        self.tp = tp
        self.budget = budget
        self.previous = previous
        self.state = PartitionWorkState.ACTIVE
        self.offsets = OffsetTracker() if offsets is None else offsets
        self.batch: CollectedBatch | None = None
        self.uncommitted: dict[int, UncommittedRecord] = {}
        self.ready: deque[WorkItem] = deque()
        self.waiting: dict[Hashable, deque[WorkItem]] = {}
        self.running: dict[WorkItem, None] = {}  # in the order in which they were taken
        self.size = 0
        self.is_paused = False

    def count_finished(self) -> None:
        """Let the tracker know which records of running items are finished."""
        for item in self.running:
            item.count_finished()

    def count_unfinished(self) -> int:
        """Return the number of records from the oldest unfinished one on."""
        self.count_finished()
        return len(self.offsets)

    @property
    def is_active(self) -> bool:
        """True if records are started."""
        return self.state is PartitionWorkState.ACTIVE

    @property
    def is_fenced(self) -> bool:
        """True if the partition was revoked or lost."""
        return self.state is PartitionWorkState.FENCED

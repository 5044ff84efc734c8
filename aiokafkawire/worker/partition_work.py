"""The records of a partition that a worker has not finished."""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterable, Sequence
from enum import Enum
from typing import NamedTuple

from aiokafkawire.records import Record, Records
from aiokafkawire.types import OffsetAndMetadata, TopicPartition
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
    "RecordFailures",
    "UnwrittenCopy",
    "WorkItem",
    "describe_running",
)

RESUME_SHARE = 2
"""A paused partition resumes when its records are at most the limit divided by this."""


def records_size(records: Sequence[Record]) -> int:
    """Return the bytes of keys, values and headers."""
    # `isinstance` is slow for an abstract Sequence.
    if type(records) is Records and not records.has_headers:
        return records.size_bytes
    return sum(map(record_size, records))


def record_size(record: Record) -> int:
    """Return the bytes of the key, the value and the headers."""
    size = len(record.key or b"") + len(record.value or b"")
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


class RecordFailures:
    """Failed attempts of a record.

    Attributes:
        attempts: Failed attempts since the fetch.
        earlier_attempts: Failed attempts before the record was written to its retry topic, or
            in its batch.
        tier: Retry topics that the record has passed.
        first_failure_ms: Wall-clock time of the first failure; None if there was none.
        error: Exception of the last attempt.
        unwritten: Write of a copy of the record that has not succeeded yet.
    """

    __slots__ = ("attempts", "earlier_attempts", "error", "first_failure_ms", "tier", "unwritten")

    def __init__(self) -> None:
        self.attempts = self.earlier_attempts = self.tier = 0
        self.first_failure_ms: int | None = None
        self.error: BaseException | None = None
        self.unwritten: UnwrittenCopy | None = None

    @property
    def total_attempts(self) -> int:
        """Failed attempts since the record was written first."""
        return self.earlier_attempts + self.attempts


NO_FAILURES = RecordFailures()
"""Those of all records that have not failed; see `WorkItem.own_failures`."""


class WorkItem:
    """Records of a partition that are processed one after the other, by one task at a time.

    If the records have keys, other tasks may take those behind the running one (`divide`).

    Attributes:
        records: Records in the order of offsets, among them those of the item. A whole fetched
            batch is `Records`, which makes a `Record` when it runs.
        index: Place of the first unfinished record.
        end: Place behind the last record.
        partition: Work of the partition in the assignment that delivered the records.
        handler: Processes the records.
        ordering_key: The next item with the same key waits for this one; None for any order.
        keys: Ordering key of each record of `records`; None if the item is not divided.
        size: Bytes of keys, values and headers.
        due: When the first record may run; None for at once.
        started: When the attempt or the run of the item started.
        needs_checks: Whether the partition may have changed since the run of the item started,
            so that it is checked after each record. Other tasks run while a handler waits.
        failures: Failed attempts of that record.
        batch_failure: Failure of the batch whose records are now tried one by one; else None.
    """

    __slots__ = (
        "_counted",
        "_run",
        "batch_failure",
        "due",
        "end",
        "failures",
        "handler",
        "index",
        "keys",
        "needs_checks",
        "ordering_key",
        "partition",
        "records",
        "size",
        "started",
    )

    def __init__(
        self,
        records: Sequence[Record],
        partition: PartitionWork,
        handler: RecordHandler,
        ordering_key: Hashable = None,
        keys: Sequence[Hashable] | None = None,
    ) -> None:
        self.records = records
        self._counted = self.index = 0
        self._run: list[Record] | None = None
        self.end = len(records)
        self.partition = partition
        self.handler = handler
        self.ordering_key = ordering_key
        self.keys = keys
        self.size = records_size(records)
        self.due: float | None = None
        self.started = 0.0
        self.needs_checks = False
        self.failures = NO_FAILURES
        self.batch_failure: BatchFailure | None = None

    @property
    def record(self) -> Record:
        """The first unfinished record."""
        return self.records[self.index]

    @property
    def remaining(self) -> int:
        """Number of unfinished records."""
        return self.end - self.index

    def next_records(self, limit: int) -> list[Record]:
        """Return the first unfinished records, in a list that `divide` clears."""
        run = self.records[self.index : min(self.index + limit, self.end)]
        self._run = run if type(run) is list else [*run]
        return self._run

    def count_finished(self) -> None:
        """Let the tracker of the partition know which records are finished.

        It is cheaper for several records at once, so running items are counted when the offsets
        are needed.
        """
        if self._counted < self.index:
            self.partition.offsets.finish(self.records[self._counted : self.index])
            self._counted = self.index

    def divide(self) -> WorkItem | None:
        """Keep the present record; return an item with those behind it, if any.

        The present record may run or wait for long: it must not keep the others in memory.
        """
        assert self.keys is not None
        self.count_finished()
        records, index, end, rest = self.records, self.index, self.end, None
        present = records[index]
        size = record_size(present)
        if index + 1 < end:
            if type(records) is Records:
                records = list(records)  # each part would make its own
            rest = WorkItem((), self.partition, self.handler, keys=self.keys)
            rest.records, rest.end = records, end
            rest._counted = rest.index = index + 1
            rest.size = self.size - size
        else:
            self.partition.add_size(size - self.size)
        self.ordering_key, self.keys = self.keys[index], None
        self.records, self.size = [present], size
        self._counted, self.index, self.end = 0, 0, 1
        if self._run is not None:
            self._run.clear()
        return rest

    def drop_records(self) -> None:
        """Keep no records in memory: a handler may keep its `WorkerRecord`."""
        self.records, self._run = (), None

    @property
    def is_undisturbed(self) -> bool:
        """True if the record has not failed, and no record behind it waits for another item."""
        waits = self.keys is not None and self.partition.waiting
        return self.failures is NO_FAILURES and not waits

    def own_failures(self) -> RecordFailures:
        """Return the failures of the first unfinished record, to change them."""
        if self.failures is NO_FAILURES:
            self.failures = RecordFailures()
        return self.failures

    def forget_failures(self) -> None:
        """Let the first unfinished record be one that has failed only with its batch, if at all."""
        self.failures = NO_FAILURES
        if self.batch_failure is not None:
            failures = self.own_failures()
            failures.earlier_attempts, failures.first_failure_ms = self.batch_failure


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

    @property
    def is_collecting(self) -> bool:
        """True until it is an item, or is discarded."""
        return self.partition.batch is self

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
        divisible: Running item whose later records another task may take.
        is_queued: Whether the scheduler looks here for the next item.
    """

    __slots__ = (
        "batch",
        "budget",
        "divisible",
        "is_paused",
        "is_queued",
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
        self.divisible: WorkItem | None = None
        self.is_queued = False
        self.size = 0
        self.is_paused = False

    def add_size(self, size: int) -> None:
        """Count bytes of keys, values and headers, also to the budget."""
        self.size += size
        self.budget.size += size

    def add_output(self, finished: UncommittedRecord) -> None:
        """Keep the output of a record until a transaction commits it with the record's offset."""
        if self.is_fenced:
            return
        replaced = self.uncommitted.get(finished.record.offset)
        self.uncommitted[finished.record.offset] = finished
        self.add_size(finished.size - (0 if replaced is None else replaced.size))

    def count_finished(self) -> None:
        """Let the tracker know which records of running items are finished."""
        for item in self.running:
            item.count_finished()

    @property
    def ready_count(self) -> int:
        """Number of items that can be taken: the later records of a running one count, too."""
        later = 0 if self.divisible is None else self.divisible.remaining - 1
        return len(self.ready) + later

    def count_unfinished(self) -> int:
        """Return the number of records from the oldest unfinished one on."""
        self.count_finished()
        return len(self.offsets)

    @property
    def first_uncommitted(self) -> int:
        """Offset of the first record that is not finished, or whose output is not committed.

        Records must have been added.
        """
        self.count_finished()
        committable = self.offsets.committable
        assert committable is not None
        return min([committable.offset, *self.uncommitted])

    def skip_to(self, position: OffsetAndMetadata) -> None:
        """Let commits reach the position of the consumer, where records do not.

        All records before it must have been added. Those of an inactive partition were not.
        """
        if self.is_active:
            self.offsets.skip_to(position)

    @property
    def is_active(self) -> bool:
        """True if records are started."""
        return self.state is PartitionWorkState.ACTIVE

    @property
    def is_fenced(self) -> bool:
        """True if the partition was revoked or lost."""
        return self.state is PartitionWorkState.FENCED


def describe_running(works: Iterable[PartitionWork]) -> str:
    """Return a noun for the log: how many items of partitions run; empty if none does."""
    running = [item for work in works for item in work.running]
    writes = sum(item.failures.unwritten is not None for item in running)
    nouns = []
    if handlers := len(running) - writes:
        nouns.append("1 running handler" if handlers == 1 else f"{handlers:,} running handlers")
    if writes:
        nouns.append(f"the write of {writes:,} failed record{'' if writes == 1 else 's'}")
    return " and ".join(nouns)

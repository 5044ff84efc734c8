"""The outcome of a batch, which its records share.

The future knows which records a task awaits. The failures of all others are counted in
`UnreportedFailures`, so that none goes unnoticed.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from aiokafkawire.producer.unreported_failures import CountedFailures, UnreportedFailures
from aiokafkawire.producer.yield_budget import YieldBudget
from aiokafkawire.runtime import Future, SingleWaiterFuture
from aiokafkawire.types import RecordMetadata

__all__ = ("BatchAppended", "BatchFailed", "BatchFuture", "BatchOutcome", "BatchSplit")


@dataclass(slots=True)
class BatchAppended:
    """The batch is in the log.

    Not frozen, because that would make the only one of each batch slower to create. Each delivery
    reads the attributes, which is slower for a named tuple.

    Attributes:
        base_offset: Offset of the first record; -1 if unknown.
        log_append_time_ms: Timestamp from the broker; -1 if the records keep their own.
    """

    base_offset: int
    log_append_time_ms: int = -1


@dataclass(frozen=True, slots=True)
class BatchFailed:
    """The batch failed. `record_errors` has the errors of single records, by index (KIP-467)."""

    error: Exception
    record_errors: Mapping[int, Exception]

    def error_of(self, index: int) -> Exception:
        """Return the error of the record at an index of the batch."""
        return self.record_errors.get(index, self.error)


@dataclass(frozen=True, slots=True)
class BatchSplit:
    """The batch was replaced by parts; `starts` has the index of the first record of each."""

    starts: tuple[int, ...]
    parts: tuple[BatchFuture, ...]

    def part_of(self, index: int) -> tuple[BatchFuture, int]:
        """Return the future of the part with a record of the batch, and its index there."""
        position = bisect_right(self.starts, index) - 1
        return self.parts[position], index - self.starts[position]


BatchOutcome = BatchAppended | BatchFailed | BatchSplit


class WaitingRecord(Protocol):
    """A record for whose outcome a call waits; implemented by `Delivery`."""

    index: int

    def result(self) -> RecordMetadata:
        """Return the metadata of the record."""
        ...


class BatchFuture(Future["BatchOutcome"]):
    """Future of a batch's outcome, shared by the deliveries of its records.

    Done when the batch completes. A split batch completes when it is split; the futures of its
    parts complete later.

    Attributes:
        count: Number of records; 0 while the batch is open.
        counted: Failed records of this batch in `unreported_failures`; None without any.
        waiters: Futures that calls of `send_and_wait` await, with their deliveries.
        waiting_counts: Number of tasks that await the record at an index and raise its failure.
        boundary_yielded: A caller has let other tasks run since this batch completed.
    """

    __slots__ = (
        "boundary_yielded",
        "count",
        "counted",
        "partition",
        "topic",
        "unreported_failures",
        "waiters",
        "waiting_counts",
        "yield_budget",
    )

    def __init__(
        self,
        topic: str,
        partition: int,
        unreported_failures: UnreportedFailures,
        yield_budget: YieldBudget,
    ) -> None:
        self._event = self._futures = self._done_callback = self.value = self.error = None
        self.done = False
        self.topic = topic
        self.partition = partition
        self.count = 0
        self.counted: CountedFailures | None = None
        self.waiters: dict[SingleWaiterFuture[RecordMetadata | None], WaitingRecord] | None = None
        self.unreported_failures = unreported_failures
        self.yield_budget = yield_budget
        self.waiting_counts: dict[int, int] = {}
        self.boundary_yielded = False

    def complete(self, outcome: BatchOutcome) -> None:
        """Set the outcome and wake all waiting tasks. Later outcomes are ignored."""
        if self.done:
            return
        if type(outcome) is BatchAppended:  # the usual case, which reports no failures
            self.value = outcome
            self.done = True
            if (records := self.waiters) is not None:
                self.waiters = None
                self.boundary_yielded = True
                for waiter, record in records.items():
                    if not waiter.done():  # The waiting call may have been cancelled.
                        waiter.set_result(record.result())
            if self._futures is not None or self._event is not None:
                self.notify_all()
            return
        waiters, self.waiters = self.waiters or {}, None
        for delivery in waiters.values():
            self.waiting_counts[delivery.index] = self.waiting_counts.get(delivery.index, 0) + 1
        if isinstance(outcome, BatchFailed):
            self.unreported_failures.add(self, self.count - len(self.waiting_counts), outcome.error)
        elif isinstance(outcome, BatchSplit):
            for index in sorted(self.waiting_counts):
                part, part_index = outcome.part_of(index)
                part.waiting_counts[part_index] = self.waiting_counts[index]
        self.set_result(outcome)
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

"""The outcome of a record, for the caller that sent it.

The records of one batch share one `BatchFuture`. It knows which of its records a task awaits. The
failures of all others are counted in `UnreportedFailures`, so that none goes unnoticed.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Awaitable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, NoReturn, overload

from aiokafkawire.errors import DeliveriesFailed
from aiokafkawire.records.kernel import RecordHandle
from aiokafkawire.runtime import Future, SingleWaiterFuture, checkpoint, copy_error
from aiokafkawire.types import RecordMetadata, TopicPartition

__all__ = (
    "CALLS_PER_CHECKPOINT",
    "MAX_NAMED_PARTITIONS",
    "BatchAppended",
    "BatchFailed",
    "BatchFuture",
    "BatchSplit",
    "Deliveries",
    "Delivery",
    "UnreportedFailures",
    "YieldBudget",
    "is_appended",
)

CALLS_PER_CHECKPOINT = 256
"""Number of calls without a wait after which a call lets other tasks run."""

MAX_NAMED_PARTITIONS = 20
"""Number of partitions that an error text lists."""


class BatchAppended(NamedTuple):
    """The batch is in the log.

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


class UnreportedFailures:
    """Counts the failed records that no call has raised yet, by partition.

    Attributes:
        disabled: Count nothing, because failures are reported in another way.
        round: Number of times that the count was reset. A `BatchFuture` knows in which round its
            records were counted.
    """

    __slots__ = ("_counts", "_first", "disabled", "round")

    def __init__(self, *, disabled: bool = False) -> None:
        self.disabled = disabled
        self._counts: Counter[TopicPartition] = Counter()
        self._first: Exception | None = None
        self.round = 0

    @property
    def count(self) -> int:
        """Number of failed records that no call has raised."""
        return self._counts.total()

    def add(self, future: BatchFuture, count: int, error: Exception) -> None:
        """Count `count` records of a failed batch."""
        if count <= 0 or self.disabled:
            return
        if future.counted_round != self.round:
            future.counted_round, future.counted = self.round, 0
        future.counted += count
        self._counts[TopicPartition(future.topic, future.partition)] += count
        if self._first is None:
            self._first = error

    def mark_reported(self, future: BatchFuture) -> None:
        """Subtract one record of a batch: a call has raised its failure."""
        if future.counted_round != self.round or not future.counted:
            return
        future.counted -= 1
        topic_partition = TopicPartition(future.topic, future.partition)
        self._counts[topic_partition] -= 1
        if not self._counts[topic_partition]:
            del self._counts[topic_partition]
        if not self._counts:
            self._first = None

    def take(self) -> DeliveriesFailed | None:
        """Return the error for all counted failures, or None, and reset the count."""
        counts, first = self._counts, self._first
        self._counts, self._first = Counter(), None
        self.round += 1
        count = counts.total()
        if not count:
            return None
        text = "1 record was" if count == 1 else f"{count} records were"
        failure = DeliveriesFailed(
            f"{text} not delivered and not awaited: {_named(counts)}; the first error: {first}",
            count=count,
            counts=counts,
            first=first,
        )
        failure.__cause__ = first
        return failure


def _named(counts: Mapping[TopicPartition, int]) -> str:
    named = [f"{count} of {topic}-{number}" for (topic, number), count in sorted(counts.items())]
    more = len(named) - MAX_NAMED_PARTITIONS
    if more > 0:
        named[MAX_NAMED_PARTITIONS:] = [f"and of {more} more partitions"]
    return ", ".join(named)


class YieldBudget:
    """Counts the calls without a wait, so that other tasks run from time to time."""

    __slots__ = ("calls_left",)

    def __init__(self) -> None:
        self.calls_left = CALLS_PER_CHECKPOINT

    def batch_ended(self) -> None:
        """Let other tasks run in the next call, which is at a batch boundary."""
        self.calls_left = 0

    async def checkpoint(self) -> None:
        """Let other tasks run, and restart the count."""
        self.calls_left = CALLS_PER_CHECKPOINT
        await checkpoint()


class BatchFuture(Future["BatchOutcome"]):
    """Future of a batch's outcome, shared by the deliveries of its records.

    Done when the batch completes. A split batch completes when it is split; the futures of its
    parts complete later.

    Attributes:
        base_offset: Offset of the first record, once the batch is in the log.
        count: Number of records; 0 while the batch is open.
        counted: Failed records of this batch in `unreported_failures`, as of `counted_round`.
        has_user_timestamp: The application gave one of the records its timestamp.
        waiters: Futures that calls of `send_and_wait` await, with their deliveries.
        waiting_counts: Number of tasks that await the record at an index and raise its failure.
        boundary_yielded: A caller has let other tasks run since this batch completed.
    """

    __slots__ = (
        "base_offset",
        "boundary_yielded",
        "count",
        "counted",
        "counted_round",
        "has_user_timestamp",
        "log_append_time_ms",
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
        self.base_offset: int | None = None
        self.log_append_time_ms = -1
        self.count = 0
        self.counted = 0
        self.counted_round = -1
        self.has_user_timestamp = False
        self.waiters: dict[SingleWaiterFuture[RecordMetadata | None], Delivery] | None = None
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
            self.base_offset, self.log_append_time_ms = outcome
            self.done = True
            if self.waiters is not None:
                self._set_metadata(self.waiters, outcome)
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

    def add_waiter(self, delivery: Delivery) -> SingleWaiterFuture[RecordMetadata | None] | None:
        """Return a future of a record's metadata; asyncio only.

        For the call that sends and waits: awaiting it takes fewer steps than awaiting the delivery,
        which no other task knows yet. The future's result is None if the batch failed or was split:
        ask the delivery then, after `transfer_waiter` if it is not done. If the await is
        interrupted, call `remove_waiter`.

        Returns:
            The future, or None if the batch is already done.
        """
        if self.done:
            return None
        waiter: SingleWaiterFuture[RecordMetadata | None] = SingleWaiterFuture()
        if self.waiters is None:
            self.waiters = {waiter: delivery}
        else:
            self.waiters[waiter] = delivery
        return waiter

    def remove_waiter(self, waiter: Awaitable[object], delivery: Delivery) -> None:
        """Remove the waiter of a call that was interrupted."""
        if self.waiters is not None:
            self.waiters.pop(waiter, None)  # type: ignore[call-overload]
        elif delivery.index in self.waiting_counts:
            # The batch failed or was split at the same time.
            delivery._waiter_left()

    def transfer_waiter(self, delivery: Delivery) -> None:
        """Let the caller await the delivery instead, after the batch was split."""
        part, index = delivery._after_splits()
        part.waiting_counts.pop(index, None)

    def _set_metadata(
        self,
        waiters: Mapping[SingleWaiterFuture[RecordMetadata | None], Delivery],
        appended: BatchAppended,
    ) -> None:
        """Set the result of each waiter, as `Delivery.result` returns it."""
        self.waiters = None
        self.boundary_yielded = True
        topic, partition = self.topic, self.partition
        offset, append_time_ms = appended
        for waiter, delivery in waiters.items():
            if not waiter.done():  # The waiting call may have been cancelled.
                metadata = (
                    topic,
                    partition,
                    offset + delivery.index if offset >= 0 else -1,
                    append_time_ms if append_time_ms >= 0 else delivery.timestamp_ms,
                )
                waiter.set_result(_metadata(RecordMetadata, metadata))


class Delivery(RecordHandle):
    """The delivery of one record: `await delivery` returns its `RecordMetadata`.

    A delivery may be awaited any number of times, or not at all. If no task awaits it, `flush` and
    `stop` of the producer report its failure in `DeliveriesFailed`.

    Raises:
        DeliveryTimedOut: The record was not written within `delivery_timeout_ms`.
        DeliveryUnknown: The record was sent, and whether it was written is unknown.
        RecordTooLarge: The broker rejected the record because of its size.
        TransactionAborted: The transaction was aborted before the record was acknowledged.
        ClientClosed: The producer was closed before the record was sent.
        BrokerError: Another error of the partition's leader.
    """

    __slots__ = ()

    def __repr__(self) -> str:
        future, _ = self._after_splits()
        outcome = future.result() if future.done else None
        state = {BatchAppended: "delivered", BatchFailed: "failed"}.get(type(outcome), "pending")
        return f"<Delivery to {future.topic}-{future.partition}: {state}>"

    @property
    def done(self) -> bool:
        """True if the outcome is known."""
        return self.future.base_offset is not None or self._after_splits()[0].done

    def result(self) -> RecordMetadata:
        """Return the `RecordMetadata`, or raise the error, of a delivery that is `done`.

        Raises:
            RuntimeError: The delivery is not done.
            KafkaError: The record failed; see `Delivery`.
        """
        future: BatchFuture = self.future
        index = self.index
        offset = future.base_offset
        if offset is None:
            future, index = self._after_splits()
            offset = future.base_offset
            if offset is None:
                _raise_failure(future, index)
        append_time_ms = future.log_append_time_ms
        return _metadata(
            RecordMetadata,
            (
                future.topic,
                future.partition,
                offset + index if offset >= 0 else -1,
                append_time_ms if append_time_ms >= 0 else self.timestamp_ms,
            ),
        )

    def __await__(self) -> Generator[Any, Any, RecordMetadata]:
        current = future = self.future
        index = self.index
        if current.done and current.base_offset is None:  # The batch may have been split.
            current, index = self._after_splits()
        if not current.done:
            current.waiting_counts[index] = current.waiting_counts.get(index, 0) + 1
            while not current.done:
                # Inlined: a task resumes through every frame between it and the future.
                waiter = current.new_waiter()
                try:
                    yield from waiter.__await__()
                except BaseException:
                    current.discard(waiter)
                    self._waiter_left()
                    raise
                if current.base_offset is not None:
                    break
                current, index = self._after_splits()
            future.boundary_yielded = True
        elif not future.boundary_yielded:
            future.boundary_yielded = True
            yield from future.yield_budget.checkpoint().__await__()
        else:
            yield_budget = future.yield_budget
            yield_budget.calls_left -= 1
            if yield_budget.calls_left < 0:
                yield from yield_budget.checkpoint().__await__()
        return self.result()

    def _waiter_left(self) -> None:
        """Note that a waiting task was interrupted before the outcome."""
        future, index = self._after_splits()
        left = future.waiting_counts.get(index, 0) - 1
        if left > 0:
            future.waiting_counts[index] = left
            return
        future.waiting_counts.pop(index, None)
        if future.done:
            outcome = future.result()
            if isinstance(outcome, BatchFailed):
                future.unreported_failures.add(future, 1, outcome.error_of(index))

    def _after_splits(self) -> tuple[BatchFuture, int]:
        """Return the future of the batch that has the record now, and the record's index there."""
        future, index = self.future, self.index
        while type(outcome := future.value) is BatchSplit:
            future, index = outcome.part_of(index)
        return future, index


def is_appended(delivery: Delivery) -> bool:
    """Return whether the record is known to be in the log; unlike `result`, never raise."""
    future, _ = delivery._after_splits()
    return future.base_offset is not None


_metadata = tuple.__new__  # makes a NamedTuple in half the time, without checks


def _raise_failure(future: BatchFuture, index: int) -> NoReturn:
    """Raise the error of a record that was not appended, or `RuntimeError` if it is not done."""
    if not future.done:
        raise RuntimeError("the delivery is not done: await it first")
    outcome = future.result()
    assert isinstance(outcome, BatchFailed)
    if index not in future.waiting_counts:
        future.unreported_failures.mark_reported(future)
    future.waiting_counts[index] = future.waiting_counts.get(index, 0) + 1
    raise copy_error(outcome.error_of(index))


class Deliveries(Sequence[Delivery]):
    """The deliveries of `Producer.send_many`, in order. Each access creates a new `Delivery`."""

    __slots__ = ("_count", "_runs", "_starts")

    def __init__(self) -> None:
        self._count = 0
        self._starts: list[int] = []
        self._runs: list[Delivery] = []

    def add(self, first: Delivery, count: int) -> None:
        """Append `count` consecutive records of a batch, given the delivery of the first."""
        self._starts.append(self._count)
        self._runs.append(first)
        self._count += count

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, index: int) -> Delivery: ...

    @overload
    def __getitem__(self, index: slice) -> list[Delivery]: ...

    def __getitem__(self, index: int | slice) -> Delivery | list[Delivery]:
        if isinstance(index, slice):
            return [self[number] for number in range(*index.indices(self._count))]
        number = index + self._count if index < 0 else index
        if not 0 <= number < self._count:
            raise IndexError(f"index {index} is out of range for {self._count} deliveries")
        position = bisect_right(self._starts, number) - 1
        first = self._runs[position]
        return Delivery(
            first.future, first.index + number - self._starts[position], first.timestamp_ms
        )

    def __iter__(self) -> Iterator[Delivery]:
        for start, stop, first in zip(
            self._starts, [*self._starts[1:], self._count], self._runs, strict=True
        ):
            for number in range(stop - start):
                yield Delivery(first.future, first.index + number, first.timestamp_ms)

    def __repr__(self) -> str:
        done = sum(first.done for first in self._runs)
        return f"<{self._count} deliveries in {len(self._runs)} runs, {done} of them done>"

"""The outcome of a record, for the caller that sent it."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Awaitable, Generator, Iterator, Sequence
from typing import Any, NoReturn, overload

from aiokafkawire.producer.batch_future import BatchAppended, BatchFailed, BatchFuture, BatchSplit
from aiokafkawire.records.kernel import RecordHandle
from aiokafkawire.runtime import SingleWaiterFuture, copy_error
from aiokafkawire.types import RecordMetadata

__all__ = (
    "Deliveries",
    "Delivery",
    "add_waiter",
    "is_appended",
    "remove_waiter",
    "transfer_waiter",
)


_tuple = tuple.__new__  # makes a NamedTuple in half the time, without checks


class Delivery(RecordHandle):
    """The delivery of one record: `await delivery` returns its `RecordMetadata`.

    A delivery may be awaited any number of times, or not at all. If no call raises its failure,
    because none awaits it or the wait was cancelled, `flush` and `stop` of the producer report it
    in `DeliveriesFailed`.

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
        return self._after_splits()[0].done

    def result(self) -> RecordMetadata:
        """Return the `RecordMetadata`, or raise the error, of a delivery that is `done`.

        Raises:
            RuntimeError: The delivery is not done.
            KafkaError: The record failed; see `Delivery`.
        """
        future: BatchFuture = self.future
        outcome: Any = future.value
        try:
            offset, append_time_ms = outcome.base_offset, outcome.log_append_time_ms
        except AttributeError:  # It is not a `BatchAppended`.
            pass
        else:
            return _tuple(
                RecordMetadata,
                (
                    future.topic,
                    future.partition,
                    offset + self.index if offset >= 0 else -1,
                    append_time_ms if append_time_ms >= 0 else self.timestamp_ms,
                ),
            )
        future, index = self._after_splits()
        if type(future.value) is not BatchAppended:
            _raise_failure(future, index)
        return Delivery(future, index, self.timestamp_ms).result()

    def __await__(self) -> Generator[Any, Any, RecordMetadata]:
        current = future = self.future
        index = self.index
        if type(current.value) is BatchSplit:
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
                if type(current.value) is BatchAppended:
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
    return type(future.value) is BatchAppended


def add_waiter(delivery: Delivery) -> SingleWaiterFuture[RecordMetadata | None] | None:
    """Return a future of the record's metadata; asyncio only.

    For the call that sends and waits: awaiting it takes fewer steps than awaiting the delivery,
    which no other task knows yet. The future's result is None if the batch failed or was split:
    ask the delivery then, after `transfer_waiter` if it is not done. If the await is interrupted,
    call `remove_waiter`.

    Returns:
        The future, or None if the batch is already done.
    """
    future: BatchFuture = delivery.future
    if future.done:
        return None
    waiter: SingleWaiterFuture[RecordMetadata | None] = SingleWaiterFuture()
    if future.waiters is None:
        future.waiters = {waiter: delivery}
    else:
        future.waiters[waiter] = delivery
    return waiter


def remove_waiter(delivery: Delivery, waiter: Awaitable[object]) -> None:
    """Remove the waiter of a call that was interrupted."""
    future: BatchFuture = delivery.future
    if future.waiters is not None:
        future.waiters.pop(waiter, None)  # type: ignore[call-overload]
    elif delivery.index in future.waiting_counts:
        # The batch failed or was split at the same time.
        delivery._waiter_left()


def transfer_waiter(delivery: Delivery) -> None:
    """Let the caller await the delivery instead, after the batch was split."""
    part, index = delivery._after_splits()
    part.waiting_counts.pop(index, None)


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

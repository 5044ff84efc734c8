"""What a caller holds while a record is on its way, and who hears of a failure.

The records of one batch share one receipt with one event. A receipt knows which of its records
somebody waits for; the failures of all others are tallied, so that none goes unnoticed.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Awaitable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, NoReturn, overload

from aiokafkawire.errors import DeliveriesFailed
from aiokafkawire.records.kernel import RecordHandle
from aiokafkawire.runtime import Errand, Promise, checkpoint, copy_of
from aiokafkawire.types import RecordMetadata, TopicPartition

__all__ = (
    "CALLS_PER_CHECKPOINT",
    "MAX_NAMED_PARTITIONS",
    "Appended",
    "Deliveries",
    "Delivery",
    "Failed",
    "FailureTally",
    "Pacer",
    "Receipt",
    "Split",
)

CALLS_PER_CHECKPOINT = 256
"""Calls that find their work done let other tasks run after at most this many."""

MAX_NAMED_PARTITIONS = 20
"""Partitions that the text of an error names."""


class Appended(NamedTuple):
    """The batch is in the log. `log_append_time_ms` is -1 where records keep their own time."""

    base_offset: int
    log_append_time_ms: int = -1


@dataclass(frozen=True, slots=True)
class Failed:
    """No record of the batch will be sent any more. `record_errors` has those with their own."""

    error: Exception
    record_errors: Mapping[int, Exception]

    def error_of(self, index: int) -> Exception:
        """Why the record at this index of the batch failed."""
        return self.record_errors.get(index, self.error)


@dataclass(frozen=True, slots=True)
class Split:
    """The batch went on as several, which begin at these indexes of its records."""

    starts: tuple[int, ...]
    parts: tuple[Receipt, ...]

    def part_of(self, index: int) -> tuple[Receipt, int]:
        """The receipt that a record of the batch has now, and its index there."""
        which = bisect_right(self.starts, index) - 1
        return self.parts[which], index - self.starts[which]


Outcome = Appended | Failed | Split


class FailureTally:
    """Counts the failed records that nobody has heard of yet, by their partition.

    `round` is the number of times that the count began anew; a receipt knows how many of its
    records were counted, and in which round. `quiet`: all is told in another way, and nothing is
    counted.
    """

    __slots__ = ("_counts", "_first", "quiet", "round")

    def __init__(self, *, quiet: bool = False) -> None:
        self.quiet = quiet
        self._counts: Counter[TopicPartition] = Counter()
        self._first: Exception | None = None
        self.round = 0

    @property
    def count(self) -> int:
        """How many failed records nobody has heard of."""
        return self._counts.total()

    def add(self, receipt: Receipt, count: int, error: Exception) -> None:
        """Count records of a failed batch."""
        if count <= 0 or self.quiet:
            return
        if receipt.counted_in != self.round:
            receipt.counted_in, receipt.counted = self.round, 0
        receipt.counted += count
        self._counts[TopicPartition(receipt.topic, receipt.partition)] += count
        if self._first is None:
            self._first = error

    def heard(self, receipt: Receipt) -> None:
        """A record that was counted has been heard of after all."""
        if receipt.counted_in != self.round or not receipt.counted:
            return
        receipt.counted -= 1
        topic_partition = TopicPartition(receipt.topic, receipt.partition)
        self._counts[topic_partition] -= 1
        if not self._counts[topic_partition]:
            del self._counts[topic_partition]
        if not self._counts:
            self._first = None

    def take(self) -> DeliveriesFailed | None:
        """The error that tells of all that was counted, which begins the count anew."""
        counts, first = self._counts, self._first
        self._counts, self._first = Counter(), None
        self.round += 1
        count = counts.total()
        if not count:
            return None
        text = "1 record was" if count == 1 else f"{count} records were"
        failure = DeliveriesFailed(
            f"{text} not delivered, which nobody awaited: {_named(counts)}; the first error:"
            f" {first}",
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


class Pacer:
    """Says when a call that needs not wait lets other tasks run all the same."""

    __slots__ = ("calls_left",)

    def __init__(self) -> None:
        self.calls_left = CALLS_PER_CHECKPOINT

    def batch_ended(self) -> None:
        """The next call is at a batch boundary."""
        self.calls_left = 0

    async def checkpoint(self) -> None:
        """Let other tasks run, and count from the beginning."""
        self.calls_left = CALLS_PER_CHECKPOINT
        await checkpoint()


class Receipt(Promise["Outcome"]):
    """What the deliveries of one batch share: where it goes, and the promise of its outcome; of a
    split batch its parts may still be on their way then.

    `dated` tells that the application gave one of the records its time. `errands` are what calls
    wait for that send a record and wait in one.
    """

    __slots__ = (
        "base_offset",
        "count",
        "counted",
        "counted_in",
        "dated",
        "errands",
        "log_append_time_ms",
        "pacer",
        "partition",
        "seen",
        "tally",
        "topic",
        "waiting",
    )

    def __init__(self, topic: str, partition: int, tally: FailureTally, pacer: Pacer) -> None:
        self._event = self._futures = self._on_done = self.value = self.error = None
        self.done = False
        self.topic = topic
        self.partition = partition
        self.base_offset: int | None = None  # once it is in the log
        self.log_append_time_ms = -1
        self.count = 0
        self.counted = 0  # failed records that the tally has of it, in that round
        self.counted_in = -1
        self.dated = False
        self.errands: dict[Errand[RecordMetadata | None], Delivery] | None = None
        self.tally = tally
        self.pacer = pacer
        self.waiting: dict[int, int] = {}  # by record's index, how many hear of its failure
        self.seen = False  # whether a caller came to this batch's boundary

    def settle(self, outcome: Outcome) -> None:
        """Give the outcome; wakes all who wait. Only the first one counts."""
        if self.done:
            return
        if type(outcome) is Appended:  # as mostly; nobody but who waits is told
            self.value = outcome
            self.base_offset, self.log_append_time_ms = outcome
            self.done = True
            if self.errands is not None:
                self._fulfil(self.errands, outcome)
            if self._futures is not None or self._event is not None:
                self.come()
            return
        errands, self.errands = self.errands or {}, None
        for delivery in errands.values():
            self.waiting[delivery.index] = self.waiting.get(delivery.index, 0) + 1
        if isinstance(outcome, Failed):
            self.tally.add(self, self.count - len(self.waiting), outcome.error)
        elif isinstance(outcome, Split):
            for index in sorted(self.waiting):
                part, inner = outcome.part_of(index)
                part.waiting[inner] = self.waiting[index]
        self.resolve(outcome)
        for waited in errands:
            if not waited.done():
                waited.set_result(None)

    def errand(self, delivery: Delivery) -> Errand[RecordMetadata | None] | None:
        """For the call that sent a record, whose delivery nobody else knows yet: what it awaits at
        once in place of that, with fewer steps; `drop` it if that is not waited to its end.

        It gives the outcome, or None if the record did not get into the log in this batch: then the
        delivery tells what became of it, after `hand_back` if that is not known yet. None if there
        is nothing to wait for. On asyncio only.
        """
        if self.done:
            return None
        waited: Errand[RecordMetadata | None] = Errand()
        if self.errands is None:
            self.errands = {waited: delivery}
        else:
            self.errands[waited] = delivery
        return waited

    def drop(self, waited: Awaitable[object], delivery: Delivery) -> None:
        """The call goes away without the outcome."""
        if self.errands is not None:
            self.errands.pop(waited, None)  # type: ignore[call-overload]
        elif delivery.index in self.waiting:  # the batch failed, or was split, in the same moment
            delivery._unheard()

    def hand_back(self, delivery: Delivery) -> None:
        """The batch was split: who awaits the delivery from now on hears of a failure."""
        part, index = delivery._leaf()
        part.waiting.pop(index, None)

    def _fulfil(
        self, errands: Mapping[Errand[RecordMetadata | None], Delivery], appended: Appended
    ) -> None:
        """The records are in the log; as `Delivery.result` for each that a call waits for."""
        self.errands = None
        self.seen = True
        topic, partition = self.topic, self.partition
        offset, appended_at = appended
        for waited, delivery in errands.items():
            if not waited.done():  # who waited may have been cancelled
                found = (
                    topic,
                    partition,
                    offset + delivery.index if offset >= 0 else -1,
                    appended_at if appended_at >= 0 else delivery.timestamp_ms,
                )
                waited.set_result(_metadata(RecordMetadata, found))


class Delivery(RecordHandle):
    """One record on its way: `await delivery` gives its `RecordMetadata`, or raises why it failed.

    It may be awaited any number of times, or not at all: then a failure counts among those that
    `Producer.flush` and leaving the producer raise as `DeliveriesFailed`. Errors:
    `DeliveryTimedOut` (no broker has the record), `DeliveryUnknown` (one may have it),
    `RecordTooLarge`, `ClientClosed`, or the `BrokerError` that the leader answered.
    """

    __slots__ = ()

    def __repr__(self) -> str:
        receipt, _ = self._leaf()
        outcome = receipt.result() if receipt.done else None
        state = {Appended: "delivered", Failed: "failed"}.get(type(outcome), "on its way")
        return f"<Delivery to {receipt.topic}-{receipt.partition}: {state}>"

    @property
    def done(self) -> bool:
        """True once the outcome is known, so that awaiting does not wait."""
        return self.receipt.base_offset is not None or self._leaf()[0].done

    def result(self) -> RecordMetadata:
        """The outcome: a `RecordMetadata`, or the error is raised. It must be there (`done`)."""
        receipt: Receipt = self.receipt
        index = self.index
        offset = receipt.base_offset
        if offset is None:
            receipt, index = self._leaf()
            offset = receipt.base_offset
            if offset is None:
                _raise(receipt, index)
        appended_at = receipt.log_append_time_ms
        return _metadata(
            RecordMetadata,
            (
                receipt.topic,
                receipt.partition,
                offset + index if offset >= 0 else -1,
                appended_at if appended_at >= 0 else self.timestamp_ms,
            ),
        )

    def __await__(self) -> Generator[Any, Any, RecordMetadata]:
        leaf = receipt = self.receipt
        index = self.index
        if leaf.done and leaf.base_offset is None:  # it may have been split
            leaf, index = self._leaf()
        if not leaf.done:
            leaf.waiting[index] = leaf.waiting.get(index, 0) + 1
            while not leaf.done:
                # In this one frame: each layer between a task and what it waits for is gone
                # through once more when it wakes.
                place = leaf.place()
                try:
                    yield from place.__await__()
                except BaseException:
                    leaf.leave(place)
                    self._unheard()
                    raise
                if leaf.base_offset is not None:
                    break
                leaf, index = self._leaf()
            receipt.seen = True
        elif not receipt.seen:
            receipt.seen = True
            yield from receipt.pacer.checkpoint().__await__()
        else:
            pacer = receipt.pacer
            pacer.calls_left -= 1
            if pacer.calls_left < 0:
                yield from pacer.checkpoint().__await__()
        return self.result()

    def _unheard(self) -> None:
        """The waiter goes away without the outcome."""
        receipt, index = self._leaf()
        left = receipt.waiting.get(index, 0) - 1
        if left > 0:
            receipt.waiting[index] = left
            return
        receipt.waiting.pop(index, None)
        if receipt.done:
            outcome = receipt.result()
            if isinstance(outcome, Failed):
                receipt.tally.add(receipt, 1, outcome.error_of(index))

    def _leaf(self) -> tuple[Receipt, int]:
        """The receipt that holds the record now, and its index in there."""
        receipt, index = self.receipt, self.index
        while type(outcome := receipt.value) is Split:
            receipt, index = outcome.part_of(index)
        return receipt, index


_metadata = tuple.__new__  # checks nothing, at half the time


def _raise(receipt: Receipt, index: int) -> NoReturn:
    """Raise why the record did not get into the log, or that this is not known yet."""
    if not receipt.done:
        raise RuntimeError("the record is still on its way: await the delivery")
    outcome = receipt.result()
    assert isinstance(outcome, Failed)
    if index not in receipt.waiting:
        receipt.tally.heard(receipt)
    receipt.waiting[index] = receipt.waiting.get(index, 0) + 1
    raise copy_of(outcome.error_of(index))


class Deliveries(Sequence[Delivery]):
    """The deliveries of records that were sent together, in their order; each is made when it is
    looked at."""

    __slots__ = ("_count", "_runs", "_starts")

    def __init__(self) -> None:
        self._count = 0
        self._starts: list[int] = []
        self._runs: list[Delivery] = []

    def add(self, first: Delivery, count: int) -> None:
        """Records that stand one after the other in a batch."""
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
            raise IndexError(f"there are {self._count} deliveries, and no number {index}")
        which = bisect_right(self._starts, number) - 1
        first = self._runs[which]
        return Delivery(
            first.receipt, first.index + number - self._starts[which], first.timestamp_ms
        )

    def __iter__(self) -> Iterator[Delivery]:
        for start, stop, first in zip(
            self._starts, [*self._starts[1:], self._count], self._runs, strict=True
        ):
            for number in range(stop - start):
                yield Delivery(first.receipt, first.index + number, first.timestamp_ms)

    def __repr__(self) -> str:
        done = sum(first.done for first in self._runs)
        return f"<{self._count} deliveries in {len(self._runs)} runs, {done} of them done>"

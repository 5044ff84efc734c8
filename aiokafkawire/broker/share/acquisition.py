"""One acquisition of records of a share partition, with the rules of Kafka's SharePartition."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from aiokafkawire.broker.share.in_flight import (
    AcquiredRange,
    DeliveryState,
    InFlightBatch,
    RecordState,
)
from aiokafkawire.broker.share.window import InFlightWindow

__all__ = ("AcquirableBatches", "AcquireLimits", "Acquisition")

MIN_THROTTLE_COUNT = 2
"""Fewest deliveries after which records are isolated, so that a bad one harms no others."""


@dataclass(frozen=True, slots=True)
class AcquirableBatches:
    """First and last offset of each batch that was read from the log at `offset`.

    `aborted` are the batches among them that belong to aborted transactions.
    """

    offset: int
    batches: Sequence[tuple[int, int]]
    aborted: Sequence[tuple[int, int]] = ()


@dataclass(frozen=True, slots=True)
class AcquireLimits:
    """Limits of an acquisition.

    Attributes:
        max_records: Number of records to acquire.
        batch_size: Number of records from which on an acquired range is cut between batches.
        is_exact: `max_records` holds exactly. Otherwise the last batch is acquired as a whole.
    """

    max_records: int
    batch_size: int
    is_exact: bool = False


class Acquisition:
    """Acquires available records of the fetched batches for one member."""

    def __init__(
        self,
        window: InFlightWindow,
        member_id: str,
        fetched: AcquirableBatches,
        limits: AcquireLimits,
        *,
        last: int,
        deadline: float,
        delivery_count_limit: int,
    ) -> None:
        self._window = window
        self._member_id = member_id
        self._fetched = fetched
        self._limits = limits
        self._first, self._last = fetched.batches[0][0], last
        self._deadline = deadline
        self._left = limits.max_records
        self._acquired: list[AcquiredRange] = []
        self._delivery_count_limit = delivery_count_limit
        self._throttle_count = max((delivery_count_limit + 1) // 2, MIN_THROTTLE_COUNT)

    def acquire(self) -> list[AcquiredRange]:
        """Acquire records in flight that are available, then new ones."""
        in_flight = self._in_flight()
        for batch in in_flight:
            if self._left <= 0:
                break
            is_throttled = self._is_throttled(batch)
            if is_throttled and self._acquired:
                self._left = 0
                break
            before = len(self._acquired)
            self._acquire_in_flight(batch, is_throttled=is_throttled)
            if is_throttled and len(self._acquired) > before:
                self._left = 0
        first = in_flight[-1].last + 1 if in_flight else self._first
        if self._left > 0 and first <= self._last:
            self._acquire_new(max(first, self._window.end))
        return self._acquired

    def _in_flight(self) -> list[InFlightBatch]:
        return self._window.between(self._first, self._last)

    # --- records in flight -------------------------------------------------------------------

    def _acquire_in_flight(self, batch: InFlightBatch, *, is_throttled: bool) -> None:
        is_covered = self._first <= batch.first and batch.last <= self._last
        exceeds = self._limits.is_exact and len(batch) > self._left
        whole = batch.whole
        if whole is not None and whole.state is not RecordState.AVAILABLE:
            return
        if whole is None or not is_covered or exceeds or is_throttled:
            self._acquire_offsets(batch)
            return
        whole.acquire(self._member_id, self._deadline)
        self._add(batch.first, batch.last, whole.count)

    def _acquire_offsets(self, batch: InFlightBatch) -> None:
        """Acquire single records of a batch; those close to the delivery limit in small groups."""
        is_limited = self._delivery_count_limit > MIN_THROTTLE_COUNT
        most = self._left if self._limits.is_exact else len(batch)
        throttled_at = 0
        run: AcquiredRange | None = None
        for number, (offset, delivery) in enumerate(self._available(batch), 1):
            is_last = is_limited and delivery.count == self._delivery_count_limit - 1
            if is_last and number > 1:
                break
            if delivery.count >= self._throttle_count and not throttled_at:
                shift = delivery.count - self._throttle_count + 1
                throttled_at = max(len(batch) >> shift, 1)
            delivery.acquire(self._member_id, self._deadline)
            if run is not None and run.last + 1 == offset and run.delivery_count == delivery.count:
                run = AcquiredRange(run.first, offset, run.delivery_count)
            else:
                self._add_run(run)
                run = AcquiredRange(offset, offset, delivery.count)
            # As in Kafka, records before the first one to isolate count too, and may be more.
            if is_last or number in {most, throttled_at}:
                break
        self._add_run(run)

    def _available(self, batch: InFlightBatch) -> Iterator[tuple[int, DeliveryState]]:
        for offset, delivery in batch.split().items():
            if self._first <= offset <= self._last and delivery.state is RecordState.AVAILABLE:
                yield offset, delivery

    def _is_throttled(self, batch: InFlightBatch) -> bool:
        counts = (
            delivery.count
            for first, last, delivery in batch.deliveries()
            if delivery.state is RecordState.AVAILABLE
            and first <= self._last
            and last >= self._first
        )
        return max(counts, default=0) >= self._throttle_count

    def _add_run(self, run: AcquiredRange | None) -> None:
        if run is not None:
            self._add(run.first, run.last, run.delivery_count)

    def _add(self, first: int, last: int, count: int) -> None:
        self._acquired.append(AcquiredRange(first, last, count))
        self._left -= last - first + 1
        self._window.locks.set((first, last), self._deadline)

    # --- new records -------------------------------------------------------------------------

    def _acquire_new(self, first: int) -> None:
        batches, last = self._fetched.batches, self._last
        index = bisect_left(batches, first, key=lambda each: each[1])
        if index >= len(batches):
            return
        first = max(first, batches[index][0])
        if first > last:
            return
        if self._left < last - first + 1:
            index = bisect_left(batches, first + self._left - 1, key=lambda each: each[1])
            last = batches[index][1]
        if self._limits.is_exact and self._left < last - first + 1:
            self._acquire_beginning(first, last)
            return
        for range_first, range_last in self._ranges(first, last):
            whole = DeliveryState(RecordState.AVAILABLE, 0)
            whole.acquire(self._member_id, self._deadline)
            self._window.add(InFlightBatch(range_first, range_last, whole))
            self._add(range_first, range_last, whole.count)

    def _acquire_beginning(self, first: int, last: int) -> None:
        """Acquire the exact number of records; the rest of the batch is available to others."""
        batch = InFlightBatch(first, last, DeliveryState(RecordState.AVAILABLE, 0))
        end = first + self._left
        for offset, delivery in batch.split().items():
            if offset < end:
                delivery.acquire(self._member_id, self._deadline)
        self._window.add(batch)
        self._add(first, end - 1, 1)

    def _ranges(self, first: int, last: int) -> list[tuple[int, int]]:
        """Cut a range between batches so that each part has at least `batch_size` records."""
        size = self._limits.batch_size
        if self._limits.is_exact or last - first + 1 <= size:
            return [(first, last)]
        ranges = []
        batches = self._fetched.batches
        for base, _ in batches[bisect_right(batches, first, key=lambda each: each[0]) :]:
            if base > last:
                break
            if base - first >= size:
                ranges.append((first, base - 1))
                first = base
        return [*ranges, (first, last)]

"""Records of a share partition from its start offset to the last one that was acquired."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable

from aiokafkawire.broker.groups.consumer_group.deadlines import Deadlines
from aiokafkawire.broker.share.in_flight import (
    DeliveryState,
    InFlightBatch,
    RecordState,
    StateBatch,
)

__all__ = ("InFlightWindow",)


class InFlightWindow:
    """Batches in flight, in order.

    `start` is the first record that is not finished, `end` the first that was not acquired yet.
    `complete` counts the finished records between them.
    """

    def __init__(self, start: int, batches: Iterable[StateBatch] = ()) -> None:
        self.start = self.end = start
        self.complete = 0
        self.batches: list[InFlightBatch] = []
        self.locks: Deadlines[tuple[int, int]] = Deadlines()
        self._may_have_available = False
        for batch in batches:
            self._restore(batch)
        self.move_start()

    def _restore(self, batch: StateBatch) -> None:
        """Add a persisted state. Records before it without a state were acquired."""
        first = max(batch.first, self.start)
        if batch.last < first:
            return
        if first > self.end:
            self.add(InFlightBatch(self.end, first - 1, DeliveryState(RecordState.AVAILABLE, 0)))
        self.add(InFlightBatch(first, batch.last, DeliveryState(batch.state, batch.delivery_count)))
        self.complete += (batch.last - first + 1) if batch.state.is_terminal else 0
        self._may_have_available = True

    def __len__(self) -> int:
        """Return the number of records from `start` to `end`, 0 without batches."""
        return self.end - self.start if self.batches else 0

    @property
    def next_fetch_offset(self) -> int:
        """Offset of the first available record: one in flight, or the one at `end`."""
        if self._may_have_available:
            for batch in self.batches:
                offset = batch.first_offset_in(RecordState.AVAILABLE)
                if offset is not None:
                    return offset
            self._may_have_available = False
        return self.end

    def on_available(self) -> None:
        """Note that records in flight became available."""
        self._may_have_available = True

    def add(self, batch: InFlightBatch) -> None:
        """Add records that come into flight."""
        self.batches.insert(bisect_left(self.batches, batch.first, key=_first), batch)
        if self.batches[0] is batch:
            self.start = max(self.start, batch.first)
        self.end = max(self.end, batch.last + 1)
        if batch.whole is None:
            self._may_have_available = True

    def between(self, first: int, last: int) -> list[InFlightBatch]:
        """Return the batches that have a record in a range."""
        begin = bisect_left(self.batches, first, key=_last)
        return self.batches[begin : bisect_right(self.batches, last, key=_first)]

    def from_floor(self, first: int, last: int) -> list[InFlightBatch]:
        """Return the batches from the one that starts at or before `first`, none without it."""
        begin = bisect_right(self.batches, first, key=_first) - 1
        return (
            [] if begin < 0 else self.batches[begin : bisect_right(self.batches, last, key=_first)]
        )

    def archive(self, first: int, last: int) -> None:
        """Archive a range of records in any state."""
        for batch in self.between(first, last):
            if batch.whole is not None and not (first <= batch.first and batch.last <= last):
                batch.split()
            for from_, to, delivery in batch.deliveries():
                if first <= from_ and to <= last and not delivery.state.is_terminal:
                    delivery.end_lock(RecordState.ARCHIVED)
                    self.complete += self.count(from_, to)

    def count(self, first: int, last: int) -> int:
        """Return how many records of a range are at or after the start offset."""
        return max(last - max(first, self.start) + 1, 0)

    def move_start(self) -> None:
        """Drop finished records at the beginning."""
        dropped = 0
        for batch in self.batches:
            pending = batch.first_offset_in(RecordState.AVAILABLE, RecordState.ACQUIRED)
            finished_until = batch.last + 1 if pending is None else pending
            if finished_until > self.start:
                self.complete -= self.count(batch.first, finished_until - 1)
                self.start = finished_until
            if pending is not None:
                break
            dropped += 1
        if dropped:
            del self.batches[:dropped]
            following = self.batches[0].first if self.batches else self.end
            self.start = max(self.start, following)


def _first(batch: InFlightBatch) -> int:
    return batch.first


def _last(batch: InFlightBatch) -> int:
    return batch.last

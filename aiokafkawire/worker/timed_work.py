"""Delayed items, and batches that are not full, by the time at which they may run."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from itertools import count

from aiokafkawire.worker.partition_work import CollectedBatch, PartitionWork, WorkItem

__all__ = ("TimedWork",)


class TimedWork:
    """Gives items and batches back when they are due. Those with the same time keep their order."""

    def __init__(self) -> None:
        self._items: list[tuple[float, int, WorkItem]] = []
        self._batches: list[tuple[float, int, CollectedBatch]] = []  # some are items already
        self._max_batches = 2  # entries at which those that are items already are dropped
        self._order = count()

    @property
    def item_count(self) -> int:
        """Number of delayed items."""
        return len(self._items)

    @property
    def items(self) -> Iterator[WorkItem]:
        """The delayed items."""
        return (item for _, _, item in self._items)

    def add_item(self, item: WorkItem, due: float) -> None:
        """Keep an item until it is due."""
        heapq.heappush(self._items, (due, next(self._order), item))

    def add_batch(self, batch: CollectedBatch, due: float) -> None:
        """Keep a batch until it is due, or is an item because it is full."""
        if len(self._batches) >= self._max_batches:
            self._batches = [entry for entry in self._batches if entry[2].is_collecting]
            heapq.heapify(self._batches)
            self._max_batches = 2 * max(1, len(self._batches))
        heapq.heappush(self._batches, (due, next(self._order), batch))

    @property
    def next_due(self) -> float | None:
        """When the first item or batch is due; None if there is none."""
        if not self._items and not self._batches:
            return None
        while self._batches and not self._batches[0][2].is_collecting:
            heapq.heappop(self._batches)
        due = [heap[0][0] for heap in (self._items, self._batches) if heap]
        return min(due) if due else None

    def has_item_due(self, now: float) -> bool:
        """Return whether an item is due."""
        return bool(self._items) and self._items[0][0] <= now

    def remove_due_items(self, now: float) -> Iterator[WorkItem]:
        """Remove and yield the items that are due."""
        while self.has_item_due(now):
            yield heapq.heappop(self._items)[2]

    def remove_due_batches(self, now: float) -> Iterator[CollectedBatch]:
        """Remove and yield the batches that are due."""
        while self._batches and self._batches[0][0] <= now:
            batch = heapq.heappop(self._batches)[2]
            if batch.is_collecting:
                yield batch

    def discard_items(self, work: PartitionWork) -> int:
        """Remove the items of a partition; return their size."""
        size = sum(item.size for item in self.items if item.partition is work)
        if any(item.partition is work for item in self.items):
            self._items = [entry for entry in self._items if entry[2].partition is not work]
            heapq.heapify(self._items)
        return size

"""Which record runs next, which offsets may be committed, which partitions are paused.

The scheduler awaits nothing and reads no clock. Its unit is the `WorkItem`: records of a partition
that run one after the other. An item that was added is in one of these states:

- ready: in `PartitionWork.ready`, to be taken;
- waiting: behind an unfinished item with the same ordering key;
- running: taken by a task, which finishes its records one by one;
- delayed: a record failed, and is tried again at its due time;
- finished: all its records are.

Records for a batch handler are collected first; they become an item when they are a batch.

A partition is active until `drain`, which discards the items that do not run, and lets the running
ones end after their present record: the rest is delivered again to the next owner of the partition.
After `remove` it is fenced: the results of records that still run are ignored.
"""

from __future__ import annotations

import dataclasses
import heapq
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain, count
from typing import NamedTuple

from aiokafkawire.records import Record
from aiokafkawire.types import OffsetAndMetadata, TopicPartition
from aiokafkawire.worker.circuit_breaker import BreakerState, CircuitBreaker
from aiokafkawire.worker.finished_records import encode_metadata
from aiokafkawire.worker.handlers import RecordHandler
from aiokafkawire.worker.offset_tracker import OffsetTracker
from aiokafkawire.worker.outputs import UncommittedRecord
from aiokafkawire.worker.partition_work import (
    RESUME_SHARE,
    Budget,
    CollectedBatch,
    PartitionWork,
    PartitionWorkState,
    UnwrittenCopy,
    WorkItem,
)
from aiokafkawire.worker.transaction_content import TransactionContent

__all__ = ("Pauses", "Scheduler")

# Attribute access on an Enum class is slow up to Python 3.11.
_ACTIVE, _DRAINING = PartitionWorkState.ACTIVE, PartitionWorkState.DRAINING
_FENCED = PartitionWorkState.FENCED


class Pauses(NamedTuple):
    """Partitions to pause and to resume."""

    pause: list[TopicPartition]
    resume: list[TopicPartition]


class Scheduler:
    """Decides about the records of all partitions.

    Args:
        max_records: Records of a partition, from the lowest unfinished one on, at which it is
            paused.
        max_bytes: Bytes of keys, values and headers of all unfinished records at which all
            partitions are paused. Those of retry topics have a budget of their own, so that records
            that wait there do not stop the others.
        retry_topics: Names of the retry topics.
        breaker: Says whether records may start; None if they always may.
        commits_finished: Initial value of the attribute.
        make_tracker: Returns the tracker of a partition.

    Attributes:
        commits_finished: Whether the metadata of a commit names the finished records above its
            offset.
        ready: Number of items that `take` returns at once.
        lost: Attempts whose partition was lost before they ended.
    """

    def __init__(
        self,
        *,
        max_records: int,
        max_bytes: int,
        retry_topics: Collection[str] = (),
        breaker: CircuitBreaker | None = None,
        commits_finished: bool = False,
        make_tracker: Callable[[], OffsetTracker] = OffsetTracker,
    ) -> None:
        self._max_records = max_records
        self._budgets = Budget(max_bytes), Budget(max_bytes)
        self._retry_topics = set(retry_topics)
        self._fenced: dict[TopicPartition, PartitionWork] = {}  # whose records still run
        self._partitions: dict[TopicPartition, PartitionWork] = {}
        self._ready_partitions: deque[PartitionWork] = deque()
        self._delayed: list[tuple[float, int, WorkItem]] = []
        self._collected: list[tuple[float, int, CollectedBatch]] = []  # some are items already
        self._order = count()
        self.breaker = breaker
        self.commits_finished = commits_finished
        self._make_tracker = make_tracker
        self.ready = 0
        self.lost = 0

    # --- partitions ---

    @property
    def partitions(self) -> Collection[PartitionWork]:
        """The partitions that are assigned."""
        return self._partitions.values()

    def add_retry_topics(self, topics: Iterable[str]) -> None:
        """Count the records of more topics to the budget of retry topics."""
        self._retry_topics.update(topics)

    def partition(self, tp: TopicPartition) -> PartitionWork:
        """Return the work of an assigned partition, and create it if it has none."""
        work = self._partitions.get(tp)
        if work is None:
            budget = self._budgets[tp.topic in self._retry_topics]
            previous = self._fenced.pop(tp, None)
            # mutation: records-start-beside-former-assignment
            work = self._partitions[tp] = PartitionWork(tp, budget, previous, self._make_tracker())
        return work

    def replace(self, work: PartitionWork) -> PartitionWork:
        """Fence the work of a partition that stays assigned; return the work that follows it."""
        self.remove([work.tp])
        new = self.partition(work.tp)
        new.is_paused = work.is_paused
        return new

    def drain(self, partitions: Iterable[TopicPartition]) -> None:
        """Start no more records of these partitions."""
        for tp in partitions:
            work = self._partitions.get(tp)
            if work is not None and work.state is _ACTIVE:
                work.state = _DRAINING
                self._discard(work)

    def is_drained(self, partitions: Iterable[TopicPartition]) -> bool:
        """Return whether no record of these partitions runs."""
        return not any(tp in self._partitions and self._partitions[tp].running for tp in partitions)

    def remove(self, partitions: Iterable[TopicPartition]) -> None:
        """Fence partitions: the results of records that still run are ignored."""
        for tp in partitions:
            work = self._partitions.pop(tp, None)
            if work is not None:
                work.state = _FENCED
                self._discard(work)
                work.budget.size -= work.size
                # Records of the work before it may run, too, if it was fenced in between.
                if work.running:
                    self._fenced[tp] = work
                elif work.previous is not None:
                    self._fenced[tp] = work.previous

    def _discard(self, work: PartitionWork) -> None:
        discarded = sum(item.size for item in work.ready)
        discarded += sum(item.size for items in work.waiting.values() for item in items)
        if work.ready and work.previous is None:
            self._ready_partitions.remove(work)
            self.ready -= len(work.ready)
        work.ready.clear()
        work.waiting.clear()
        if work.batch is not None:
            discarded += work.batch.size
            # The batch stays among the collected ones until its wait is over.
            work.batch.records = []
            work.batch = None
        delayed = [entry for entry in self._delayed if entry[2].partition is work]
        if delayed:
            discarded += sum(item.size for _, _, item in delayed)
            self._delayed = [entry for entry in self._delayed if entry[2].partition is not work]
            heapq.heapify(self._delayed)
        work.size -= discarded
        work.budget.size -= discarded

    # --- records ---

    def add(self, item: WorkItem) -> None:
        """Add fetched records to an active partition."""
        work = item.partition
        work.size += item.size
        work.budget.size += item.size
        self._enqueue(item)

    def _enqueue(self, item: WorkItem) -> None:
        """Let an item run after those with its ordering key."""
        work, key = item.partition, item.ordering_key
        if key is not None:
            waiting = work.waiting.get(key)
            # mutation: order-by-key-ends-with-fetch
            if waiting is not None:
                waiting.append(item)
                return
            work.waiting[key] = deque()
        self._make_next(item)

    def collect(
        self, work: PartitionWork, handler: RecordHandler, records: Sequence[Record], now: float
    ) -> None:
        """Add fetched records of a batch handler to an active partition."""
        assert handler.batch is not None
        start = 0
        while start < len(records):
            batch = work.batch
            if batch is None:
                batch = work.batch = CollectedBatch(work, handler)
                self._forget_made_items()
                due = now + handler.batch.max_wait_ms / 1_000
                heapq.heappush(self._collected, (due, next(self._order), batch))
            room = handler.batch.max_records - len(batch.records)
            size = batch.extend(records[start : start + room])
            work.size += size
            work.budget.size += size
            start += room
            if len(batch.records) == handler.batch.max_records:
                self._make_item(batch)

    def _make_item(self, batch: CollectedBatch) -> None:
        work, records = batch.partition, batch.records
        work.batch, batch.records = None, []
        key = True if batch.handler.order_by == "partition" else None
        self._enqueue(WorkItem(records, work, batch.handler, key))

    def _forget_made_items(self) -> None:
        """Keep at most about two entries of a partition in the heap of batches."""
        if len(self._collected) > 2 * len(self._partitions):
            self._collected = [entry for entry in self._collected if _is_collected(entry[2])]
            heapq.heapify(self._collected)

    def take(self, now: float) -> WorkItem | None:
        """Return the next item to run, or None. Partitions are served in round-robin order."""
        if self._delayed and self._delayed[0][0] <= now:
            self.release_due(now)
        if not self._ready_partitions or (self.breaker is not None and not self.breaker.can_start):
            return None
        work = self._ready_partitions.popleft()
        item = work.ready.popleft()
        self.ready -= 1
        if work.ready:
            self._ready_partitions.append(work)
        work.running[item] = None
        if self.breaker is not None:
            self.breaker.on_started(item)
        return item

    def finish_records(self, item: WorkItem, number: int = 1) -> bool:
        """Mark the first unfinished records of a running item as finished.

        Returns:
            True if the next record of the item is to run now, False if the item has ended: it has
            no more records, or its partition was revoked.
        """
        work = item.partition
        if work.state is _FENCED:
            self._end_fenced(item)
            return False
        item.index = index = item.index + number
        if item.attempts or item.earlier_attempts:
            item.forget_failures()
        if index < len(item.records) and work.state is _ACTIVE:
            return True
        self._end(item)
        return False

    def _end(self, item: WorkItem) -> None:
        """End a running item, and let the next one with its ordering key run."""
        work, key = item.partition, item.ordering_key
        item.count_finished()
        del work.running[item]
        work.size -= item.size
        work.budget.size -= item.size
        if key is not None and work.state is _ACTIVE:
            waiting = work.waiting[key]
            if waiting:
                self._make_next(waiting.popleft())
            else:
                del work.waiting[key]

    def _end_fenced(self, item: WorkItem) -> None:
        """Ignore the result of a record whose partition was lost."""
        work = item.partition
        self.lost += 1
        del work.running[item]
        if work.running:
            return
        if self._fenced.get(work.tp) is work:
            del self._fenced[work.tp]
        following = self._partitions.get(work.tp)
        if following is not None and following.previous is work:
            following.previous = None
            if following.ready:
                self._ready_partitions.append(following)
                self.ready += len(following.ready)

    def abandon(self, item: WorkItem) -> None:
        """Forget a running item whose task has failed; its records stay unfinished."""
        item.count_finished()
        item.partition.running.pop(item, None)

    def requeue(self, item: WorkItem) -> None:
        """Let items of other partitions run before the next record of a running item."""
        work = item.partition
        if work.state is _ACTIVE:
            item.count_finished()
            del work.running[item]
            self._make_ready(item)
        else:
            self.retry(item, 0.0)

    def retry(self, item: WorkItem, due: float) -> None:
        """Run the rest of a running item at `due`. Items with its ordering key wait meanwhile."""
        work = item.partition
        if work.state is _FENCED:
            self._end_fenced(item)
        elif work.state is _DRAINING:
            self._end(item)
        else:
            item.count_finished()
            del work.running[item]
            self._delay(item, due)

    @property
    def is_busy(self) -> bool:
        """True if records run, or may run before the next delayed one is due."""
        if self._ready_partitions and (self.breaker is None or self.breaker.can_start):
            return True
        return bool(self._fenced) or any(work.running for work in self._partitions.values())

    @property
    def unfinished(self) -> int:
        """Number of records from the oldest unfinished one of each partition on."""
        return sum(work.count_unfinished() for work in self._partitions.values())

    @property
    def unwritten(self) -> Iterator[UnwrittenCopy]:
        """Copies of failed records that are being written, or could not be written yet."""
        running = (item for work in self._partitions.values() for item in work.running)
        for item in chain(running, (item for _, _, item in self._delayed)):
            if item.unwritten is not None:
                yield item.unwritten

    @property
    def next_due(self) -> float | None:
        """When the next delayed record, batch that is not full, or end of a pause is due."""
        if not self._delayed and not self._collected and self.breaker is None:
            return None
        collected = self._collected
        while collected and not _is_collected(collected[0][2]):
            heapq.heappop(collected)
        due = [heap[0][0] for heap in (self._delayed, collected) if heap]
        if self.breaker is not None and self.breaker.state is BreakerState.OPEN:
            due.append(self.breaker.due)
        return min(due) if due else None

    @property
    def delayed(self) -> int:
        """Number of delayed records."""
        return len(self._delayed)

    def _make_next(self, item: WorkItem) -> None:
        """Let an item run that waits for no other."""
        if item.due is None:
            self._make_ready(item)
        else:
            self._delay(item, item.due)

    def _make_ready(self, item: WorkItem) -> None:
        work = item.partition
        if work.previous is None:
            if not work.ready:
                self._ready_partitions.append(work)
            self.ready += 1
        work.ready.append(item)

    def _delay(self, item: WorkItem, due: float) -> None:
        heapq.heappush(self._delayed, (due, next(self._order), item))

    def release_due(self, now: float) -> None:
        """Make the delayed records and the batches ready that are due, and end a pause."""
        if self.breaker is not None:
            self.breaker.on_time(now)
        while self._delayed and self._delayed[0][0] <= now:
            self._make_ready(heapq.heappop(self._delayed)[2])
        while self._collected and self._collected[0][0] <= now:
            batch = heapq.heappop(self._collected)[2]
            if _is_collected(batch):
                self._make_item(batch)

    # --- commits and pauses ---

    def offsets_to_commit(
        self, partitions: Iterable[TopicPartition] | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return the offsets that changed since `mark_committed`.

        Args:
            partitions: Defaults to all assigned partitions.
        """
        offsets: dict[TopicPartition, OffsetAndMetadata] = {}
        for tp in self._partitions if partitions is None else partitions:
            work = self._partitions.get(tp)
            if work is None:
                continue
            work.count_finished()
            offset = work.offsets.committable
            finished = work.offsets.finished_records if self.commits_finished else None
            if offset is not None and finished is not None:
                offset = dataclasses.replace(offset, metadata=encode_metadata(finished))
            if offset is not None and offset != work.offsets.committed:
                offsets[tp] = offset
        return offsets

    def mark_committed(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Record that these offsets are committed."""
        for tp, offset in offsets.items():
            if tp in self._partitions:
                self._partitions[tp].offsets.committed = offset

    # --- transactions ---

    def add_output(self, work: PartitionWork, finished: UncommittedRecord) -> None:
        """Keep the output of a record until a transaction commits it with the record's offset."""
        if work.is_fenced:
            return
        replaced = work.uncommitted.get(finished.record.offset)
        size = finished.size - (0 if replaced is None else replaced.size)
        work.uncommitted[finished.record.offset] = finished
        work.size += size
        work.budget.size += size

    def next_transaction(
        self, partitions: Iterable[TopicPartition] | None = None
    ) -> TransactionContent:
        """Return the offsets that changed, and the output of the records before them.

        Output of records behind an unfinished one waits: these records are processed again after a
        crash.

        Args:
            partitions: Defaults to all assigned partitions.
        """
        content = TransactionContent()
        for tp, offset in self.offsets_to_commit(partitions).items():
            work = self._partitions[tp]
            content.offsets[tp] = offset
            content.works.append(work)
            for finished in work.uncommitted.values():
                # mutation: output-written-before-its-offset
                if finished.record.offset < offset.offset:
                    content.finished.append((work, finished))
        return content

    def finish_transaction(self, content: TransactionContent) -> None:
        """Record that a transaction is committed."""
        for work in content.works:
            if not work.is_fenced:
                work.offsets.committed = content.offsets[work.tp]
        for work, finished in content.finished:
            if not work.is_fenced:
                del work.uncommitted[finished.record.offset]
                work.size -= finished.size
                work.budget.size -= finished.size

    def may_resume(self, item: WorkItem) -> bool:
        """Return whether `update_pauses` may find a partition to resume after a record."""
        work = item.partition
        if work.budget.was_full and work.budget.may_resume:
            return True
        return work.is_paused and len(work.offsets) * RESUME_SHARE <= self._max_records

    def update_pauses(self) -> Pauses:
        """Return the partitions to pause and resume, which are then regarded as such."""
        changed = Pauses([], [])
        for budget in self._budgets:
            budget.update()
        for tp, work in self._partitions.items():
            is_full, unfinished = work.budget.was_full, work.count_unfinished()
            if not work.is_paused and (is_full or unfinished >= self._max_records):
                work.is_paused = True
                changed.pause.append(tp)
            elif work.is_paused and not is_full and unfinished * RESUME_SHARE <= self._max_records:
                work.is_paused = False
                changed.resume.append(tp)
            if work.is_paused and work.batch is not None:
                self._make_item(work.batch)  # it cannot grow
        return changed


def _is_collected(batch: CollectedBatch) -> bool:
    """Return whether a batch is no item yet, and was not discarded."""
    return batch.partition.batch is batch

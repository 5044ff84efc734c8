"""Which record runs next, which offsets may be committed, which partitions are paused.

The scheduler awaits nothing and reads no clock. Its unit is the `WorkItem`: records of a partition
that run one after the other. An item that was added is in one of these states:

- ready: in `PartitionWork.ready`, to be taken;
- waiting: behind an unfinished item with the same ordering key;
- running: taken by a task, which finishes its records one by one;
- delayed: a record failed, and is tried again at its due time;
- finished: all its records are.

Records in any order, or by key, are one item per fetch. A task runs them one after the other. If
its handler waits, another task takes the records behind the present one, which is then an item of
its own. Only then keys are compared: the records whose key has an unfinished record of another item
wait, as items of their own.

Records for a batch handler are collected first; they become an item when they are a batch.

A partition is active until `drain`, which discards the items that do not run, and lets the running
ones end after their present record: the rest is delivered again to the next owner of the partition.
After `remove` it is fenced: the results of records that still run are ignored.
"""

from __future__ import annotations

import dataclasses
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain

from aiokafkawire.records import Record
from aiokafkawire.types import OffsetAndMetadata, TopicPartition
from aiokafkawire.worker.buffer_limits import BufferLimits, Pauses
from aiokafkawire.worker.circuit_breaker import BreakerState, CircuitBreaker
from aiokafkawire.worker.finished_records import encode_metadata
from aiokafkawire.worker.handlers import RecordHandler
from aiokafkawire.worker.offset_tracker import OffsetTracker
from aiokafkawire.worker.partition_work import (
    NO_FAILURES,
    CollectedBatch,
    PartitionWork,
    PartitionWorkState,
    UnwrittenCopy,
    WorkItem,
)
from aiokafkawire.worker.timed_work import TimedWork
from aiokafkawire.worker.transaction_content import TransactionContent

__all__ = ("Scheduler",)

# Attribute access on an Enum class is slow up to Python 3.11.
_ACTIVE, _DRAINING = PartitionWorkState.ACTIVE, PartitionWorkState.DRAINING
_FENCED = PartitionWorkState.FENCED


class Scheduler:
    """Decides about the records of all partitions.

    Args:
        max_records: See `BufferLimits`.
        max_bytes: See `BufferLimits`.
        retry_topics: Names of the retry topics.
        breaker: Says whether records may start; None if they always may.
        commits_finished: Initial value of the attribute.
        make_tracker: Returns the tracker of a partition.

    Attributes:
        commits_finished: Whether the metadata of a commit names the finished records above its
            offset.
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
        self._limits = BufferLimits(max_records, max_bytes, retry_topics)
        self._fenced: dict[TopicPartition, PartitionWork] = {}  # whose records still run
        self._partitions: dict[TopicPartition, PartitionWork] = {}
        self._ready_partitions: deque[PartitionWork] = deque()
        self._timed = TimedWork()
        self.breaker = breaker
        self.commits_finished = commits_finished
        self._make_tracker = make_tracker
        self.lost = 0

    # --- partitions ---

    @property
    def partitions(self) -> Collection[PartitionWork]:
        """The partitions that are assigned."""
        return self._partitions.values()

    def add_retry_topics(self, topics: Iterable[str]) -> None:
        """Count the records of more topics to the budget of retry topics."""
        self._limits.add_retry_topics(topics)

    def partition(self, tp: TopicPartition) -> PartitionWork:
        """Return the work of an assigned partition, and create it if it has none."""
        work = self._partitions.get(tp)
        if work is None:
            budget = self._limits.budget(tp.topic)
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
        if work.is_queued:
            self._ready_partitions.remove(work)
            work.is_queued = False
        work.divisible = None
        work.ready.clear()
        work.waiting.clear()
        if work.batch is not None:
            discarded += work.batch.size
            # The batch stays among the collected ones until its wait is over.
            work.batch.records = []
            work.batch = None
        discarded += self._timed.discard_items(work)
        work.add_size(-discarded)

    # --- records ---

    def add(self, item: WorkItem) -> None:
        """Add fetched records to an active partition."""
        work = item.partition
        work.add_size(item.size)
        self._enqueue(item)

    def _enqueue(self, item: WorkItem) -> None:
        """Let an item run after those with its ordering key."""
        work, key = item.partition, item.ordering_key
        if key is not None:
            waiting = work.waiting.get(key)
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
                self._timed.add_batch(batch, now + handler.batch.max_wait_ms / 1_000)
            room = handler.batch.max_records - len(batch.records)
            size = batch.extend(records[start : start + room])
            work.add_size(size)
            start += room
            if len(batch.records) == handler.batch.max_records:
                self._make_item(batch)

    def _make_item(self, batch: CollectedBatch) -> None:
        work, records = batch.partition, batch.records
        work.batch, batch.records = None, []
        key = True if batch.handler.order_by == "partition" else None
        self._enqueue(WorkItem(records, work, batch.handler, key))

    def take(self, now: float) -> WorkItem | None:
        """Return the next item to run, or None. Partitions are served in round-robin order."""
        if self._timed.has_item_due(now):
            self.release_due(now)
        if self.breaker is not None and not self.breaker.can_start:
            return None
        while self._ready_partitions:
            work = self._ready_partitions.popleft()
            work.is_queued = False
            item = self._take_from(work)
            if item is None:
                continue
            work.running[item] = None
            if item.keys is not None:
                work.divisible = item
            if work.ready_count:
                self._queue(work)
            if self.breaker is not None:
                self.breaker.on_started(item)
            return item
        return None

    def _take_from(self, work: PartitionWork) -> WorkItem | None:
        """Return the oldest records of a partition that may run, or None."""
        ready, item = work.ready, None
        if work.divisible is not None and not (ready and ready[0].keys is None):
            item = self._divide(work.divisible)
        while item is not None or ready:
            item = self._pass_waiting(ready.popleft() if item is None else item)
            if item is not None:
                return item
        return None

    def _divide(self, item: WorkItem) -> WorkItem | None:
        """Return the records of an item behind the present one, for another task."""
        work, rest = item.partition, item.divide()
        work.divisible = None
        if item.ordering_key is not None:
            work.waiting[item.ordering_key] = deque()
        return rest

    def _pass_waiting(self, item: WorkItem) -> WorkItem | None:
        """Let the first records wait whose keys have unfinished ones; return the others, if any."""
        waiting = item.partition.waiting
        while self._must_wait(item):
            rest = item.divide()
            waiting[item.ordering_key].append(item)
            if rest is None:
                return None
            item = rest
        return item

    def _must_wait(self, item: WorkItem) -> bool:
        """Return whether another item has an unfinished record with the next ordering key."""
        # mutation: order-by-key-ends-with-fetch
        return item.keys is not None and item.keys[item.index] in item.partition.waiting

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
        if item.failures is not NO_FAILURES:
            item.forget_failures()
        if index == item.end or work.state is _DRAINING:
            self._end(item)
            return False
        if self._must_wait(item):
            self.requeue(item)
            return False
        return True

    def _end(self, item: WorkItem) -> None:
        """End a running item, and let the next one with its ordering key run."""
        work, key = item.partition, item.ordering_key
        self._stop(item)
        item.drop_records()
        work.add_size(-item.size)
        if key is not None and work.state is _ACTIVE:
            waiting = work.waiting[key]
            if waiting:
                self._make_next(waiting.popleft())
            else:
                del work.waiting[key]

    def _stop(self, item: WorkItem) -> None:
        """Let an item run no more."""
        work = item.partition
        item.count_finished()
        del work.running[item]
        if work.divisible is item:
            work.divisible = None

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
                self._queue(following)

    def abandon(self, item: WorkItem) -> None:
        """Forget a running item whose task has failed; its records stay unfinished."""
        if item in item.partition.running:
            self._stop(item)

    def requeue(self, item: WorkItem) -> None:
        """Let items of other partitions run before the next record of a running item."""
        work = item.partition
        if work.state is _ACTIVE:
            self._stop(item)
            self._make_ready_first(item)
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
            self._stop(item)
            if item.keys is not None and (rest := self._divide(item)) is not None:
                self._make_ready_first(rest)
            self._timed.add_item(item, due)

    @property
    def is_busy(self) -> bool:
        """True if records run, or may run before the next delayed one is due."""
        if self.count_ready(1) and (self.breaker is None or self.breaker.can_start):
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
        for item in chain(running, self._timed.items):
            if item.failures.unwritten is not None:
                yield item.failures.unwritten

    @property
    def next_due(self) -> float | None:
        """When the next delayed record, batch that is not full, or end of a pause is due."""
        due = self._timed.next_due
        if self.breaker is not None and self.breaker.state is BreakerState.OPEN:
            return self.breaker.due if due is None else min(due, self.breaker.due)
        return due

    @property
    def delayed(self) -> int:
        """Number of delayed records."""
        return self._timed.item_count

    def count_ready(self, limit: int) -> int:
        """Return the number of items that `take` returns at once, up to a limit."""
        count = 0
        for work in self._ready_partitions:
            count += work.ready_count
            if count >= limit:
                return limit
        return count

    def _make_next(self, item: WorkItem) -> None:
        """Let an item run that waits for no other."""
        if item.due is None:
            self._make_ready(item)
        else:
            self._timed.add_item(item, item.due)

    def _make_ready(self, item: WorkItem) -> None:
        item.partition.ready.append(item)
        self._queue(item.partition)

    def _make_ready_first(self, item: WorkItem) -> None:
        """Make an item ready that was added before the other ready ones."""
        item.partition.ready.appendleft(item)
        self._queue(item.partition)

    def _queue(self, work: PartitionWork) -> None:
        """Let `take` look at a partition that has ready records."""
        if not work.is_queued and work.previous is None:
            work.is_queued = True
            self._ready_partitions.append(work)

    def release_due(self, now: float) -> None:
        """Make the delayed records and the batches ready that are due, and end a pause."""
        if self.breaker is not None:
            self.breaker.on_time(now)
        for item in self._timed.remove_due_items(now):
            self._make_ready(item)
        for batch in self._timed.remove_due_batches(now):
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
                work.add_size(-finished.size)

    def may_resume(self, item: WorkItem) -> bool:
        """Return whether `update_pauses` may find a partition to resume after a record."""
        return self._limits.may_resume(item.partition)

    def update_pauses(self) -> Pauses:
        """Return the partitions to pause and resume, which are then regarded as such."""
        changed = self._limits.update(self._partitions.values())
        for work in self._partitions.values():
            if work.is_paused and work.batch is not None:
                self._make_item(work.batch)  # it cannot grow
        return changed

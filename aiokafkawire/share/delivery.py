"""Delivery of acquired records to the application's tasks, and their implicit acknowledgement.

Everything is kept by range: a record of its own is made only when the application looks at it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection
from dataclasses import dataclass
from typing import NamedTuple

from aiokafkawire.consumer.record_cursor import CURSOR_RECORDS, RecordCursor
from aiokafkawire.errors import CorruptRecord
from aiokafkawire.group.topic_id_partition import TopicIdPartition
from aiokafkawire.runtime import Clock, is_task_done
from aiokafkawire.types import TopicPartition

from .acknowledgements import AcknowledgeType
from .acquire_limit import AcquireLimit
from .corrupt_batches import CorruptBatches
from .record import HeldRecords, ShareRecord
from .records import ShareRecords

__all__ = ("ShareCursor", "ShareDelivery")

DELIVERY_MARGIN_S = 0.5
"""Records whose lock expires earlier are not delivered: they could not be acknowledged."""


@dataclass(slots=True)
class UndeliveredRecords:
    """Acquired records of one partition. Those from the index `start` on are not delivered yet."""

    records: ShareRecords
    held: HeldRecords
    start: int = 0

    @property
    def is_empty(self) -> bool:
        return self.start == len(self.records)

    def take(self, limit: int) -> ShareRecords:
        """Return the next records, at most `limit`."""
        start = self.start
        self.start = min(start + limit, len(self.records))
        return self.records[start : self.start]


class TakenRecords(NamedTuple):
    """Records to deliver. `offsets` are all from the first to the last; gaps are acknowledged."""

    records: ShareRecords
    held: HeldRecords
    offsets: range


def offset_range(records: ShareRecords) -> range:
    first, last = records.first_offset, records.last_offset
    assert first is not None
    assert last is not None
    return range(first, last + 1)


@dataclass(slots=True)
class DeliveredRecords:
    """Records that were delivered to one task, which has processed those before `processed`."""

    held: HeldRecords
    delivered_at: float
    first: int
    last: int
    processed: int

    def mark_processed(self) -> None:
        """Note that the task has processed all records."""
        self.processed = self.last + 1

    def accept_processed(self) -> bool:
        """Accept the processed records, unless the application has acknowledged them.

        Returns:
            Whether the locks of some had ended before. These failures are reported.
        """
        first, last = self.first, self.processed - 1
        self.first = self.processed
        self._acknowledge(first, last, AcknowledgeType.ACCEPT)
        return self.held.report_lost(first, last)

    def release(self) -> None:
        """Release all records, unless the application has acknowledged them."""
        # mutation: cancelled-task-accepts-its-records
        self._acknowledge(self.first, self.last, AcknowledgeType.RELEASE)

    def renew(self, ranges: list[tuple[int, int]], before: float) -> None:
        """Renew the locks of these records that expire before a time."""
        for begin, end in ranges:
            for first, last, expires_at in self.held.lock.expiries(begin, end):
                if expires_at <= before:
                    self._acknowledge(first, last, AcknowledgeType.RENEW)

    def _acknowledge(self, first: int, last: int, type: AcknowledgeType) -> None:
        self.held.acknowledge_undecided(range(first, last + 1), type)


class ShareCursor(RecordCursor[ShareRecord]):
    """Delivers records of one range to one task until `deliver_before`."""

    __slots__ = ("caller", "deliver_before", "taken")

    def __init__(self, taken: TakenRecords, caller: object) -> None:
        super().__init__([*taken.records])
        self.taken = taken
        self.caller = caller
        offsets = taken.offsets
        locks = taken.held.lock.expiries(offsets.start, offsets.stop - 1)
        self.deliver_before = min(expires_at for _, _, expires_at in locks) - DELIVERY_MARGIN_S


class ShareDelivery:
    """Records that were acquired, in the order of their responses.

    Args:
        clock: The clock.
        implicit: Accept delivered records when the task that received them calls again.
        renewal_limit_s: Time after the delivery in which locks are renewed.
        max_poll_records: Number of records that a fetch asks for at least.

    Attributes:
        cursor: Delivers records one by one; None if the next call must check for errors first.
    """

    def __init__(
        self, clock: Clock, *, implicit: bool, renewal_limit_s: float, max_poll_records: int
    ) -> None:
        self.cursor: ShareCursor | None = None
        self._limit = AcquireLimit(max_poll_records, clock.now())
        self._clock = clock
        self._implicit = implicit
        self._renewal_limit_s = renewal_limit_s
        self._buffered: deque[UndeliveredRecords] = deque()
        self._queued = 0
        self._delivered_count = 0
        self._delivered: dict[object, list[DeliveredRecords]] = {}
        self._corrupt: dict[TopicIdPartition, CorruptBatches] = {}  # not raised yet
        self._raised: dict[TopicIdPartition, CorruptBatches] = {}  # the last of each partition

    # --- buffer ---

    @property
    def buffered_count(self) -> int:
        """Number of records that are not delivered yet."""
        cursor = self.cursor
        left = 0 if cursor is None else len(cursor.records) - cursor.delivered_count
        return self._queued + left

    @property
    def delivered_count(self) -> int:
        """Number of records delivered so far."""
        self._note_cursor()
        return self._delivered_count

    @property
    def prefetch_below(self) -> int:
        """Number of buffered records below which more are acquired ahead."""
        return self._limit.prefetch_below

    def acquire_limit(self) -> int:
        """Return how many records a fetch asks for."""
        return self._limit.update(self.delivered_count, self._clock.now())

    def add(self, records: ShareRecords, held: HeldRecords) -> None:
        """Append records that were acquired."""
        self._buffered.append(UndeliveredRecords(records, held))
        self._queued += len(records)

    def add_corrupt(self, partition: TopicIdPartition, batches: CorruptBatches) -> None:
        """Keep batches that cannot be read, for the next error of their partition."""
        self.stop()
        earlier = self._corrupt.get(partition)
        self._corrupt[partition] = batches if earlier is None else earlier.with_later(batches)

    def take_corrupt_error(self) -> CorruptRecord | None:
        """Return the error of the next partition with corrupt batches, if there is one."""
        if not self._corrupt:
            return None
        partition = next(iter(self._corrupt))
        batches = self._raised[partition] = self._corrupt.pop(partition)
        return batches.error

    def corrupt_records(self, error: CorruptRecord) -> list[ShareRecord]:
        """Return the held records of the batches for which an error was raised."""
        for batches in self._raised.values():
            if batches.error is error:
                return batches.records()
        return []

    def release_all_but(self, partitions: Collection[TopicIdPartition]) -> None:
        """Release the records of other partitions that are not delivered.

        Those of corrupt batches are kept if their error was raised: the application may reject
        them.
        """
        self.stop()
        for partition in self._corrupt.keys() - partitions:
            self._corrupt.pop(partition).release()
        for _ in range(len(self._buffered)):
            chunk = self._buffered.popleft()
            if chunk.held.partition in partitions:
                self._buffered.append(chunk)
            else:
                records = chunk.take(len(chunk.records))
                self._queued -= len(records)
                chunk.held.acknowledge_undecided(offset_range(records), AcknowledgeType.RELEASE)

    def clear(self) -> None:
        """Drop the records that are not delivered, and accept those that tasks have processed.

        Closing the sessions releases all others.
        """
        self.stop()
        self._buffered.clear()
        self._queued = 0
        self.accept_processed()

    def _take(
        self, limit: int, now: float, only: TopicPartition | None = None
    ) -> TakenRecords | None:
        """Return the next records that are held for long enough to be acknowledged.

        Others are dropped: the broker delivers them again, to any member. With `only`, None is
        returned at the first record of another partition.
        """
        while self._buffered:
            chunk = self._buffered[0]
            if only is not None and chunk.records.topic_partition != only:
                return None
            records, held = chunk.take(limit), chunk.held
            if chunk.is_empty:
                self._buffered.popleft()
            self._queued -= len(records)
            offsets = offset_range(records)
            ranges = held.held_after(offsets.start, offsets.stop - 1, now + DELIVERY_MARGIN_S)
            if ranges == [(offsets.start, offsets.stop - 1)]:
                return TakenRecords(records, held, offsets)
            parts = [part for begin, end in ranges if (part := records.between(begin, end))]
            for part in reversed(parts[1:]):
                self._put_back(part, held)
            if parts:
                return TakenRecords(parts[0], held, offset_range(parts[0]))
        return None

    def _put_back(self, records: ShareRecords, held: HeldRecords) -> None:
        if records:
            self._buffered.appendleft(UndeliveredRecords(records, held))
            self._queued += len(records)

    # --- delivery ---

    def next_record(self, owner: object, caller: object) -> ShareRecord | None:
        """Return the next record, and open a cursor for those after it.

        A cursor ends where more records must be acquired.

        Args:
            owner: The iterator that may take records from the cursor.
            caller: The task that will process the records.
        """
        self.stop()
        until_prefetch = self._queued - self.prefetch_below + 1
        limit = min(CURSOR_RECORDS, until_prefetch if until_prefetch > 0 else CURSOR_RECORDS)
        taken = self._take(limit, self._clock.now())
        if taken is None:
            return None
        self.cursor = ShareCursor(taken, caller)
        self.cursor.owner = owner
        return self.cursor.next()

    def take(
        self, caller: object, max_records: int, *, single_partition: bool = False
    ) -> dict[TopicPartition, ShareRecords]:
        """Return up to `max_records` records, by partition."""
        self.stop()
        taken: dict[TopicPartition, list[ShareRecords]] = {}
        now = self._clock.now()
        only: TopicPartition | None = None
        while max_records:
            part = self._take(max_records, now, only)
            if part is None:
                break
            records, held, offsets = part
            max_records -= len(records)
            taken.setdefault(records.topic_partition, []).append(records)
            if single_partition:
                only = records.topic_partition
            self._delivered_count += len(records)
            self._note_delivered(caller, held, offsets)
        return {
            tp: parts[0] if len(parts) == 1 else _concatenate(parts) for tp, parts in taken.items()
        }

    def stop(self) -> None:
        """Close the current cursor, so that the next call checks for errors."""
        self._note_cursor()
        cursor, self.cursor = self.cursor, None
        if cursor is not None:
            cursor.close()
            records, held, _ = cursor.taken
            self._put_back(records[cursor.delivered_count :], held)

    def _note_cursor(self) -> None:
        """Note which records the cursor has delivered. All but the last are processed."""
        cursor = self.cursor
        if cursor is None or not (count := cursor.take_delivered_count()):
            return
        self._delivered_count += count
        stop = cursor.delivered_count
        for before in self._delivered.get(cursor.caller, ()):
            before.mark_processed()
        first, last = cursor.records[stop - count].offset, cursor.records[stop - 1].offset
        offsets = range(first, last + 1)
        self._note_delivered(cursor.caller, cursor.taken.held, offsets, processed=last)

    def _note_delivered(
        self,
        caller: object,
        held: HeldRecords,
        offsets: range,
        processed: int | None = None,
    ) -> None:
        if not self._tracks:
            return
        if not self._implicit:
            caller = None  # any task may acknowledge
        first, last, now = offsets.start, offsets.stop - 1, self._clock.now()
        delivered = self._delivered.setdefault(caller, [])
        before = delivered[-1] if delivered else None
        if (
            before is not None
            and before.held is held
            and before.last == first - 1
            and (self._implicit or before.delivered_at == now)
        ):
            # In the implicit mode, those before are processed: their time counts no more.
            before.last, before.delivered_at = last, now
        else:
            delivered.append(DeliveredRecords(held, now, first, last, first))
        if processed is not None:
            delivered[-1].processed = processed

    # --- delivered records ---

    @property
    def _tracks(self) -> bool:
        return self._implicit or self._renewal_limit_s > 0

    @property
    def has_delivered(self) -> bool:
        """True if `maintain` has something to do."""
        return bool(self._delivered) or (self._tracks and self.cursor is not None)

    def mark_processed(self, caller: object) -> None:
        """Note that `caller` has processed its records, because it calls again."""
        self._note_cursor()
        if self._implicit:
            for delivered in self._delivered.get(caller, ()):
                delivered.mark_processed()

    def accept_processed(self) -> set[TopicPartition]:
        """Accept the records that each task has processed, and keep the others.

        Returns:
            The partitions of records whose locks had ended before.
        """
        self._note_cursor()
        lost: set[TopicPartition] = set()
        if not self._implicit:
            return lost
        for caller, parts in [*self._delivered.items()]:
            for delivered in parts:
                if delivered.accept_processed():
                    lost.add(delivered.held.partition.topic_partition)
            parts[:] = [delivered for delivered in parts if delivered.first <= delivered.last]
            if not parts:
                del self._delivered[caller]
        return lost

    def maintain(self) -> None:
        """Accept processed records, release those of ended tasks, and renew locks.

        A task has ended if it returned, failed or was cancelled.
        """
        self.accept_processed()
        if self._implicit:
            for caller in [task for task in self._delivered if is_task_done(task)]:
                for delivered in self._delivered.pop(caller):
                    delivered.release()
        if self._renewal_limit_s:
            self._renew(self._clock.now())

    def _renew(self, now: float) -> None:
        """Renew the locks of delivered records that have passed half of their time."""
        for caller, parts in [*self._delivered.items()]:
            kept = []
            for delivered in parts:
                undecided = delivered.held.undecided(delivered.first, delivered.last)
                if undecided or self._implicit:
                    kept.append(delivered)
                if now - delivered.delivered_at < self._renewal_limit_s:
                    delivered.renew(undecided, now + delivered.held.lock.duration_s / 2)
            self._delivered[caller] = kept
            if not kept:
                del self._delivered[caller]


def _concatenate(parts: list[ShareRecords]) -> ShareRecords:
    segments = [segment for records in parts for segment in records.segments]
    last = parts[-1]
    return ShareRecords(*last.topic_partition, segments, last.next_offset, last.leader_epoch)

"""Delivery of acquired records to the application's tasks, and their implicit acknowledgement."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection
from dataclasses import dataclass, field

from aiokafkawire.group.topic_id_partition import TopicIdPartition
from aiokafkawire.records import Records
from aiokafkawire.runtime import Clock, is_task_done
from aiokafkawire.types import TopicPartition

from .acknowledgements import AcknowledgeType
from .record import HeldRecords, ShareRecord, make_share_record
from .session_context import ACKNOWLEDGE_DELAY_S

__all__ = ("ShareDelivery",)

READY_RECORDS = 256
"""Records that are made at a time."""

DELIVERY_MARGIN_S = 0.5
"""Records whose lock expires earlier are not delivered: they could not be acknowledged."""


@dataclass(slots=True)
class UndeliveredRecords:
    """Acquired records of one partition that are not delivered yet: first `ready`, then `records`.

    `ready` are records that are made ahead, because one by one they cost more.
    """

    held: HeldRecords
    delivery_count: int
    records: Records
    ready: deque[ShareRecord] = field(default_factory=deque)

    def release(self) -> int:
        """Release all records, and return their number."""
        offsets = [*(record.offset for record in self.ready), *self.records.offsets()]
        _acknowledge(self.held, offsets, AcknowledgeType.RELEASE)
        return len(offsets)

    def next(self) -> ShareRecord | None:
        """Return the next record, or None at the end."""
        if not self.ready and len(self.records):
            self.ready.extend(
                make_share_record(record, self.delivery_count, self.held)
                for record in self.records[:READY_RECORDS]
            )
            self.records = self.records[READY_RECORDS:]
        return self.ready.popleft() if self.ready else None


@dataclass(slots=True)
class DeliveredRecords:
    """Records that were delivered to one task, which has processed the first `processed` ones."""

    held: HeldRecords
    delivered_at: float
    offsets: list[int] = field(default_factory=list)
    processed: int = 0

    def acknowledge(self, offsets: list[int], type: AcknowledgeType) -> None:
        """Acknowledge records, unless the application has done so."""
        _acknowledge(self.held, offsets, type)


def _acknowledge(held: HeldRecords, offsets: list[int], type: AcknowledgeType) -> None:
    """Acknowledge records, unless the application has done so."""
    if offsets:
        held.node.acknowledge(held.partition, offsets, type, held.lock, only_undecided=True)


class ShareDelivery:
    """Records that were acquired, in the order of their responses.

    Args:
        clock: The clock.
        implicit: Accept delivered records when the task that received them calls again.
        renewal_limit_s: Time after the delivery in which locks are renewed.

    Attributes:
        buffered_count: Number of records that are not delivered yet.
        delivered_count: Number of records delivered so far.
    """

    def __init__(self, clock: Clock, *, implicit: bool, renewal_limit_s: float) -> None:
        self.buffered_count = 0
        self.delivered_count = 0
        self._clock = clock
        self._implicit = implicit
        self._renewal_limit_s = renewal_limit_s
        self._buffered: deque[UndeliveredRecords] = deque()
        self._delivered: dict[object, list[DeliveredRecords]] = {}

    # --- buffer ---

    def add(self, held: HeldRecords, delivery_count: int, records: Records) -> None:
        """Append records that were acquired."""
        self._buffered.append(UndeliveredRecords(held, delivery_count, records))
        self.buffered_count += len(records)

    def release_all_but(self, partitions: Collection[TopicIdPartition]) -> None:
        """Release the records of other partitions that are not delivered."""
        kept: deque[UndeliveredRecords] = deque()
        for chunk in self._buffered:
            if chunk.held.partition in partitions:
                kept.append(chunk)
            else:
                self.buffered_count -= chunk.release()
        self._buffered = kept

    def clear(self) -> None:
        """Drop the records that are not delivered, and accept those that tasks have processed.

        Closing the sessions releases all others.
        """
        self._buffered.clear()
        self.buffered_count = 0
        self._accept_processed()

    def _next(self, now: float, only: TopicPartition | None = None) -> ShareRecord | None:
        """Return the next record that is held for long enough to be acknowledged.

        Others are dropped: the broker delivers them again, to any member. With `only`, None is
        returned at the first record of another partition.
        """
        while self._buffered:
            chunk = self._buffered[0]
            if only is not None and chunk.records.topic_partition != only:
                return None
            record = chunk.next()
            if record is None:
                self._buffered.popleft()
                continue
            self.buffered_count -= 1
            lock, offset = chunk.held.lock, record.offset
            expires_at = lock.expires_at(offset)
            if expires_at - DELIVERY_MARGIN_S > now and chunk.held.locks.get(offset) is lock:
                return record
        return None

    # --- delivery ---

    def next_record(self, caller: object) -> ShareRecord | None:
        """Return the next record to the same task as before, which has processed the last one.

        The records before it are acknowledged now or with the next ones.
        """
        now = self._clock.now()
        delivered = self._delivered.get(caller)
        if delivered:
            for part in reversed(delivered):
                if part.processed == len(part.offsets):
                    break  # those before are processed too
                part.processed = len(part.offsets)
            if now - delivered[0].delivered_at >= ACKNOWLEDGE_DELAY_S or not self.buffered_count:
                self.mark_processed(caller)
        record = self._next(now)
        if record is not None:
            self._note_delivered(caller, record, now)
        return record

    def take(
        self, caller: object, max_records: int, *, single_partition: bool = False
    ) -> dict[TopicPartition, list[ShareRecord]]:
        """Return up to `max_records` records, by partition."""
        taken: dict[TopicPartition, list[ShareRecord]] = {}
        now = self._clock.now()
        only: TopicPartition | None = None
        while max_records:
            record = self._next(now, only)
            if record is None:
                break
            max_records -= 1
            tp = record.topic_partition
            taken.setdefault(tp, []).append(record)
            if single_partition:
                only = tp
            self._note_delivered(caller, record, now)
        return taken

    def _note_delivered(self, caller: object, record: ShareRecord, now: float) -> None:
        self.delivered_count += 1
        if not self._implicit:
            if not self._renewal_limit_s:
                return
            caller = None  # any task may acknowledge
        delivered = self._delivered.setdefault(caller, [])
        if not delivered or delivered[-1].held is not record._held:
            delivered.append(DeliveredRecords(record._held, now))
        delivered[-1].offsets.append(record.offset)

    # --- delivered records ---

    @property
    def has_delivered(self) -> bool:
        """True if `maintain` has something to do."""
        return bool(self._delivered)

    def mark_processed(self, caller: object) -> None:
        """Accept the records delivered to `caller`, because it calls again."""
        if self._implicit:
            for delivered in self._delivered.pop(caller, ()):
                delivered.acknowledge(delivered.offsets, AcknowledgeType.ACCEPT)

    def _accept_processed(self) -> None:
        """Accept the records that each task has processed, and keep the others."""
        if not self._implicit:
            return
        for caller, parts in list(self._delivered.items()):
            for delivered in parts:
                processed = delivered.processed
                delivered.acknowledge(delivered.offsets[:processed], AcknowledgeType.ACCEPT)
                del delivered.offsets[:processed]
                delivered.processed = 0
            parts[:] = [delivered for delivered in parts if delivered.offsets]
            if not parts:
                del self._delivered[caller]

    def maintain(self) -> None:
        """Accept processed records, release those of ended tasks, and renew locks.

        A task has ended if it returned, failed or was cancelled.
        """
        self._accept_processed()
        if self._implicit:
            for caller in [task for task in self._delivered if is_task_done(task)]:
                for delivered in self._delivered.pop(caller):
                    delivered.acknowledge(delivered.offsets, AcknowledgeType.RELEASE)
        if self._renewal_limit_s:
            self._renew(self._clock.now())

    def _renew(self, now: float) -> None:
        """Renew the locks of delivered records that have passed half of their time."""
        for caller, lists in list(self._delivered.items()):
            for delivered in lists:
                held = delivered.held
                undecided = [offset for offset in delivered.offsets if held.is_undecided(offset)]
                if not self._implicit:
                    delivered.offsets = undecided
                if now - delivered.delivered_at < self._renewal_limit_s:
                    due = now + held.lock.duration_s / 2
                    renewed = [
                        offset for offset in undecided if held.lock.expires_at(offset) <= due
                    ]
                    delivered.acknowledge(renewed, AcknowledgeType.RENEW)
            if not self._implicit:
                self._delivered[caller] = [part for part in lists if part.offsets]
                if not self._delivered[caller]:
                    del self._delivered[caller]

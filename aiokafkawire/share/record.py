"""Acquired records, which the application acknowledges."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import TYPE_CHECKING

from aiokafkawire.errors import AcknowledgementFailed
from aiokafkawire.group.topic_id_partition import TopicIdPartition
from aiokafkawire.records.kernel import ShareRecord

from .acknowledgements import Acknowledgement, AcknowledgeType, PartitionAcknowledgements
from .locks import AcquisitionLock

if TYPE_CHECKING:
    from .node import ShareNode

__all__ = ("HeldRecords", "ShareRecord")


class HeldRecords:
    """Acquired records of one partition: the broker that leads it, and their lock.

    A record is held while its current lock is the one of its fetch.
    """

    __slots__ = ("_node", "delivery_count", "lock", "locks", "partition")

    def __init__(
        self,
        node: ShareNode,
        partition: TopicIdPartition,
        lock: AcquisitionLock,
        delivery_count: int,
    ) -> None:
        # The garbage collector does not know records: one that its consumer leads to would stay.
        self._node = weakref.ref(node)
        self.partition = partition
        self.lock = lock
        self.delivery_count = delivery_count
        self.locks = node.locks(partition)

    @property
    def node(self) -> ShareNode | None:
        """The broker that leads the partition; None if the consumer does not exist any more."""
        return self._node()

    def is_held(self, offset: int) -> bool:
        """Return whether a record is locked, and no acknowledgement of it was sent."""
        node = self.node
        return node is not None and node.is_held(self.partition, offset, self.lock)

    def lock_expires_at(self, offset: int) -> float | None:
        """Return when the lock of a record expires; None if it is not held."""
        return self.lock.expires_at(offset) if self.is_held(offset) else None

    def held_after(self, first: int, last: int, time: float) -> list[tuple[int, int]]:
        """Return the ranges of records between two offsets whose locks expire after `time`."""
        if self.locks.covers(first, last, self.lock) and self.lock.all_expire_after(time):
            return [(first, last)]
        return [
            (begin, end)
            for start, stop, lock in self.locks.within(first, last)
            if lock is self.lock
            for begin, end, expires_at in lock.expiries(start, stop)
            if expires_at > time
        ]

    def is_undecided(self, offset: int) -> bool:
        """Return whether a record is held and not acknowledged."""
        return bool(self.undecided(offset, offset))

    def undecided(self, first: int, last: int) -> list[tuple[int, int]]:
        """Return the ranges of records between two offsets that are held and not acknowledged."""
        node = self.node
        return [] if node is None else node.undecided(self.partition, first, last, self.lock)

    def acknowledge_undecided(self, offsets: Sequence[int], type: AcknowledgeType) -> None:
        """Acknowledge records, unless the application has done so."""
        if offsets and (node := self.node) is not None:
            node.acknowledge(self.partition, offsets, type, self.lock, only_undecided=True)

    def report_lost(self, first: int, last: int) -> bool:
        """Report processed records whose lock ended before; return whether there are any."""
        ranges = [(begin, end) for begin, end, _ in self.lock.lost.within(first, last)]
        if ranges and (node := self.node) is not None:
            node.complete(self.partition, PartitionAcknowledgements.lost(ranges, self.lock))
        return bool(ranges)

    def accept(self, offset: int) -> Acknowledgement:
        """Mark a record as processed."""
        return self.acknowledge(offset, AcknowledgeType.ACCEPT)

    def release(self, offset: int) -> Acknowledgement:
        """Have a record delivered again."""
        return self.acknowledge(offset, AcknowledgeType.RELEASE)

    def reject(self, offset: int) -> Acknowledgement:
        """Have a record archived."""
        return self.acknowledge(offset, AcknowledgeType.REJECT)

    def renew(self, offset: int) -> Acknowledgement:
        """Restart the lock of a record."""
        return self.acknowledge(offset, AcknowledgeType.RENEW)

    def acknowledge(self, offset: int, type: AcknowledgeType) -> Acknowledgement:
        """Acknowledge one record.

        Raises:
            AcknowledgementFailed: The record is not held any more.
        """
        node, pending = self.node, None
        if node is not None and node.is_held(self.partition, offset, self.lock):
            pending = node.acknowledge(self.partition, (offset,), type, self.lock)
        if node is None or pending is None:
            raise AcknowledgementFailed(
                "the record is not held: it is acknowledged, its lock has expired, or its share"
                " session has ended",
                topic=self.partition.topic,
                partition=self.partition.partition,
                offset=offset,
            )
        return Acknowledgement(pending, offset, self.lock, node.flush)

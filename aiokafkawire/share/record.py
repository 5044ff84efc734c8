"""A record of a share group, which the application acknowledges."""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Self

from aiokafkawire.errors import AcknowledgementFailed
from aiokafkawire.group.topic_id_partition import TopicIdPartition
from aiokafkawire.records import Record

from .acknowledgements import Acknowledgement, AcknowledgeType, PartitionAcknowledgements
from .locks import AcquisitionLock

if TYPE_CHECKING:
    from .node import ShareNode

__all__ = ("HeldRecords", "ShareRecord")


class HeldRecords:
    """Acquired records of one partition: the broker that leads it, and their lock.

    A record is held while its current lock is the one of its fetch.
    """

    __slots__ = ("delivery_count", "lock", "locks", "node", "partition")

    def __init__(
        self,
        node: ShareNode,
        partition: TopicIdPartition,
        lock: AcquisitionLock,
        delivery_count: int,
    ) -> None:
        self.node = node
        self.partition = partition
        self.lock = lock
        self.delivery_count = delivery_count
        self.locks = node.locks(partition)

    def is_held(self, offset: int) -> bool:
        """Return whether a record is locked, and no acknowledgement of it was sent."""
        return self.node.is_held(self.partition, offset, self.lock)

    def held_after(self, first: int, last: int, time: float) -> list[tuple[int, int]]:
        """Return the ranges of records between two offsets whose locks expire after `time`."""
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
        return self.node.undecided(self.partition, first, last, self.lock)

    def acknowledge_undecided(self, offsets: Sequence[int], type: AcknowledgeType) -> None:
        """Acknowledge records, unless the application has done so."""
        if offsets:
            self.node.acknowledge(self.partition, offsets, type, self.lock, only_undecided=True)

    def report_lost(self, first: int, last: int) -> bool:
        """Report processed records whose lock ended before; return whether there are any."""
        ranges = [(begin, end) for begin, end, _ in self.lock.lost.within(first, last)]
        if ranges:
            self.node.complete(self.partition, PartitionAcknowledgements.lost(ranges, self.lock))
        return bool(ranges)

    def acknowledge(self, offset: int, type: AcknowledgeType) -> Acknowledgement:
        """Acknowledge one record.

        Raises:
            AcknowledgementFailed: The record is not held any more.
        """
        pending = None
        if self.is_held(offset):
            pending = self.node.acknowledge(self.partition, (offset,), type, self.lock)
        if pending is None:
            raise AcknowledgementFailed(
                "the record is not held: it is acknowledged, its lock has expired, or its share"
                " session has ended",
                topic=self.partition.topic,
                partition=self.partition.partition,
                offset=offset,
            )
        return Acknowledgement(pending, offset, self.lock, self.node.flush)


class ShareRecord(Record):
    """A record of a share group. The broker locks it for this consumer until it is acknowledged.

    Acknowledge it with one of `accept`, `release` and `reject`, or use it as a context manager,
    which accepts it, or releases it if the block raises or is cancelled::

        async with record:
            await handle(record.value)

    The methods return at once, and the acknowledgement is sent together with others. Await the
    returned `Acknowledgement` to wait for the broker's response. They raise `AcknowledgementFailed`
    if the record is not held any more. Until an acknowledgement is sent, a later one replaces it:
    do not await both.
    """

    __slots__ = ("_held",)  # set by `make_records`

    _held: HeldRecords

    @property
    def delivery_count(self) -> int:
        """Number of deliveries of the record, this one included."""
        return self._held.delivery_count

    @property
    def lock_expires_at(self) -> float | None:
        """Time of the event loop's clock at which the lock expires; None if it is not held."""
        held = self._held
        return held.lock.expires_at(self.offset) if held.is_held(self.offset) else None

    def accept(self) -> Acknowledgement:
        """Mark the record as processed."""
        return self._held.acknowledge(self.offset, AcknowledgeType.ACCEPT)

    def release(self) -> Acknowledgement:
        """Have the record delivered again, to any member."""
        return self._held.acknowledge(self.offset, AcknowledgeType.RELEASE)

    def reject(self) -> Acknowledgement:
        """Have the record archived: it cannot be processed, and is not delivered again."""
        return self._held.acknowledge(self.offset, AcknowledgeType.REJECT)

    def renew(self) -> Acknowledgement:
        """Restart the lock, to process the record for longer (KIP-1222).

        Raises:
            AcknowledgementFailed: The record is not held any more; or the broker is older than
                Kafka 4.2, and the lock stays as it is.
        """
        return self._held.acknowledge(self.offset, AcknowledgeType.RENEW)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Accept the record, or release it after an exception, unless it is acknowledged."""
        if self._held.is_undecided(self.offset):
            self.accept() if error is None else self.release()

"""Data of a share session that outlives its states: what is wanted, held and acknowledged."""

from __future__ import annotations

from aiokafkawire.group.topic_id_partition import TopicIdPartition
from aiokafkawire.runtime import NEVER

from .acknowledgements import AcknowledgeType, PartitionAcknowledgements
from .locks import AcquisitionLock
from .session_events import AcquiredOffsets, RecordsAcknowledged
from .session_states import SentAcknowledgements

__all__ = ("ACKNOWLEDGE_DELAY_S", "ShareSessionContext")

ACKNOWLEDGE_DELAY_S = 0.1
"""Longest time that acknowledgements wait for a ShareFetch that carries them, or for others."""

PARTITION_BACKOFF_S = 0.5
"""Time without fetches of a partition after an error."""


class ShareSessionContext:
    """Partitions, held records and acknowledgements of the member at one broker.

    Attributes:
        partitions: Assigned partitions that the broker leads.
        wants_records: The application needs records.
        closing: The client is closing.
        urgent: A call waits for acknowledgements.
        acknowledge_at: When `pending` must be sent.
        backing_off: Partitions that are not fetched until a time.
        acquired: Lock of each record that is held, by partition and offset.
        pending: Acknowledgements that are not sent yet.
        expiry_at: When the first lock in `acquired` may expire.
    """

    def __init__(self) -> None:
        self.partitions: frozenset[TopicIdPartition] = frozenset()
        self.wants_records = False
        self.closing = False
        self.urgent = False
        self.acknowledge_at = 0.0
        self.backing_off: dict[TopicIdPartition, float] = {}
        self.acquired: dict[TopicIdPartition, dict[int, AcquisitionLock]] = {}
        self.pending: dict[TopicIdPartition, PartitionAcknowledgements] = {}
        self.expiry_at = NEVER
        self._last_request = 0

    def new_request(self) -> int:
        self._last_request += 1
        return self._last_request

    # --- partitions ---

    def fetchable(self, now: float) -> frozenset[TopicIdPartition]:
        """Return the partitions to fetch."""
        if self.backing_off:
            self.backing_off = {
                partition: until for partition, until in self.backing_off.items() if until > now
            }
        return self.partitions.difference(self.backing_off)

    def back_off(self, partition: TopicIdPartition, now: float) -> None:
        """Do not fetch a partition for a while."""
        self.backing_off[partition] = now + PARTITION_BACKOFF_S

    # --- held records ---

    @property
    def holds_records(self) -> bool:
        return any(self.acquired.values())

    def locks_of(self, partition: TopicIdPartition) -> dict[int, AcquisitionLock]:
        """Return the locks of a partition. The dict stays the same when they change."""
        return self.acquired.setdefault(partition, {})

    def release_all(self) -> None:
        """Hold nothing: the broker releases the records with the session."""
        for locks in self.acquired.values():
            locks.clear()
        self.acquired.clear()
        self.expiry_at = NEVER

    def acquire(
        self,
        partition: TopicIdPartition,
        ranges: tuple[AcquiredOffsets, ...],
        lock: AcquisitionLock,
    ) -> None:
        """Hold records. A record that was held before has another lock now."""
        held = self.locks_of(partition)
        pending = self.pending.get(partition)
        for acquired in ranges:
            offsets = range(acquired.first, acquired.last + 1)
            held.update(dict.fromkeys(offsets, lock))
            self.expiry_at = min(self.expiry_at, lock.expires_at(acquired.first))
            if pending is not None:
                pending.expire(offsets)

    def remove_expired(self, now: float) -> None:
        """Hold no records whose locks have expired, and fail their acknowledgements."""
        if now < self.expiry_at:
            return
        self.expiry_at = NEVER
        for partition, locks in self.acquired.items():
            expired: list[int] = []
            for offset, lock in locks.items():
                expires_at = lock.expires_at(offset)
                if expires_at <= now:
                    expired.append(offset)
                else:
                    self.expiry_at = min(self.expiry_at, expires_at)
            for offset in expired:
                del locks[offset]
            if partition in self.pending:
                self.pending[partition].expire(expired)

    def is_held(
        self, partition: TopicIdPartition, offset: int, lock: AcquisitionLock | None, now: float
    ) -> bool:
        """Return whether a record is held under `lock`, or under any lock without one."""
        held = self.acquired.get(partition, {}).get(offset)
        if held is None or (lock is not None and held is not lock):
            return False
        return now < held.expires_at(offset)

    # --- acknowledgements ---

    def is_undecided(self, partition: TopicIdPartition, offset: int) -> bool:
        """Return whether a held record waits for its acknowledgement; a renewal is none."""
        pending = self.pending.get(partition)
        if pending is None:
            return True
        return pending.types.get(offset, AcknowledgeType.RENEW) == AcknowledgeType.RENEW

    def acknowledge(self, event: RecordsAcknowledged, now: float) -> None:
        """Keep acknowledgements of held records for the next request."""
        held, lock = self.acquired.get(event.partition, {}), event.lock
        offsets = [
            offset
            for offset in event.offsets
            if (found := held.get(offset)) is not None and (lock is None or found is lock)
        ]
        if event.only_undecided and event.partition in self.pending:
            offsets = [offset for offset in offsets if self.is_undecided(event.partition, offset)]
        if not offsets:
            return
        if not self.pending:
            self.acknowledge_at = now + ACKNOWLEDGE_DELAY_S
        if event.partition not in self.pending:
            self.pending[event.partition] = PartitionAcknowledgements()
        self.pending[event.partition].add(offsets, event.type)

    def take_pending(self, now: float) -> SentAcknowledgements:
        """Return the acknowledgements to send. Their records are not held any more.

        The broker refuses all acknowledgements of a partition if one is invalid, so those whose
        lock has expired are left out.
        """
        self.remove_expired(now)
        taken, self.pending = self.pending, {}
        self.urgent = False
        for partition, acknowledgements in taken.items():
            held = self.acquired.get(partition, {})
            for offset, kind in acknowledgements.types.items():
                if kind != AcknowledgeType.RENEW:
                    del held[offset]
        return taken

    def renew(
        self, partition: TopicIdPartition, acknowledgements: PartitionAcknowledgements, until: float
    ) -> None:
        """Restart the locks of renewed records."""
        held = self.acquired.get(partition, {})
        for offset, kind in acknowledgements.types.items():
            if kind == AcknowledgeType.RENEW and offset in held:
                held[offset].renew(offset, until)

    def lose_all(self) -> SentAcknowledgements:
        """Forget all held records; return the acknowledgements that were not sent."""
        lost, self.pending = self.pending, {}
        self.release_all()
        self.urgent = False
        return lost

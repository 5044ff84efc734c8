"""Data of a share session that outlives its states: what is wanted, held and acknowledged."""

from __future__ import annotations

from aiokafkawire.group.topic_id_partition import TopicIdPartition
from aiokafkawire.runtime import NEVER

from .acknowledgements import AcknowledgeType, PartitionAcknowledgements
from .locks import AcquisitionLock
from .offset_ranges import OffsetRanges, consecutive
from .session_events import FetchedPartition, RecordsAcknowledged
from .session_states import SentAcknowledgements

__all__ = ("ACKNOWLEDGE_DELAY_S", "ShareSessionContext")

ACKNOWLEDGE_DELAY_S = 0.1
"""Longest time that acknowledgements wait for a ShareFetch that carries them, or for others."""

PARTITION_BACKOFF_S = 0.5
"""Time without fetches of a partition after an error."""

RENEWAL_BACKOFF_S = 1.0
"""Time without automatic renewals in a partition after the broker has refused one."""


class ShareSessionContext:
    """Partitions, held records and acknowledgements of the member at one broker.

    Attributes:
        partitions: Assigned partitions that the broker leads.
        wants_records: The application needs records.
        closing: The client is closing.
        urgent: A call waits for acknowledgements.
        acknowledge_at: When `pending` must be sent.
        backing_off: Partitions that are not fetched until a time.
        acquired: Locks of the records that are held, by partition.
        pending: Acknowledgements that are not sent yet, but for renewals.
        renewals: Renewals that are not sent yet. They share no request with decisions: the broker
            takes all acknowledgements of a partition or none.
        has_renewed: The last request had renewals.
        expiry_at: When the first lock in `acquired` may expire.
    """

    def __init__(self) -> None:
        self.partitions: frozenset[TopicIdPartition] = frozenset()
        self.wants_records = False
        self.closing = False
        self.urgent = False
        self.acknowledge_at = 0.0
        self.backing_off: dict[TopicIdPartition, float] = {}
        self.acquired: dict[TopicIdPartition, OffsetRanges[AcquisitionLock]] = {}
        self.pending: dict[TopicIdPartition, PartitionAcknowledgements] = {}
        self.renewals: dict[TopicIdPartition, PartitionAcknowledgements] = {}
        self.has_renewed = False
        self.expiry_at = NEVER
        self._no_renewals_before: dict[TopicIdPartition, float] = {}
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

    def locks_of(self, partition: TopicIdPartition) -> OffsetRanges[AcquisitionLock]:
        """Return the locks of a partition. The object stays the same when they change."""
        return self.acquired.setdefault(partition, OffsetRanges())

    def release_all(self) -> None:
        """Hold nothing: the broker releases the records with the session."""
        for locks in self.acquired.values():
            locks.clear()
        self.acquired.clear()
        self.expiry_at = NEVER

    def acquire(self, fetched: FetchedPartition) -> None:
        """Hold records. A record that was held before has another lock now."""
        held, lock = self.locks_of(fetched.partition), fetched.lock
        for first, last, _ in fetched.acquired:
            self._end_locks(fetched.partition, first, last)
            held.set(first, last, lock)
            self.expiry_at = min(self.expiry_at, lock.expires_at(first))

    def _end_locks(self, partition: TopicIdPartition, first: int, last: int) -> None:
        """Hold the records between two offsets no more, and fail their acknowledgements."""
        locks = self.locks_of(partition)
        for begin, end, lock in locks.within(first, last):
            self._note_lost(partition, begin, end, lock)
            for waiting in (self.pending.get(partition), self.renewals.get(partition)):
                if waiting is not None:
                    waiting.expire(begin, end, lock)
        locks.remove(first, last)

    def _note_lost(
        self, partition: TopicIdPartition, first: int, last: int, lock: AcquisitionLock
    ) -> None:
        for begin, end in self.undecided(partition, first, last, lock):
            lock.lost.set(begin, end, True)

    def remove_expired(self, now: float) -> None:
        """Hold no records whose locks have expired, and fail their acknowledgements."""
        if now < self.expiry_at:
            return
        self.expiry_at = NEVER
        for partition, locks in self.acquired.items():
            for begin, end, lock in locks:
                for first, last, expires_at in lock.expiries(begin, end):
                    if expires_at > now:
                        self.expiry_at = min(self.expiry_at, expires_at)
                        continue
                    self._end_locks(partition, first, last)

    def is_held(
        self, partition: TopicIdPartition, offset: int, lock: AcquisitionLock | None, now: float
    ) -> bool:
        """Return whether a record is held under `lock`, or under any lock without one."""
        locks = self.acquired.get(partition)
        held = None if locks is None else locks.get(offset)
        if held is None or (lock is not None and held is not lock):
            return False
        return now < held.expires_at(offset)

    # --- acknowledgements ---

    def undecided(
        self, partition: TopicIdPartition, first: int, last: int, lock: AcquisitionLock | None
    ) -> list[tuple[int, int]]:
        """Return the ranges of records between two offsets that wait for an acknowledgement.

        A renewal is none.
        """
        decided = self.pending.get(partition)
        return self._held(partition, (first, last), lock, decided)

    def _held(
        self,
        partition: TopicIdPartition,
        offsets: tuple[int, int],
        lock: AcquisitionLock | None,
        decided: PartitionAcknowledgements | None,
    ) -> list[tuple[int, int]]:
        """Return the held ranges between two offsets, without those that are decided."""
        locks = self.acquired.get(partition)
        if locks is None:
            return []
        held = [
            (begin, end)
            for begin, end, found in locks.within(*offsets)
            if lock is None or found is lock
        ]
        if decided is None:
            return held
        return [found for begin, end in held for found in decided.absent(begin, end)]

    def acknowledge(self, event: RecordsAcknowledged, now: float) -> None:
        """Keep acknowledgements of held records for the next request."""
        partition = event.partition
        renews = event.type == AcknowledgeType.RENEW
        if renews and event.only_undecided and now < self._no_renewals_before.get(partition, 0.0):
            return
        decided = self.pending.get(partition) if event.only_undecided else None
        ranges = [
            found
            for offsets in consecutive(event.offsets)
            for found in self._held(partition, offsets, event.lock, decided)
        ]
        if not ranges:
            return
        if not renews and not self.pending:
            self.acknowledge_at = now + ACKNOWLEDGE_DELAY_S
        # mutation: renewal-sent-in-fetch
        wanted, other = (self.renewals, self.pending) if renews else (self.pending, self.renewals)
        waiting, replaced = wanted.get(partition), other.get(partition)
        if waiting is None:
            waiting = wanted[partition] = PartitionAcknowledgements()
        for first, last in ranges:
            waiting.types.set(first, last, event.type)
            if replaced is not None:
                replaced.types.remove(first, last)

    def take_renewals(self, now: float) -> SentAcknowledgements:
        """Return the renewals to send."""
        self.remove_expired(now)
        taken, self.renewals = self.renewals, {}
        return taken

    def take_pending(self, now: float) -> SentAcknowledgements:
        """Return the acknowledgements to send. Their records are not held any more.

        The broker refuses all acknowledgements of a partition if one is invalid, so those whose
        lock has expired are left out.
        """
        self.remove_expired(now)
        taken, self.pending = self.pending, {}
        self.urgent = False
        for partition, acknowledgements in taken.items():
            locks = self.locks_of(partition)
            for first, last, _ in acknowledgements.types:
                # mutation: acknowledged-records-stay-held
                locks.remove(first, last)
        return taken

    def renew(
        self, partition: TopicIdPartition, acknowledgements: PartitionAcknowledgements, until: float
    ) -> None:
        """Restart the locks of renewed records."""
        locks = self.locks_of(partition)
        for first, last, kind in acknowledgements.types:
            if kind == AcknowledgeType.RENEW:
                for begin, end, lock in locks.within(first, last):
                    lock.renew(begin, end, until)
                    # The lock duration of the group may have become shorter.
                    self.expiry_at = min(self.expiry_at, until)

    def refuse_renewals(self, partition: TopicIdPartition, now: float) -> None:
        """Renew nothing automatically for a while."""
        self._no_renewals_before[partition] = now + RENEWAL_BACKOFF_S

    def lose_all(self) -> list[tuple[TopicIdPartition, PartitionAcknowledgements]]:
        """Forget all held records; return the acknowledgements that were not sent."""
        for partition, locks in self.acquired.items():
            for first, last, lock in locks:
                self._note_lost(partition, first, last, lock)
        lost = [*self.pending.items(), *self.renewals.items()]
        self.pending, self.renewals = {}, {}
        self._no_renewals_before.clear()
        self.release_all()
        self.urgent = False
        return lost

"""Transaction coordinator: passes events and deadlines to transactions, and writes markers.

All nodes share the state of transactions, so a new coordinator continues where the previous one
stopped.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from aiokafkawire.broker.api_error import ApiError, StorageError
from aiokafkawire.broker.cluster_state import ClusterState
from aiokafkawire.broker.groups.offsets import OffsetStore
from aiokafkawire.broker.options import BrokerConfig
from aiokafkawire.broker.storage import Store
from aiokafkawire.broker.topics import NO_LEADER, Partition
from aiokafkawire.broker.transactions.events import (
    CommitTxnOffsets,
    EpochFenced,
    Event,
    ExpireTransactionalId,
    InitProducerId,
    MarkersWritten,
    TransactionContents,
    TransactionDeadlineReached,
    TransactionResult,
    TransactionState,
)
from aiokafkawire.broker.transactions.transaction_metadata import NO_DEADLINE, TransactionMetadata
from aiokafkawire.broker.transactions.transaction_state_manager import TransactionStateManager
from aiokafkawire.records.batch import iter_batches
from aiokafkawire.records.broker_records import control_batch
from aiokafkawire.runtime import AutoResetEvent, Clock
from aiokafkawire.types import ProducerIdAndEpoch, TopicPartition
from aiokafkawire.wire import ErrorCode

__all__ = ("MAX_TRANSACTIONAL_IDS", "TransactionCoordinator")

logger = logging.getLogger("aiokafkawire.broker")

MAX_TRANSACTIONAL_IDS = 10_000
"""Limit of transactional ids; unused ones that are idle for longest are evicted first."""

STORE_RETRY_S = 1.0
"""Pause after a write to the store failed (no space left)."""

WALL_CLOCK_STEP_S = 0.001
"""Resolution of the wall clock, which counts milliseconds."""


class _WrittenMarker(NamedTuple):
    """A marker that the leader wrote and that may not be replicated yet."""

    partition: Partition
    leader_epoch: int
    end_offset: int

    def is_current(self, leader_replica: Partition) -> bool:
        """Return True if the marker is in the current leader's log."""
        return leader_replica is self.partition and leader_replica.leader_epoch == self.leader_epoch


class TransactionCoordinator:
    """All transactional ids of the cluster."""

    def __init__(
        self,
        options: BrokerConfig,
        clock: Clock,
        cluster: ClusterState,
        offsets: OffsetStore,
        store: Store,
        *,
        bumps_epoch: Callable[[], bool],
        leader_replica: Callable[[Partition], Partition | None] = lambda partition: partition,
    ) -> None:
        """Load transactional ids from `store`.

        Args:
            options: Options of the broker.
            clock: The runtime's clock.
            cluster: Topics and partitions.
            offsets: Committed offsets of groups.
            store: Storage of transactional ids.
            bumps_epoch: Returns True if every end of a transaction bumps the epoch (KIP-890).
            leader_replica: Returns the leader's view of a partition, None without a leader.
        """
        self.coordinator_epoch = 0
        self._options = options
        self._clock = clock
        self._cluster = cluster
        self._offsets = offsets
        self._bumps_epoch = bumps_epoch
        self._leader_replica = leader_replica
        self._transactions = TransactionStateManager(store, cluster.producer_ids.generate)
        self._prepared: dict[str, None] = {}
        self._by_group: dict[str, dict[str, None]] = {}
        self._written_markers: dict[tuple[str, TopicPartition], _WrittenMarker] = {}
        self._next_wakeup = NO_DEADLINE
        self._wakeup = AutoResetEvent()
        self._committed_offsets: set[tuple[str, str]] = set()
        self._retry_at = -NO_DEADLINE
        for transaction in self:
            self._index(transaction)

    def __iter__(self) -> Iterator[TransactionMetadata]:
        return iter(self._transactions)

    def get(self, transactional_id: str) -> TransactionMetadata | None:
        """Return the state of a transactional id, None if unknown or expired."""
        transaction = self._transactions.get(transactional_id)
        expiration_ms = self._options.transactional_id_expiration_ms
        if transaction is None or self._clock.wall_ms() < transaction.updated_ms + expiration_ms:
            return transaction
        return None if self._try_expire(transaction) else transaction

    def list_all(self) -> Iterator[TransactionMetadata]:
        """Yield the transactional ids that have not expired."""
        return (
            transaction
            for transaction in self
            if self.get(transaction.transactional_id) is not None
        )

    def _try_expire(self, transaction: TransactionMetadata) -> bool:
        """Delete a transactional id unless it is in use; return True if it was deleted."""
        self._handle(transaction, ExpireTransactionalId())
        if transaction.state is not TransactionState.DEAD:
            return False
        self._unindex(transaction, tuple(transaction.offsets))
        self._transactions.remove(transaction)
        return True

    # --- requests ----------------------------------------------------------------------------

    def init(
        self,
        transactional_id: str,
        timeout_ms: int,
        expected: ProducerIdAndEpoch | None = None,
    ) -> TransactionResult:
        """Handle InitProducerId."""
        if not 0 < timeout_ms <= self._options.transaction_max_timeout_ms:
            return TransactionResult(ErrorCode.INVALID_TRANSACTION_TIMEOUT)
        transaction = self.get(transactional_id)
        if transaction is None:
            try:
                self._evict_idle_id()
            except ApiError as error:
                return TransactionResult(error.code)
            transaction = self._transactions.create(transactional_id)
        return self._handle(transaction, InitProducerId(timeout_ms=timeout_ms, expected=expected))

    def handle(self, transactional_id: str, event: Event) -> TransactionResult:
        """Handle an event of a transactional id that must exist."""
        if not transactional_id:
            return TransactionResult(ErrorCode.INVALID_REQUEST)
        transaction = self.get(transactional_id)
        if transaction is None:
            return TransactionResult(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
        return self._handle(transaction, event)

    def unstable_partitions(self, group: str) -> frozenset[TopicPartition]:
        """Return the partitions for which a group has offsets in an open transaction."""
        transactions = (self._transactions[name] for name in self._by_group.get(group, {}))
        return frozenset(
            tp for transaction in transactions for tp in transaction.offsets.get(group, {})
        )

    def delete_offsets(
        self, group: str, partitions: Iterable[TopicPartition] | None = None
    ) -> None:
        """Drop pending offsets of a deleted group, or of some of its partitions.

        Raises:
            StorageError: A transaction keeps its offsets.
        """
        for name in list(self._by_group.get(group, {})):
            transaction = self._transactions[name]
            pending = transaction.offsets[group]
            for tp in list(pending if partitions is None else partitions):
                pending.pop(tp, None)
            try:
                self._transactions.append(transaction)
            except StorageError:
                self._transactions.restore(transaction)
                raise

    # --- what follows ------------------------------------------------------------------------

    def on_coordinator_changed(self) -> None:
        """Bump the coordinator epoch of later markers."""
        self.coordinator_epoch += 1

    async def run(self) -> None:
        """Abort expired transactions and write markers until the broker closes."""
        while True:
            self._next_wakeup = self._next_deadline(self.tick())
            await self._wakeup.wait(self._next_wakeup)

    def tick(self) -> int:
        """Handle passed deadlines; return the time up to which markers were written."""
        now_ms = self._clock.wall_ms()
        for transaction in self:
            if (
                transaction.next_deadline_ms() <= now_ms
                and not self._handle(transaction, TransactionDeadlineReached()).code
            ):
                logger.info(
                    "transaction %s: aborted after its timeout", transaction.transactional_id
                )
        now_ms = self._clock.wall_ms()
        for transactional_id in list(self._prepared):
            self._complete_transaction(self._transactions[transactional_id], now_ms)
        return now_ms

    def _handle(self, transaction: TransactionMetadata, event: Event) -> TransactionResult:
        before = transaction.state
        try:
            result = self._store_event(transaction, event)
        except StorageError as error:
            self._transactions.restore(transaction)
            self._retry_later()
            return TransactionResult(error.code)
        if transaction.state is not before:
            logger.debug(
                "transaction %s: %s, %s",
                transaction.transactional_id,
                transaction.state.value,
                transaction.producer,
            )
        self._index(transaction)
        now_ms = self._clock.wall_ms()
        if transaction.is_ending and before is not transaction.state:
            self._complete_transaction(transaction, now_ms)
        if self._deadline_of(transaction, now_ms) < self._next_wakeup - WALL_CLOCK_STEP_S:
            self._wakeup.set()
        return result

    def _store_event(self, transaction: TransactionMetadata, event: Event) -> TransactionResult:
        """Apply an event and store what it changed. Raises `StorageError`."""
        before, size = transaction.state, _size(transaction)
        result = transaction.handle(event, self._clock.wall_ms())
        if transaction.state is TransactionState.PREPARE_EPOCH_FENCE:
            transaction.handle(EpochFenced(bumps_epoch=self._bumps_epoch()), self._clock.wall_ms())
        if (
            transaction.state is not before
            or _size(transaction) != size
            or isinstance(event, InitProducerId | CommitTxnOffsets)
        ):
            self._transactions.append(transaction)
        return result

    def _retry_later(self) -> None:
        """Retry after the store may have space again."""
        self._retry_at = self._clock.now() + STORE_RETRY_S

    def _index(self, transaction: TransactionMetadata) -> None:
        name = transaction.transactional_id
        if transaction.is_ending:
            self._prepared[name] = None
        else:
            self._prepared.pop(name, None)
        for group in transaction.offsets:
            self._by_group.setdefault(group, {})[name] = None

    def _next_deadline(self, now_ms: int) -> float:
        deadlines = (self._deadline_of(transaction, now_ms) for transaction in self)
        return min(deadlines, default=NO_DEADLINE)

    def _deadline_of(self, transaction: TransactionMetadata, now_ms: int) -> float:
        """Return the next deadline on the monotonic clock.

        Args:
            transaction: A transaction.
            now_ms: The time given to `_complete_transaction`, which has not written markers that
                became due since then.
        """
        due_ms = transaction.next_deadline_ms()
        if transaction.is_ending:
            due_ms = self._markers_due_ms(transaction)
            if due_ms <= now_ms:
                # A leader or replicas are missing: a change of the partition wakes the coordinator.
                return self._retry_at if self._retry_at > self._clock.now() else NO_DEADLINE
        if due_ms == NO_DEADLINE:
            return NO_DEADLINE
        return max(self._clock.now() + (due_ms - now_ms) / 1000, self._retry_at)

    def _evict_idle_id(self) -> None:
        if len(self._transactions) < MAX_TRANSACTIONAL_IDS:
            return
        for transaction in sorted(self, key=lambda each: each.updated_ms):
            if self._try_expire(transaction):
                return
        raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "there are too many transactional ids")

    # --- markers -----------------------------------------------------------------------------

    def _markers_due_ms(self, transaction: TransactionMetadata) -> int:
        return transaction.updated_ms + self._options.transaction_marker_delay_ms

    def _complete_transaction(self, transaction: TransactionMetadata, now_ms: int) -> None:
        """Write the markers that are due and can be written."""
        if self._markers_due_ms(transaction) > now_ms:
            return
        commit = transaction.state is TransactionState.PREPARE_COMMIT
        written = [
            tp for tp in transaction.partitions if self._write_marker(transaction, tp, commit)
        ]
        groups = tuple(
            group
            for group in transaction.groups
            if self._commit_offsets(transaction, group, commit)
        )
        scope = TransactionContents(tuple(written), groups)
        if (transaction.partitions or transaction.groups) and not written and not groups:
            return
        name = transaction.transactional_id
        try:
            transaction.handle(MarkersWritten(scope=scope), transaction.updated_ms)
            self._transactions.append(transaction)
        except StorageError:
            # The markers stay in `_written_markers`, so that they are not written twice.
            self._transactions.restore(transaction)
            self._retry_later()
            return
        for tp in written:
            self._written_markers.pop((name, tp), None)
        self._committed_offsets.difference_update((name, group) for group in groups)
        self._unindex(transaction, groups)
        self._index(transaction)

    def _write_marker(
        self, transaction: TransactionMetadata, tp: TopicPartition, commit: bool
    ) -> bool:
        """Write the marker of a partition; return True once it is replicated."""
        try:
            partition = self._cluster.partition(self._cluster.topic(tp.topic), tp.partition)
        except ApiError:
            # The topic was deleted, so it needs no marker.
            return True
        leader_replica = None if partition.leader == NO_LEADER else self._leader_replica(partition)
        partition.on_change.add(self._wakeup.set)
        if leader_replica is None or not self._replicate_marker(
            transaction, tp, leader_replica, commit
        ):
            return False
        self._unwatch(transaction, tp, partition)
        return True

    def _replicate_marker(
        self,
        transaction: TransactionMetadata,
        tp: TopicPartition,
        leader_replica: Partition,
        commit: bool,
    ) -> bool:
        """Write a marker to the leader's log unless done; return True once it is replicated."""
        key = transaction.transactional_id, tp
        written_marker = self._written_markers.get(key)
        if written_marker is None or not written_marker.is_current(leader_replica):
            if written_marker is not None:
                written_marker.partition.on_change.remove(self._wakeup.set)
                del self._written_markers[key]
            leader_replica.on_change.add(self._wakeup.set)
            topic, leader = self._cluster.topic(tp.topic), leader_replica.leader
            wanted = int(self._cluster.topic_config(topic, "min.insync.replicas", leader))
            if len(leader_replica.isr) < min(wanted, len(leader_replica.replicas)):
                return False
            try:
                self._append_marker(transaction, leader_replica, commit)
            except StorageError:
                self._retry_later()
                return False
            written_marker = _WrittenMarker(
                leader_replica, leader_replica.leader_epoch, leader_replica.log.end_offset
            )
            self._written_markers[key] = written_marker
        if leader_replica.high_watermark < written_marker.end_offset:
            return False
        self._unwatch(transaction, tp, leader_replica)
        return True

    def _unwatch(
        self, transaction: TransactionMetadata, tp: TopicPartition, partition: Partition
    ) -> None:
        """Stop watching a partition, unless another transaction waits for it."""
        ending = (self._transactions[name] for name in self._prepared)
        if not any(tp in other.partitions for other in ending if other is not transaction):
            partition.on_change.remove(self._wakeup.set)

    def _append_marker(
        self, transaction: TransactionMetadata, partition: Partition, commit: bool
    ) -> None:
        marker = control_batch(
            transaction.producer.producer_id,
            transaction.producer.epoch,
            commit=commit,
            coordinator_epoch=self.coordinator_epoch,
            timestamp_ms=self._clock.wall_ms(),
            base_offset=partition.log.end_offset,
            leader_epoch=partition.leader_epoch,
        )
        (view,) = iter_batches(marker)
        partition.log.append(marker, view)
        partition.on_append()

    def _commit_offsets(self, transaction: TransactionMetadata, group: str, commit: bool) -> bool:
        """Commit the offsets of a group; return False if they cannot be stored now."""
        key = transaction.transactional_id, group
        if not commit or key in self._committed_offsets:
            return True
        offsets = {
            tp: entry
            for tp, entry in transaction.offsets.get(group, {}).items()
            if tp.topic in self._cluster.topics
        }
        try:
            self._offsets.commit(group, offsets)
        except StorageError:
            self._retry_later()
            return False
        except ApiError as error:
            logger.error("group %s: committing offsets failed: %s", group, error)
        # A retry must not overwrite offsets that were committed meanwhile.
        self._committed_offsets.add(key)
        return True

    def _unindex(self, transaction: TransactionMetadata, groups: tuple[str, ...]) -> None:
        for group in groups:
            names = self._by_group.get(group, {})
            names.pop(transaction.transactional_id, None)
            if not names:
                self._by_group.pop(group, None)


def _size(transaction: TransactionMetadata) -> int:
    return len(transaction.partitions) + len(transaction.groups)

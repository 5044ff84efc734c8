"""Drives the transactions: gives them events and the time, and writes their markers.

All nodes share what is known of transactions, so when a coordinator dies the next one goes on where
it stopped.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

from aiokafkawire.broker.api_error import ApiError, StorageError
from aiokafkawire.broker.cluster_state import NO_LEADER, ClusterState, Partition
from aiokafkawire.broker.groups.offsets import OffsetStore
from aiokafkawire.broker.options import BrokerConfig
from aiokafkawire.broker.storage import Store
from aiokafkawire.broker.transactions.events import (
    Answer,
    CommitOffsets,
    Event,
    Expire,
    Fenced,
    Init,
    MarkersWritten,
    Scope,
    Tick,
    TransactionState,
)
from aiokafkawire.broker.transactions.machine import NO_DEADLINE, Transaction
from aiokafkawire.broker.transactions.saving import loaded, restore, saved
from aiokafkawire.records.batch import iter_batches
from aiokafkawire.records.server import control_batch
from aiokafkawire.runtime import Clock, Signal
from aiokafkawire.types import ProducerIdAndEpoch, TopicPartition
from aiokafkawire.wire import ErrorCode

__all__ = ("MAX_TRANSACTIONAL_IDS", "Transactions")

logger = logging.getLogger("aiokafkawire.broker")

MAX_TRANSACTIONAL_IDS = 10_000
"""Transactional ids known at once; of those not in use the one idle for longest goes first."""

STORE_RETRY_S = 1.0
"""Pause after the store refused to write (no space left)."""

WALL_CLOCK_STEP_S = 0.001
"""The clock that transactions go by counts milliseconds."""


class _Sent(NamedTuple):
    """A marker that a leader wrote, and that others may not have yet."""

    partition: Partition
    leader_epoch: int
    end_offset: int

    def stands(self, leading: Partition) -> bool:
        """Whether it is in the log of who leads now."""
        return leading is self.partition and leading.leader_epoch == self.leader_epoch


class Transactions:
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
        leading: Callable[[Partition], Partition | None] = lambda partition: partition,
    ) -> None:
        """Load what `store` holds. `bumps_epoch`: whether every end gives a new epoch now.

        `leading` gives a partition as its leader has it, None while there is none.
        """
        self.coordinator_epoch = 0
        self._options = options
        self._clock = clock
        self._cluster = cluster
        self._offsets = offsets
        self._store = store
        self._bumps_epoch = bumps_epoch
        self._expiration_ms = options.transactional_id_expiration_ms
        self._leading = leading
        self._known: dict[str, Transaction] = {}
        self._ending: dict[str, None] = {}
        self._with_offsets: dict[str, dict[str, None]] = {}
        self._sent: dict[tuple[str, TopicPartition], _Sent] = {}
        self._armed = NO_DEADLINE
        self._rearm = Signal()
        self._stored: dict[str, dict[str, Any]] = {}
        self._committed: set[tuple[str, str]] = set()
        self._retry_at = -NO_DEADLINE
        for line in store.load_transactions():
            transaction = loaded(line, cluster.new_producer_id)
            self._known[transaction.transactional_id] = transaction
            self._stored[transaction.transactional_id] = line
        for transaction in self:
            if transaction.state is TransactionState.DEAD:
                del self._known[transaction.transactional_id]
                del self._stored[transaction.transactional_id]
            else:
                self._index_batch(transaction)

    def __iter__(self) -> Iterator[Transaction]:
        return iter(list(self._known.values()))

    def get(self, transactional_id: str) -> Transaction | None:
        """What is known of an id; it is forgotten when nobody used it for long."""
        found = self._known.get(transactional_id)
        if found is None or self._clock.wall_ms() < found.updated_ms + self._expiration_ms:
            return found
        return None if self._expire(found) else found

    def listed(self) -> Iterator[Transaction]:
        """Those that are known and did not expire."""
        return (found for name in list(self._known) if (found := self.get(name)) is not None)

    def _expire(self, transaction: Transaction) -> bool:
        """Forget an id unless it is in use."""
        self._handle(transaction, Expire())
        if transaction.state is not TransactionState.DEAD:
            return False
        self._unindex(transaction, tuple(transaction.offsets))
        del self._known[transaction.transactional_id]
        return True

    # --- requests ----------------------------------------------------------------------------

    def init(
        self,
        transactional_id: str,
        timeout_ms: int,
        expected: ProducerIdAndEpoch | None = None,
    ) -> Answer:
        """Make somebody the producer of an id."""
        if not 0 < timeout_ms <= self._options.transaction_max_timeout_ms:
            return Answer(ErrorCode.INVALID_TRANSACTION_TIMEOUT)
        transaction = self.get(transactional_id)
        if transaction is None:
            try:
                self._make_room()
            except ApiError as error:
                return Answer(error.code)
            transaction = Transaction(transactional_id, self._cluster.new_producer_id)
            self._known[transactional_id] = transaction
        return self._handle(transaction, Init(timeout_ms=timeout_ms, expected=expected))

    def handle(self, transactional_id: str, event: Event) -> Answer:
        """Carry out a request about an id that must be known."""
        if not transactional_id:
            return Answer(ErrorCode.INVALID_REQUEST)
        transaction = self.get(transactional_id)
        if transaction is None:
            return Answer(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
        return self._handle(transaction, event)

    def unstable(self, group: str) -> frozenset[TopicPartition]:
        """The partitions for which a group has offsets in a transaction that is not over."""
        known = (self._known[name] for name in self._with_offsets.get(group, {}))
        return frozenset(tp for transaction in known for tp in transaction.offsets.get(group, {}))

    def forget_offsets(
        self, group: str, partitions: Iterable[TopicPartition] | None = None
    ) -> None:
        """Drop what is to be committed for partitions of a group (None: all): it was deleted.

        Raises:
            StorageError: A transaction keeps its offsets.
        """
        for name in list(self._with_offsets.get(group, {})):
            transaction = self._known[name]
            pending = transaction.offsets[group]
            for tp in list(pending if partitions is None else partitions):
                pending.pop(tp, None)
            try:
                self._keep(transaction)
            except StorageError:
                self._restore(transaction)
                raise

    # --- what follows ------------------------------------------------------------------------

    def moved(self) -> None:
        """Other nodes coordinate now; their markers bear a higher epoch."""
        self.coordinator_epoch += 1

    async def run(self) -> None:
        """Abort what has had its time and write markers, for as long as the broker lives."""
        while True:
            self.tick()
            self._armed = self._next_deadline()
            await self._rearm.wait(self._armed)

    def tick(self) -> None:
        """See what is due."""
        now_ms = self._clock.wall_ms()
        for transaction in self:
            if (
                transaction.next_deadline_ms() <= now_ms
                and not self._handle(transaction, Tick()).code
            ):
                logger.info("transaction %s: aborted, it timed out", transaction.transactional_id)
        for transactional_id in list(self._ending):
            self._end(self._known[transactional_id])

    def _handle(self, transaction: Transaction, event: Event) -> Answer:
        before = transaction.state
        try:
            answer = self._store_event(transaction, event)
        except StorageError as error:
            self._restore(transaction)
            self._retry_later()
            return Answer(error.code)
        if transaction.state is not before:
            logger.debug(
                "transaction %s: %s, %s",
                transaction.transactional_id,
                transaction.state.value,
                transaction.producer,
            )
        self._index_batch(transaction)
        if transaction.is_ending and before is not transaction.state:
            self._end(transaction)
        if self._deadline_of(transaction) < self._armed - WALL_CLOCK_STEP_S:
            self._rearm.set()
        return answer

    def _store_event(self, transaction: Transaction, event: Event) -> Answer:
        """Carry out an event and store what it changed. Raises `StorageError`."""
        before, size = transaction.state, _size(transaction)
        answer = transaction.handle(event, self._clock.wall_ms())
        if transaction.state is TransactionState.PREPARE_EPOCH_FENCE:
            transaction.handle(Fenced(bumps_epoch=self._bumps_epoch()), self._clock.wall_ms())
        if (
            transaction.state is not before
            or _size(transaction) != size
            or isinstance(event, Init | CommitOffsets)
        ):
            self._keep(transaction)
        return answer

    def _restore(self, transaction: Transaction) -> None:
        """Bring a transaction back to what is stored of it."""
        line = self._stored.get(transaction.transactional_id)
        if line is None:
            self._known.pop(transaction.transactional_id, None)
        else:
            restore(transaction, line)

    def _retry_later(self) -> None:
        """Do what is due again when the store may have room."""
        self._retry_at = self._clock.now() + STORE_RETRY_S

    def _index_batch(self, transaction: Transaction) -> None:
        name = transaction.transactional_id
        if transaction.is_ending:
            self._ending[name] = None
        else:
            self._ending.pop(name, None)
        for group in transaction.offsets:
            self._with_offsets.setdefault(group, {})[name] = None

    def _next_deadline(self) -> float:
        return min((self._deadline_of(transaction) for transaction in self), default=NO_DEADLINE)

    def _deadline_of(self, transaction: Transaction) -> float:
        """When something is due, on the clock that tasks wait by."""
        due_ms = transaction.next_deadline_ms()
        if transaction.is_ending:
            due_ms = self._markers_due_ms(transaction)
            if due_ms <= self._clock.wall_ms():
                # What is missing is a leader, or replicas: a change of the partition says so.
                return self._retry_at if self._retry_at > self._clock.now() else NO_DEADLINE
        if due_ms == NO_DEADLINE:
            return NO_DEADLINE
        return max(self._clock.now() + (due_ms - self._clock.wall_ms()) / 1000, self._retry_at)

    def _keep(self, transaction: Transaction) -> None:
        """Store a transaction. Raises `StorageError`; the caller then restores it."""
        name = transaction.transactional_id
        lines: list[dict[str, Any]] = []

        def stored() -> list[dict[str, Any]]:
            lines.append(saved(transaction))
            return lines

        try:
            stale = self._store.append_transactions(stored, len(self._known))
        except StorageError as error:
            # Kafka's answer where the partition of __transaction_state cannot be written.
            raise StorageError(ErrorCode.NOT_COORDINATOR, error.message) from error
        if transaction.state is TransactionState.DEAD:
            self._stored.pop(name, None)
        elif lines:
            (self._stored[name],) = lines
        if stale:
            self._store.rewrite_transactions(list(self._stored.values()))

    def _make_room(self) -> None:
        if len(self._known) < MAX_TRANSACTIONAL_IDS:
            return
        for transaction in sorted(self, key=lambda each: each.updated_ms):
            if self._expire(transaction):
                return
        raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "there are too many transactional ids")

    # --- markers -----------------------------------------------------------------------------

    def _markers_due_ms(self, transaction: Transaction) -> int:
        return transaction.updated_ms + self._options.transaction_marker_delay_ms

    def _end(self, transaction: Transaction) -> None:
        """Write the markers that can be written."""
        if self._markers_due_ms(transaction) > self._clock.wall_ms():
            return
        commit = transaction.state is TransactionState.PREPARE_COMMIT
        written = [tp for tp in transaction.partitions if self._mark(transaction, tp, commit)]
        groups = tuple(
            group for group in transaction.groups if self._end_offsets(transaction, group, commit)
        )
        scope = Scope(tuple(written), groups)
        if (transaction.partitions or transaction.groups) and not written and not groups:
            return
        name = transaction.transactional_id
        try:
            transaction.handle(MarkersWritten(scope=scope), transaction.updated_ms)
            self._keep(transaction)
        except StorageError:
            # The markers stay in `_sent`, so that they are not written twice.
            self._restore(transaction)
            self._retry_later()
            return
        for tp in written:
            self._sent.pop((name, tp), None)
        self._committed.difference_update((name, group) for group in groups)
        self._unindex(transaction, groups)
        self._index_batch(transaction)

    def _mark(self, transaction: Transaction, tp: TopicPartition, commit: bool) -> bool:
        """Write the marker of one partition; False until a leader and all in sync have it."""
        try:
            partition = self._cluster.partition(self._cluster.topic(tp.topic), tp.partition)
        except ApiError:
            # The topic was deleted: there is nothing left to end.
            return True
        leading = None if partition.leader == NO_LEADER else self._leading(partition)
        partition.on_change.add(self._rearm.set)
        if leading is None or not self._replicated(transaction, tp, leading, commit):
            return False
        self._unwatch(transaction, tp, partition)
        return True

    def _replicated(
        self, transaction: Transaction, tp: TopicPartition, leading: Partition, commit: bool
    ) -> bool:
        """Have a leader write a marker, unless it did, and see whether all in sync have it."""
        key = transaction.transactional_id, tp
        sent = self._sent.get(key)
        if sent is None or not sent.stands(leading):
            if sent is not None:
                sent.partition.on_change.remove(self._rearm.set)
                del self._sent[key]
            leading.on_change.add(self._rearm.set)
            default = self._options.min_insync_replicas
            wanted = self._cluster.topic(tp.topic).int_config("min.insync.replicas", default)
            if len(leading.isr) < min(wanted, len(leading.replicas)):
                return False
            try:
                self._append(transaction, leading, commit)
            except StorageError:
                self._retry_later()
                return False
            sent = _Sent(leading, leading.leader_epoch, leading.log.end_offset)
            self._sent[key] = sent
        if leading.high_watermark < sent.end_offset:
            return False
        self._unwatch(transaction, tp, leading)
        return True

    def _unwatch(self, transaction: Transaction, tp: TopicPartition, partition: Partition) -> None:
        """Wait no more for a partition, unless another transaction that ends does."""
        ending = (self._known[name] for name in self._ending)
        if not any(tp in other.partitions for other in ending if other is not transaction):
            partition.on_change.remove(self._rearm.set)

    def _append(self, transaction: Transaction, partition: Partition, commit: bool) -> None:
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

    def _end_offsets(self, transaction: Transaction, group: str, commit: bool) -> bool:
        """Commit the offsets of a group; False if they cannot be stored now."""
        key = transaction.transactional_id, group
        if not commit or key in self._committed:
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
            logger.error("group %s: its offsets are not kept: %s", group, error)
        # A retry must not go over what is committed meanwhile.
        self._committed.add(key)
        return True

    def _unindex(self, transaction: Transaction, groups: tuple[str, ...]) -> None:
        for group in groups:
            names = self._with_offsets.get(group, {})
            names.pop(transaction.transactional_id, None)
            if not names:
                self._with_offsets.pop(group, None)


def _size(transaction: Transaction) -> int:
    return len(transaction.partitions) + len(transaction.groups)

"""The replicas of one node, and what the controller told it. Decides; never waits."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol
from uuid import UUID

from aiokafkawire.broker.api_error import ApiError
from aiokafkawire.broker.callbacks import Callbacks
from aiokafkawire.broker.cluster_state import MAX_TOTAL_PARTITIONS
from aiokafkawire.broker.log import PartitionLog
from aiokafkawire.broker.options import MAX_NODES, BrokerConfig
from aiokafkawire.broker.replication.messages import (
    Assignment,
    Key,
    LeadOrder,
    MetadataOrder,
    Order,
    StopOrder,
)
from aiokafkawire.broker.replication.metadata_cache import MetadataCache
from aiokafkawire.broker.replication.replica import (
    BecomeFollower,
    BecomeLeader,
    Event,
    Fetched,
    IsrRecorded,
    Leading,
    Offline,
    Replica,
    Stop,
    TimePassed,
)
from aiokafkawire.broker.storage import Store
from aiokafkawire.runtime import Address
from aiokafkawire.wire import ErrorCode

__all__ = ("Habits", "Records", "ReplicaManager")


class Records(Protocol):
    """What nodes read in ZooKeeper, and where a leader puts down who is in sync."""

    def record_isr(self, key: Key, leader: int, leader_epoch: int, isr: tuple[int, ...]) -> bool:
        """Put it down; False when the partition has another leader or epoch by now."""
        ...

    def max_batch(self, topic: str) -> int:
        """The largest batch that a topic may hold, in bytes."""
        ...

    def topic_id(self, topic: str) -> UUID:
        """Which topic has that name now; `ZERO_UUID` if none has."""
        ...

    def min_in_sync(self, topic: str) -> int:
        """How many replicas have to be in sync for a write with acks=all."""
        ...


@dataclass(frozen=True, slots=True)
class _Kept:
    """What a crash leaves of a replica."""

    log: PartitionLog
    watermark: int
    topic_id: UUID


@dataclass(frozen=True, slots=True)
class Habits:
    """What the releases of a cluster have its replicas do.

    `by_epoch` and `on_fetch`: how followers cut their logs off. `strict`: high watermarks wait
    until enough replicas are in sync.
    """

    by_epoch: bool = True
    on_fetch: bool = False
    strict: bool = False


class ReplicaManager:
    """Everything that a node has and knows for itself.

    Logs outlive a crash, and high watermarks as they were at the last checkpoint; what the node was
    told does not. `on_leader` hears of every node that there is something to fetch from, `written`
    of everything that is written.
    """

    def __init__(self, node_id: int, options: BrokerConfig, store: Store, records: Records) -> None:
        self.node_id = node_id
        self.habits = Habits()
        self.controller_epoch = 0
        self.metadata = MetadataCache()
        self.replicas: dict[Key, Replica] = {}
        self.endpoints: dict[int, Address] = {}
        self.on_leader: Callable[[int], None] | None = None
        self.on_change = Callbacks()
        self.written = Callbacks()
        self._options = options
        self._store = store
        self._records = records
        self._kept: dict[Key, _Kept] = {}
        self._checkpoint: dict[Key, int] = {}
        self._topic_ids: dict[Key, UUID] = {}

    # --- what the controller says ------------------------------------------------------------

    def lead_and_follow(self, order: LeadOrder, now: float) -> dict[Key, ErrorCode]:
        """LeaderAndIsr. Raises `ApiError` for the order of a controller of before."""
        self._check(order)
        for node_id, address in order.leaders.items():
            if node_id in self.endpoints or len(self.endpoints) < MAX_NODES:
                self.endpoints[node_id] = address
        errors = {key: self._become(key, told, now) for key, told in order.partitions.items()}
        for leader in dict.fromkeys(told.leader for told in order.partitions.values() if told.led):
            elsewhere = leader != self.node_id and leader in self.endpoints
            if elsewhere and self.on_leader is not None:
                self.on_leader(leader)
        self.on_change.notify()
        return errors

    def stop(self, order: StopOrder, now: float) -> dict[Key, ErrorCode]:
        """StopReplica; partitions that are not here are deleted with success. Raises `ApiError`."""
        self._check(order)
        for key, delete in order.partitions.items():
            replica = self.replicas.get(key)
            if replica is not None:
                self._tell(replica, Stop(), now)
            if delete:
                self._delete(key)
        self.on_change.notify()
        return dict.fromkeys(order.partitions, ErrorCode.NONE)

    def update_metadata(self, order: MetadataOrder) -> None:
        """UpdateMetadata. Raises `ApiError` for a controller of before."""
        self._check(order)
        self.metadata.update(order)

    def _check(self, order: Order) -> None:
        if order.controller_epoch < self.controller_epoch:
            raise ApiError(ErrorCode.STALE_CONTROLLER_EPOCH)
        self.controller_epoch = order.controller_epoch

    def _become(self, key: Key, told: Assignment, now: float) -> ErrorCode:
        known = self.replicas.get(key)
        if known is not None and told.leader_epoch <= known.leader_epoch:
            return ErrorCode.STALE_CONTROLLER_EPOCH
        if self.node_id not in told.replicas:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if known is None and len(self.replicas) >= MAX_TOTAL_PARTITIONS:
            return ErrorCode.POLICY_VIOLATION
        replica = known or self._make(key)
        leads = told.leader == self.node_id
        self._tell(replica, BecomeLeader(told) if leads else BecomeFollower(told), now)
        return ErrorCode.NONE

    def _make(self, key: Key) -> Replica:
        topic, index = key
        self._topic_ids[key] = topic_id = self._records.topic_id(topic)
        kept = self._kept.pop(key, None)
        if kept is not None and kept.topic_id != topic_id:
            # The topic was deleted and made anew while the node was down.
            kept.log.delete()
            kept = None
        if kept is None:
            log, watermark = PartitionLog(f"{topic}-{index}", self._store, self._options), 0
        else:
            log, watermark = kept.log, kept.watermark
        self.replicas[key] = replica = Replica(
            topic,
            index,
            [],
            log,
            leader_epoch=-1,
            node_id=self.node_id,
            by_epoch=self.habits.by_epoch,
            on_fetch=self.habits.on_fetch,
            watermark=watermark,
            min_in_sync=self._records.min_in_sync(topic) if self.habits.strict else 0,
        )
        replica.on_change.add(self.written.notify)
        return replica

    def _delete(self, key: Key) -> None:
        self._checkpoint.pop(key, None)
        kept = self._kept.pop(key, None)
        if kept is not None:
            kept.log.delete()
        replica = self.replicas.pop(key, None)
        if replica is not None:
            replica.deleted = True
            replica.log.delete()
            replica.on_change.notify()

    # --- what happens to replicas ------------------------------------------------------------

    def replica(self, topic: str, index: int) -> Replica:
        """A replica. Raises `ApiError` when the node has none."""
        found = self.replicas.get((topic, index))
        if found is None:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return found

    def fetched(self, replica: Replica, follower: int, offset: int, now: float) -> None:
        """A follower has all that comes before an offset. Ignored where the node does not lead."""
        if replica.takes(Fetched):
            self._tell(replica, Fetched(follower, offset), now)

    def tick(self, now: float) -> None:
        """Take followers that are too slow out of the ISR."""
        event = TimePassed(self._options.replica_lag_time_max_ms / 1000)
        for replica in self.replicas.values():
            if replica.takes(TimePassed):
                self._tell(replica, event, now)

    def following(self, leader: int) -> Iterator[Replica]:
        """The replicas that follow a node."""
        return (
            replica
            for replica in self.replicas.values()
            if replica.leader == leader and not isinstance(replica.state, Leading | Offline)
        )

    def topic_id(self, topic: str, index: int) -> UUID:
        """The topic of a replica; `ZERO_UUID` if that is not known."""
        return self._topic_ids[topic, index]

    def max_batch(self, replica: Replica) -> int:
        """The largest batch that a partition may hold, in bytes."""
        return self._records.max_batch(replica.topic)

    def _tell(self, replica: Replica, event: Event, now: float) -> None:
        wanted = replica.handle(event, now)
        if wanted is None:
            return
        key = replica.topic, replica.index
        if self._records.record_isr(key, self.node_id, replica.leader_epoch, wanted):
            replica.handle(IsrRecorded(wanted), now)

    # --- life --------------------------------------------------------------------------------

    def flush(self) -> None:
        """Sync all logs."""
        for replica in self.replicas.values():
            replica.log.flush()

    def checkpoint(self) -> None:
        """Put the high watermarks down where they outlive the process."""
        for key, replica in self.replicas.items():
            self._checkpoint[key] = replica.watermark

    def crash(self, *, lose_unsynced: bool = False) -> None:
        """Forget what a process forgets; the logs stay, or only what was synced of them."""
        for key, replica in self.replicas.items():
            log = replica.log
            if lose_unsynced:
                log.lose_unsynced()
            # The next start looks through the log, and syncs what it finds.
            log.flush()
            watermark = min(self._checkpoint.get(key, 0), log.end_offset)
            self._kept[key] = _Kept(log, watermark, self._topic_ids[key])
        self.replicas.clear()
        self.endpoints.clear()
        self.controller_epoch = 0
        self.metadata = MetadataCache()
        self.on_change.notify()

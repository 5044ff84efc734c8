"""Replicas of one node, and its metadata. Decides without waiting."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol
from uuid import UUID

from aiokafkawire.broker.api_error import ApiError
from aiokafkawire.broker.callbacks import Callbacks
from aiokafkawire.broker.cluster_topics import MAX_TOTAL_PARTITIONS
from aiokafkawire.broker.configs import LogConfig
from aiokafkawire.broker.log import PartitionLog
from aiokafkawire.broker.options import MAX_NODES, BrokerConfig
from aiokafkawire.broker.replication.controller_commands import (
    ControllerCommand,
    Key,
    LeaderAndIsr,
    LeaderAndIsrCommand,
    StopReplicaCommand,
    UpdateMetadataCommand,
)
from aiokafkawire.broker.replication.metadata_cache import MetadataCache
from aiokafkawire.broker.replication.replica import (
    BecomeFollower,
    BecomeLeader,
    Event,
    FollowerFetched,
    IsrRecorded,
    LagCheckDue,
    Leading,
    Offline,
    Replica,
    StopFollowing,
)
from aiokafkawire.broker.storage import Store
from aiokafkawire.runtime import Address
from aiokafkawire.wire import ErrorCode

__all__ = ("PartitionStateStore", "ReplicaManager", "ReplicationConfig")


class PartitionStateStore(Protocol):
    """State in ZooKeeper that nodes read, and where leaders record their ISR."""

    def record_isr(self, key: Key, leader: int, leader_epoch: int, isr: tuple[int, ...]) -> bool:
        """Record an ISR; return False if the leader or its epoch is outdated."""
        ...

    def max_batch_bytes(self, topic: str) -> int:
        """Return the largest batch of a topic, in bytes."""
        ...

    def log_config(self, topic: str, node_id: int) -> LogConfig:
        """Return the config of the logs of a topic on a node."""
        ...

    def topic_id(self, topic: str) -> UUID:
        """Return the current id of a topic, `ZERO_UUID` if there is none."""
        ...

    def min_in_sync(self, topic: str) -> int:
        """Return the number of in-sync replicas that acks=all needs."""
        ...


@dataclass(frozen=True, slots=True)
class _PersistedReplica:
    """State of a replica that survives a crash."""

    log: PartitionLog
    watermark: int
    topic_id: UUID


@dataclass(frozen=True, slots=True)
class ReplicationConfig:
    """Behaviour of replicas that depends on the releases of the cluster.

    `truncates_by_epoch` and `truncates_on_fetch` select how followers truncate their logs. With
    `waits_for_min_isr`, high watermarks wait for enough in-sync replicas.
    """

    truncates_by_epoch: bool = True
    truncates_on_fetch: bool = False
    waits_for_min_isr: bool = False


class ReplicaManager:
    """Replicas and metadata of one node.

    Logs survive a crash, and high watermarks as of the last checkpoint; metadata does not.
    `on_new_leader` is called with every node that there is something to fetch from, `on_write`
    after every write.
    """

    def __init__(
        self, node_id: int, options: BrokerConfig, store: Store, state_store: PartitionStateStore
    ) -> None:
        self.node_id = node_id
        self.habits = ReplicationConfig()
        self.controller_epoch = 0
        self.metadata = MetadataCache()
        self.replicas: dict[Key, Replica] = {}
        self.endpoints: dict[int, Address] = {}
        self.on_new_leader: Callable[[int], None] | None = None
        self.on_change = Callbacks()
        self.on_write = Callbacks()
        self._options = options
        self._store = store
        self._state_store = state_store
        self._persisted: dict[Key, _PersistedReplica] = {}
        self._checkpoint: dict[Key, int] = {}
        self._topic_ids: dict[Key, UUID] = {}

    # --- commands of the controller ----------------------------------------------------------

    def become_leader_or_follower(
        self, command: LeaderAndIsrCommand, now: float
    ) -> dict[Key, ErrorCode]:
        """Handle LeaderAndIsr. Raises `ApiError` for an outdated controller."""
        self._check(command)
        for node_id, address in command.leaders.items():
            if node_id in self.endpoints or len(self.endpoints) < MAX_NODES:
                self.endpoints[node_id] = address
        errors = {
            key: self._apply_leader_and_isr(key, assignment, now)
            for key, assignment in command.partitions.items()
        }
        for leader in dict.fromkeys(
            assignment.leader for assignment in command.partitions.values() if assignment.has_leader
        ):
            elsewhere = leader != self.node_id and leader in self.endpoints
            if elsewhere and self.on_new_leader is not None:
                self.on_new_leader(leader)
        self.on_change.notify()
        return errors

    def stop_replicas(self, command: StopReplicaCommand, now: float) -> dict[Key, ErrorCode]:
        """Handle StopReplica; missing partitions succeed. Raises `ApiError`."""
        self._check(command)
        for key, delete in command.partitions.items():
            replica = self.replicas.get(key)
            if replica is not None:
                self._handle_event(replica, StopFollowing(), now)
            if delete:
                self._delete_replica(key)
        self.on_change.notify()
        return dict.fromkeys(command.partitions, ErrorCode.NONE)

    def update_metadata(self, command: UpdateMetadataCommand) -> None:
        """Handle UpdateMetadata. Raises `ApiError` for an outdated controller."""
        self._check(command)
        self.metadata.update(command)

    def _check(self, command: ControllerCommand) -> None:
        if command.controller_epoch < self.controller_epoch:
            raise ApiError(ErrorCode.STALE_CONTROLLER_EPOCH)
        self.controller_epoch = command.controller_epoch

    def _apply_leader_and_isr(self, key: Key, assignment: LeaderAndIsr, now: float) -> ErrorCode:
        known = self.replicas.get(key)
        if known is not None and assignment.leader_epoch <= known.leader_epoch:
            return ErrorCode.STALE_CONTROLLER_EPOCH
        if self.node_id not in assignment.replicas:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if known is None and len(self.replicas) >= MAX_TOTAL_PARTITIONS:
            return ErrorCode.POLICY_VIOLATION
        replica = known or self._create_replica(key)
        leads = assignment.leader == self.node_id
        self._handle_event(
            replica, BecomeLeader(assignment) if leads else BecomeFollower(assignment), now
        )
        return ErrorCode.NONE

    def _create_log(self, topic: str, index: int) -> PartitionLog:
        return PartitionLog(
            f"{topic}-{index}",
            self._store,
            self._options,
            config=lambda: self._state_store.log_config(topic, self.node_id),
        )

    def update_configs(self) -> None:
        """Apply changed topic configs to the replicas."""
        if self.habits.waits_for_min_isr:
            for (topic, _), replica in self.replicas.items():
                replica.min_in_sync = self._state_store.min_in_sync(topic)

    def _create_replica(self, key: Key) -> Replica:
        topic, index = key
        self._topic_ids[key] = topic_id = self._state_store.topic_id(topic)
        persisted = self._persisted.pop(key, None)
        if persisted is not None and persisted.topic_id != topic_id:
            # The topic was deleted and recreated while the node was down.
            persisted.log.delete()
            persisted = None
        if persisted is None:
            log, watermark = self._create_log(topic, index), 0
        else:
            log, watermark = persisted.log, persisted.watermark
        self.replicas[key] = replica = Replica(
            topic,
            index,
            [],
            log,
            leader_epoch=-1,
            node_id=self.node_id,
            truncates_by_epoch=self.habits.truncates_by_epoch,
            truncates_on_fetch=self.habits.truncates_on_fetch,
            watermark=watermark,
            min_in_sync=self._state_store.min_in_sync(topic)
            if self.habits.waits_for_min_isr
            else 0,
        )
        replica.on_change.add(self.on_write.notify)
        return replica

    def _delete_replica(self, key: Key) -> None:
        self._checkpoint.pop(key, None)
        persisted = self._persisted.pop(key, None)
        if persisted is not None:
            persisted.log.delete()
        replica = self.replicas.pop(key, None)
        if replica is not None:
            replica.deleted = True
            replica.log.delete()
            replica.on_change.notify()

    # --- replicas ----------------------------------------------------------------------------

    def replica(self, topic: str, index: int) -> Replica:
        """Return a replica. Raises `ApiError` if the node has none."""
        replica = self.replicas.get((topic, index))
        if replica is None:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return replica

    def update_follower_fetch_state(
        self, replica: Replica, follower: int, offset: int, now: float
    ) -> None:
        """Record the fetch offset of a follower, if the node is the leader."""
        if replica.accepts(FollowerFetched):
            self._handle_event(replica, FollowerFetched(follower, offset), now)

    def maybe_shrink_isrs(self, now: float) -> None:
        """Remove slow followers from ISRs."""
        event = LagCheckDue(self._options.replica_lag_time_max_ms / 1000)
        for replica in self.replicas.values():
            if replica.accepts(LagCheckDue):
                self._handle_event(replica, event, now)

    def followers_of(self, leader: int) -> Iterator[Replica]:
        """Return the replicas that follow a node."""
        return (
            replica
            for replica in self.replicas.values()
            if replica.leader == leader and not isinstance(replica.state, Leading | Offline)
        )

    def topic_id(self, topic: str, index: int) -> UUID:
        """Return the topic id of a replica, `ZERO_UUID` if unknown."""
        return self._topic_ids[topic, index]

    def max_batch_bytes(self, replica: Replica) -> int:
        """Return the largest batch of a partition, in bytes."""
        return self._state_store.max_batch_bytes(replica.topic)

    def _handle_event(self, replica: Replica, event: Event, now: float) -> None:
        wanted = replica.handle(event, now)
        if wanted is None:
            return
        key = replica.topic, replica.index
        if self._state_store.record_isr(key, self.node_id, replica.leader_epoch, wanted):
            replica.handle(IsrRecorded(wanted), now)

    # --- life --------------------------------------------------------------------------------

    def flush(self) -> None:
        """Sync all logs."""
        for replica in self.replicas.values():
            replica.log.flush()

    def checkpoint(self) -> None:
        """Save the high watermarks for a restart."""
        for key, replica in self.replicas.items():
            self._checkpoint[key] = replica.watermark

    def crash(self, *, lose_unsynced: bool = False) -> None:
        """Drop the state in memory; with `lose_unsynced` also unsynced records."""
        for key, replica in self.replicas.items():
            log = replica.log
            if lose_unsynced:
                log.lose_unsynced()
            # The next start scans the log and syncs it.
            log.flush()
            watermark = min(self._checkpoint.get(key, 0), log.end_offset)
            self._persisted[key] = _PersistedReplica(log, watermark, self._topic_ids[key])
        self.replicas.clear()
        self.endpoints.clear()
        self.controller_epoch = 0
        self.metadata = MetadataCache()
        self.on_change.notify()

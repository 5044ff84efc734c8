"""Observe an embedded broker's share groups: acquired records, and how their locks end."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal, NamedTuple

from aiokafkawire.broker import Broker, SeenRequest
from aiokafkawire.broker.share.in_flight import RecordState
from aiokafkawire.broker.share.persister import SharePartitionKey
from aiokafkawire.broker.share.share_partition import StateUpdate
from aiokafkawire.broker.share.share_sessions import ShareSessionKey
from aiokafkawire.wire import ApiKey
from verify.invariants.observed import ShareAcquired, ShareLocksEnded

__all__ = ("LockedRecords", "ShareObserver", "locked_records", "unfinished_records")

State = Literal["available", "acknowledged", "archived"]

STATES: dict[RecordState, State] = {
    RecordState.AVAILABLE: "available",
    RecordState.ACKNOWLEDGED: "acknowledged",
    RecordState.ARCHIVED: "archived",
}


class ShareObserver:
    """Notes each acquisition when its response is ready, and each change that is persisted.

    Acquisitions are not persisted, and changes by a lock's expiry or a closed connection are in no
    response. So both are needed, and they happen in the order in which they are noted.
    """

    def __init__(self, broker: Broker) -> None:
        self.changes: list[ShareAcquired | ShareLocksEnded] = []
        self._state = broker._running
        self._loaded: dict[Any, int] = {}
        persister: Any = self._state.share_partitions.persister
        self._write = persister.write
        persister.write = self._persist

    def saw(self, seen: SeenRequest) -> None:
        """Note what a ShareFetch has acquired."""
        if seen.api_key is not ApiKey.SHARE_FETCH or not seen.carried_out:
            return
        message: Any = seen.message
        response: Any = seen.response
        for topic in () if response is None else response.responses:
            for partition in topic.partitions:
                key = SharePartitionKey(message.group_id, topic.topic_id, partition.partition_index)
                for acquired in partition.acquired_records:
                    self._acquired(seen, key, acquired)

    def _acquired(self, seen: SeenRequest, key: SharePartitionKey, acquired: Any) -> None:
        manager = self._state.share_partitions
        loaded = manager._node(seen.node_id).partitions.get(key)
        self.changes.append(
            ShareAcquired(
                self._state.clock.now(),
                seen.client_id,
                key.group_id,
                self._name(key),
                key.partition,
                acquired.first_offset,
                acquired.last_offset,
                acquired.delivery_count,
                manager.configs.of_partitions(key.group_id).delivery_count_limit,
                self._loaded.setdefault(loaded, len(self._loaded)),
            )
        )

    def _persist(self, key: SharePartitionKey, update: StateUpdate, leader_epoch: int) -> None:
        self._write(key, update, leader_epoch)
        for batch in update.batches:
            self.changes.append(
                ShareLocksEnded(
                    self._state.clock.now(),
                    key.group_id,
                    self._name(key),
                    key.partition,
                    batch.first,
                    batch.last,
                    STATES[batch.state],
                    batch.delivery_count,
                )
            )

    def _name(self, key: SharePartitionKey) -> str:
        topics = self._state.cluster.topics.values()
        return next((each.name for each in topics if each.topic_id == key.topic_id), "")


class LockedRecords(NamedTuple):
    """Records with a lock at the leader of their partition. `has_session`: their member does."""

    key: SharePartitionKey
    first: int
    last: int
    member_id: str
    deadline: float
    has_session: bool


def locked_records(broker: Broker) -> Iterator[LockedRecords]:
    """Yield the records that are acquired at the current leaders."""
    state = broker._running
    epochs = {
        (topic.topic_id, partition.index): (partition.leader, partition.leader_epoch)
        for topic in state.cluster.topics.values()
        for partition in topic.partitions
    }
    for node_id, node in state.share_partitions._nodes.items():
        for key, found in node.partitions.items():
            current = epochs.get((key.topic_id, key.partition))
            if current != (node_id, found.leader_epoch):
                continue
            for batch in found.share_partition.window.batches:
                for first, last, delivery in batch.deliveries():
                    if delivery.state is RecordState.ACQUIRED:
                        member_id, deadline = delivery.member_id, delivery.deadline
                        session = ShareSessionKey(key.group_id, member_id)
                        has_session = session in node.sessions._sessions
                        yield LockedRecords(key, first, last, member_id, deadline, has_session)


def unfinished_records(broker: Broker, group: str, topic: str) -> list[tuple[int, int]]:
    """Return partition and offset of each record that a share group has not finished."""
    state = broker._running
    found = state.cluster.topics[topic]
    left: list[tuple[int, int]] = []
    for partition in found.partitions:
        stored = state.share_partitions.persister.read(
            SharePartitionKey(group, found.topic_id, partition.index)
        )
        start, done = partition.log.start_offset, set[int]()
        if stored is not None:
            start = max(start, stored.start_offset)
            for batch in stored.batches:
                if batch.state.is_terminal:
                    done.update(range(batch.first, batch.last + 1))
        offsets = range(start, partition.log.end_offset)
        left += [(partition.index, offset) for offset in offsets if offset not in done]
    return left

"""Controller: compares the cluster with what each node knows, and sends the difference.

There is no queue of commands. Each node gets one command at a time, and after its response the next
one, so a node that was unreachable gets the current state rather than the history.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from uuid import UUID

from aiokafkawire.broker.cluster_state import ClusterState
from aiokafkawire.broker.replication.controller_commands import (
    LEADER_DURING_DELETE,
    ControllerCommand,
    Key,
    LeaderAndIsr,
    LeaderAndIsrCommand,
    LiveNode,
    StopReplicaCommand,
    UpdateMetadataCommand,
)
from aiokafkawire.broker.topics import Partition
from aiokafkawire.runtime import Address

__all__ = ("Controller",)


@dataclass(slots=True)
class _NodeState:
    """State that a node has received: leadership and metadata."""

    leadership: dict[Key, tuple[UUID, int]] = field(default_factory=dict)
    advertised: dict[Key, LeaderAndIsr] = field(default_factory=dict)
    live: Mapping[int, LiveNode] | None = None


class Controller:
    """One term of a controller; the next controller starts a new one.

    `internal_addresses` are the addresses among nodes, `advertised` those for clients.
    """

    def __init__(
        self,
        node_id: int,
        epoch: int,
        cluster: ClusterState,
        internal_addresses: Mapping[int, Address],
        advertised: Mapping[int, Address],
    ) -> None:
        self.node_id = node_id
        self.epoch = epoch
        self._cluster = cluster
        self._internal_addresses = internal_addresses
        self._advertised_addresses = advertised
        self._node_states: dict[int, _NodeState] = {}
        self._in_flight: dict[int, ControllerCommand] = {}

    def forget(self, node_id: int) -> None:
        """Drop the state of a node that died, with the command in flight."""
        self._node_states.pop(node_id, None)
        self._in_flight.pop(node_id, None)

    def next_command(self, node_id: int) -> ControllerCommand | None:
        """Return the next command for a node, None if it is up to date."""
        command = self._next_command(node_id)
        if command is not None:
            self._in_flight[node_id] = command
        return command

    def on_response(self, node_id: int, command: ControllerCommand) -> None:
        """Record that a node responded to its command, with or without an error."""
        if self._in_flight.pop(node_id, None) is not command:
            return
        node_state = self._node_states[node_id]
        match command:
            case StopReplicaCommand():
                for key in command.partitions:
                    node_state.leadership.pop(key, None)
            case LeaderAndIsrCommand():
                for key, changed in command.partitions.items():
                    node_state.leadership[key] = command.topic_ids[key[0]], changed.leader_epoch
            case UpdateMetadataCommand():
                node_state.live = command.live
                for key, changed in command.partitions.items():
                    if changed.leader == LEADER_DURING_DELETE:
                        node_state.advertised.pop(key, None)
                    else:
                        node_state.advertised[key] = changed

    def is_up_to_date(self, node_id: int) -> bool:
        """Return True if a node needs no command."""
        return self._next_command(node_id) is None

    # --- commands ----------------------------------------------------------------------------

    def _next_command(self, node_id: int) -> ControllerCommand | None:
        if node_id not in self._cluster.live:
            return None
        node_state = self._node_states.setdefault(node_id, _NodeState())
        return (
            self._stop(node_id, node_state)
            or self._lead(node_id, node_state)
            or self._metadata(node_state)
        )

    def _stop(self, node_id: int, node_state: _NodeState) -> StopReplicaCommand | None:
        """Stop partitions that were deleted, or recreated with another topic id."""
        topic_ids = {key: topic_id for key, topic_id, _ in self._partitions(node_id)}
        removed = {
            key: True
            for key, (topic_id, _) in node_state.leadership.items()
            if topic_ids.get(key) != topic_id
        }
        if not removed:
            return None
        return StopReplicaCommand(
            controller_id=self.node_id, controller_epoch=self.epoch, partitions=removed
        )

    def _lead(self, node_id: int, node_state: _NodeState) -> LeaderAndIsrCommand | None:
        changed: dict[Key, LeaderAndIsr] = {}
        topic_ids: dict[str, UUID] = {}
        for key, topic_id, partition in self._partitions(node_id):
            assignment = _assignment(partition)
            if assignment.has_leader and node_state.leadership.get(key) != (
                topic_id,
                partition.leader_epoch,
            ):
                changed[key], topic_ids[key[0]] = assignment, topic_id
        if not changed:
            return None
        leaders = dict.fromkeys(assignment.leader for assignment in changed.values())
        return LeaderAndIsrCommand(
            controller_id=self.node_id,
            controller_epoch=self.epoch,
            partitions=changed,
            leaders={
                node: self._internal_addresses[node]
                for node in leaders
                if node in self._internal_addresses
            },
            topic_ids=topic_ids,
        )

    def _metadata(self, node_state: _NodeState) -> UpdateMetadataCommand | None:
        live = {
            node: LiveNode(self._advertised_addresses[node], self._cluster.racks.get(node))
            for node in self._cluster.live
            if node in self._advertised_addresses
        }
        present = {
            (topic.name, partition.index): _assignment(partition)
            for topic in self._cluster.topics.values()
            for partition in topic.partitions
        }
        changed = {
            key: now for key, now in present.items() if node_state.advertised.get(key) != now
        }
        for key, before in node_state.advertised.items():
            if key not in present:
                changed[key] = LeaderAndIsr(
                    LEADER_DURING_DELETE, before.leader_epoch, before.isr, before.replicas
                )
        if not changed and live == node_state.live:
            return None
        topics = self._cluster.topics
        return UpdateMetadataCommand(
            controller_id=self.node_id,
            controller_epoch=self.epoch,
            partitions=changed,
            live=live,
            topic_ids={name: topics[name].topic_id for name, _ in changed if name in topics},
        )

    def _partitions(self, node_id: int) -> Iterator[tuple[Key, UUID, Partition]]:
        for topic in self._cluster.topics.values():
            for partition in topic.partitions:
                if node_id in partition.replicas:
                    yield (topic.name, partition.index), topic.topic_id, partition


def _assignment(partition: Partition) -> LeaderAndIsr:
    return LeaderAndIsr(
        partition.leader,
        partition.leader_epoch,
        tuple(partition.isr),
        tuple(partition.replicas),
    )

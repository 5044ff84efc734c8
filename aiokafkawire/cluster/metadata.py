"""Metadata of the cluster: nodes, topics and partition leaders.

Snapshots are immutable; `MetadataSnapshot.with_response`, `with_leader` and `with_node` build new
ones. Responses are validated: an impossible entry is skipped, with a warning for the log.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from types import MappingProxyType
from typing import NamedTuple, TypeVar
from uuid import UUID

from aiokafkawire.runtime import Address
from aiokafkawire.types import NO_LEADER_EPOCH, NodeId, TopicPartition
from aiokafkawire.wire import ZERO_UUID, ErrorCode
from aiokafkawire.wire.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

__all__ = (
    "EMPTY_SNAPSHOT",
    "LeaderAndEpoch",
    "MetadataSnapshot",
    "MetadataUpdate",
    "NodeInfo",
    "PartitionMetadata",
    "TopicMetadata",
    "valid_address",
)

NO_NODE_ID = -1

MAX_MISSING_TOPICS = 1_000
"""Limit of `missing_topics`; the topics that are missing longest are dropped first."""

MAX_WARNINGS = 20
"""Warnings of one update; otherwise, a hostile response could fill the log."""

# These codes say nothing about the topic itself, so its last metadata stays.
_INCONCLUSIVE_CODES = frozenset(
    {
        ErrorCode.UNKNOWN_SERVER_ERROR,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.BROKER_NOT_AVAILABLE,
        ErrorCode.NETWORK_EXCEPTION,
    }
)


class LeaderAndEpoch(NamedTuple):
    """Leader of a partition; the epoch is -1 if the brokers do not report epochs."""

    node: NodeId
    epoch: int


_leader = lru_cache(maxsize=4_096)(LeaderAndEpoch)
"""Partitions with the same leader and epoch share one object."""


@dataclass(frozen=True, slots=True)
class NodeInfo:
    """Address and rack of a broker."""

    node_id: NodeId
    address: Address
    rack: str | None = None


@dataclass(frozen=True, slots=True)
class PartitionMetadata:
    """Leader and replicas of a partition; `leader_id` is -1 without a live leader."""

    partition: int
    leader_id: NodeId
    leader_epoch: int = NO_LEADER_EPOCH
    replicas: tuple[NodeId, ...] = ()
    isr: tuple[NodeId, ...] = ()
    offline_replicas: tuple[NodeId, ...] = ()


@dataclass(frozen=True, slots=True)
class TopicMetadata:
    """A topic that exists; `topic_id` is `ZERO_UUID` before Metadata v10."""

    name: str
    topic_id: UUID
    partitions: Mapping[int, PartitionMetadata]
    is_internal: bool = False


@dataclass(frozen=True, slots=True)
class MetadataSnapshot:
    """Immutable metadata of the cluster.

    Attributes:
        version: Number of changes so far.
        cluster_id: Id of the cluster; None before Metadata v2.
        controller_id: Node id of the controller; -1 if unknown.
        nodes: Address and rack of each broker.
        topics: Topics that exist.
        errors: Error code of each requested topic without metadata, such as
            UNKNOWN_TOPIC_OR_PARTITION.
        missing_topics: Last metadata of topics that no longer exist, if they have an id.
    """

    version: int = 0
    cluster_id: str | None = None
    controller_id: NodeId = NO_NODE_ID
    nodes: Mapping[NodeId, NodeInfo] = field(default_factory=lambda: MappingProxyType({}))
    topics: Mapping[str, TopicMetadata] = field(default_factory=lambda: MappingProxyType({}))
    errors: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    missing_topics: Mapping[str, TopicMetadata] = field(
        default_factory=lambda: MappingProxyType({})
    )

    def leader(self, tp: TopicPartition) -> LeaderAndEpoch | None:
        """Return the leader of a partition; None if it is unknown or not in `nodes`."""
        topic = self.topics.get(tp.topic)
        partition = topic.partitions.get(tp.partition) if topic is not None else None
        if partition is None or partition.leader_id not in self.nodes:
            return None
        return _leader(partition.leader_id, partition.leader_epoch)

    def partitions(self, topic: str) -> tuple[int, ...]:
        """Return the partition numbers of a topic, ascending; empty if the topic is unknown."""
        known = self.topics.get(topic)
        return tuple(known.partitions) if known is not None else ()

    def topic_id(self, topic: str) -> UUID:
        """Return the id of a topic; `ZERO_UUID` if it has no id or was never known.

        A missing topic keeps its id, so that a recreated topic with the same name is recognized and
        old positions are not used in it.
        """
        known = self.topics.get(topic) or self.missing_topics.get(topic)
        return known.topic_id if known is not None else ZERO_UUID

    def with_response(
        self,
        response: MetadataResponse,
        wanted: Collection[str] | None,
        *,
        partial: bool = False,
        unlisted: Mapping[NodeId, NodeInfo] = MappingProxyType({}),
    ) -> MetadataUpdate:
        """Return the snapshot after a Metadata response.

        Args:
            response: The response.
            wanted: The requested topics; None for all.
            partial: Keep the metadata of all other topics.
            unlisted: Nodes to keep even if the response lacks them.
        """
        return _ResponseReader(self).read(response, wanted, partial=partial, unlisted=unlisted)

    def with_leader(
        self, tp: TopicPartition, leader_id: NodeId, leader_epoch: int
    ) -> MetadataUpdate:
        """Return the snapshot with a new leader, unchanged unless the epoch is newer (KIP-951)."""
        topic = self.topics.get(tp.topic)
        known = topic.partitions.get(tp.partition) if topic is not None else None
        if topic is None or known is None or leader_id < 0 or leader_epoch <= known.leader_epoch:
            return MetadataUpdate(self)
        moved = replace(known, leader_id=leader_id, leader_epoch=leader_epoch)
        partitions = MappingProxyType({**topic.partitions, tp.partition: moved})
        topics = {**self.topics, tp.topic: replace(topic, partitions=partitions)}
        return MetadataUpdate(
            replace(self, version=self.version + 1, topics=MappingProxyType(topics)),
            changed=True,
            topics=(tp.topic,),
            leaders_only=True,
        )

    def with_node(self, node_id: NodeId, host: str, port: int) -> MetadataUpdate:
        """Return the snapshot with the address of a node that another response contained."""
        address = valid_address(host, port)
        if node_id < 0 or address is None:
            return MetadataUpdate(
                self, warnings=(f"ignored node {node_id}: invalid address {host!r}:{port}",)
            )
        known = self.nodes.get(node_id)
        if known is not None and known.address == address:
            return MetadataUpdate(self)
        rack = known.rack if known is not None else None
        nodes = {**self.nodes, node_id: NodeInfo(node_id, address, rack)}
        return MetadataUpdate(
            replace(self, version=self.version + 1, nodes=MappingProxyType(nodes)), changed=True
        )


EMPTY_SNAPSHOT = MetadataSnapshot()


@dataclass(frozen=True, slots=True)
class MetadataUpdate:
    """Result of an update.

    Attributes:
        snapshot: The snapshot after the update.
        warnings: Texts for the log.
        recreated_topics: Topics that were deleted and created again since the last snapshot.
        changed: Whether the snapshot is a new one.
        usable: False if the response names no valid broker; the snapshot is then the old one.
        topics: Topics that may have changed; None for all.
        leaders_only: Whether only partition leaders changed.
    """

    snapshot: MetadataSnapshot
    warnings: tuple[str, ...] = ()
    recreated_topics: tuple[str, ...] = ()
    changed: bool = False
    usable: bool = True
    topics: tuple[str, ...] | None = None
    leaders_only: bool = False


@lru_cache(maxsize=1_024)  # FindCoordinator repeats the addresses for each of many groups.
def valid_address(host: str, port: int) -> Address | None:
    """Return the address; None unless a client can connect to it."""
    if not host or not 1 <= port <= 65_535 or any(c.isspace() or c == "\0" for c in host):
        return None
    return Address(host, port)


_V = TypeVar("_V")


def _without(values: Mapping[str, _V], names: Collection[str] | None) -> dict[str, _V]:
    """Return `values` without some names."""
    left_out = frozenset(names or ())
    return {name: value for name, value in values.items() if name not in left_out}


class _ResponseReader:
    """Builds the next snapshot from a response and the snapshot before it."""

    def __init__(self, before: MetadataSnapshot) -> None:
        self._before = before
        self._warnings: list[str] = []
        self._recreated_topics: list[str] = []

    def read(
        self,
        response: MetadataResponse,
        wanted: Collection[str] | None,
        *,
        partial: bool,
        unlisted: Mapping[NodeId, NodeInfo],
    ) -> MetadataUpdate:
        before = self._before
        nodes = {**unlisted, **self._nodes(response.brokers)}
        if not nodes:
            self._warn("ignored metadata without a broker with a valid address")
            return MetadataUpdate(before, tuple(self._warnings), usable=False)
        topics: dict[str, TopicMetadata] = {}
        errors: dict[str, int] = {}
        requested = None if wanted is None else frozenset(wanted)
        for topic in response.topics:
            self._topic(topic, requested, topics, errors)
        for name in wanted or ():
            if name not in topics and name not in errors:
                errors[name] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        changed_topics = (
            tuple(wanted or ()) if partial and nodes.keys() == before.nodes.keys() else None
        )
        if partial:
            topics = _without(before.topics, wanted) | topics
            errors = _without(before.errors, wanted) | errors
        snapshot = MetadataSnapshot(
            version=before.version + 1,
            cluster_id=response.cluster_id,
            controller_id=response.controller_id if response.controller_id in nodes else NO_NODE_ID,
            nodes=MappingProxyType(nodes),
            topics=MappingProxyType(topics),
            errors=MappingProxyType(errors),
            missing_topics=MappingProxyType(
                self._missing(topics, None if wanted is None or partial else errors)
            ),
        )
        warnings, recreated_topics = tuple(self._warnings), tuple(self._recreated_topics)
        return MetadataUpdate(
            snapshot, warnings, recreated_topics, changed=True, topics=changed_topics
        )

    def _missing(
        self, present: Container[str], requested: Container[str] | None
    ) -> dict[str, TopicMetadata]:
        """Return the last metadata of topics that are missing now, the longest missing first.

        A topic that was not in `requested` is not missing.
        """
        known = {**self._before.missing_topics, **self._before.topics}
        missing = [
            name
            for name, topic in known.items()
            if name not in present
            and topic.topic_id != ZERO_UUID
            and (requested is None or name in requested)
        ]
        return {name: known[name] for name in missing[-MAX_MISSING_TOPICS:]}

    def _nodes(self, brokers: Iterable[MetadataResponseBroker]) -> dict[NodeId, NodeInfo]:
        nodes: dict[NodeId, NodeInfo] = {}
        for broker in brokers:
            address = valid_address(broker.host, broker.port)
            if broker.node_id < 0 or address is None:
                self._warn(f"ignored broker {broker.node_id} at {broker.host!r} port {broker.port}")
            elif broker.node_id in nodes:
                self._warn(f"ignored a second entry for broker {broker.node_id}")
            else:
                nodes[broker.node_id] = NodeInfo(broker.node_id, address, broker.rack)
        return nodes

    def _topic(
        self,
        topic: MetadataResponseTopic,
        wanted: frozenset[str] | None,
        topics: dict[str, TopicMetadata],
        errors: dict[str, int],
    ) -> None:
        name = topic.name
        if not name or (wanted is not None and name not in wanted):
            # A v0 request without topics is for all; any other response is the broker's mistake.
            return
        if name in topics or name in errors:
            self._warn(f"ignored a second entry for topic {name!r}")
            return
        before = self._before.topics.get(name)
        if topic.error_code in _INCONCLUSIVE_CODES and before is not None:
            topics[name] = before
        elif topic.error_code != ErrorCode.NONE:
            errors[name] = topic.error_code
        else:
            topics[name] = self._existing(
                name, topic, before or self._before.missing_topics.get(name)
            )

    def _existing(
        self, name: str, topic: MetadataResponseTopic, before: TopicMetadata | None
    ) -> TopicMetadata:
        if (
            before is not None
            and ZERO_UUID not in {before.topic_id, topic.topic_id}
            and before.topic_id != topic.topic_id
        ):
            self._warn(
                f"topic {name!r} was deleted and created again: its id is now {topic.topic_id}"
            )
            self._recreated_topics.append(name)
            before = None
        partitions: dict[int, PartitionMetadata] = {}
        for entry in sorted(topic.partitions, key=lambda item: item.partition_index):
            index = entry.partition_index
            if index < 0 or index in partitions:
                self._warn(f"ignored a duplicate or invalid partition {index} of topic {name!r}")
                continue
            known = before.partitions.get(index) if before is not None else None
            partitions[index] = self._partition(topic, entry, known)
        return TopicMetadata(name, topic.topic_id, MappingProxyType(partitions), topic.is_internal)

    def _partition(
        self,
        topic: MetadataResponseTopic,
        partition: MetadataResponsePartition,
        known: PartitionMetadata | None,
    ) -> PartitionMetadata:
        # Brokers with topic ids report epochs; older ones may report -1.
        comparable = partition.leader_epoch >= 0 or topic.topic_id != ZERO_UUID
        # mutation: stale-metadata-moves-leader-back
        if known is not None and comparable and partition.leader_epoch < known.leader_epoch:
            # The broker lags behind: its leader is outdated.
            self._warn(
                f"kept the leader of {topic.name}-{partition.partition_index}: its epoch is"
                f" {known.leader_epoch}, and a broker returned epoch {partition.leader_epoch}"
            )
            return known
        return PartitionMetadata(
            partition.partition_index,
            max(partition.leader_id, NO_NODE_ID),
            partition.leader_epoch,
            tuple(partition.replica_nodes),
            tuple(partition.isr_nodes),
            tuple(partition.offline_replicas),
        )

    def _warn(self, text: str) -> None:
        if len(self._warnings) < MAX_WARNINGS:
            self._warnings.append(text)

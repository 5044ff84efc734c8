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
"""Topics that are missing and would be known again by their ids."""

MAX_WARNINGS = 20
"""Notes of one update; a hostile response could fill a log otherwise."""

# The answer says nothing of the topic itself: what was known of it stays.
_INCONCLUSIVE_CODES = frozenset(
    {
        ErrorCode.UNKNOWN_SERVER_ERROR,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.BROKER_NOT_AVAILABLE,
        ErrorCode.NETWORK_EXCEPTION,
    }
)


class LeaderAndEpoch(NamedTuple):
    """Who leads a partition. The epoch is -1 where brokers do not tell it."""

    node: NodeId
    epoch: int


_leader = lru_cache(maxsize=4_096)(LeaderAndEpoch)
"""Many partitions have the same leader in the same epoch: they share one object."""


@dataclass(frozen=True, slots=True)
class NodeInfo:
    """Where a broker listens."""

    node_id: NodeId
    address: Address
    rack: str | None = None


@dataclass(frozen=True, slots=True)
class PartitionMetadata:
    """Who has a partition. `leader_id` is -1 while it has no leader that is alive."""

    partition: int
    leader_id: NodeId
    leader_epoch: int = NO_LEADER_EPOCH
    replicas: tuple[NodeId, ...] = ()
    isr: tuple[NodeId, ...] = ()
    offline_replicas: tuple[NodeId, ...] = ()


@dataclass(frozen=True, slots=True)
class TopicMetadata:
    """One topic that exists. `topic_id` is `ZERO_UUID` where the broker has none."""

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
        """The leader of a partition; None while it has none that is known."""
        topic = self.topics.get(tp.topic)
        found = topic.partitions.get(tp.partition) if topic is not None else None
        if found is None or found.leader_id not in self.nodes:
            return None
        return _leader(found.leader_id, found.leader_epoch)

    def partitions(self, topic: str) -> tuple[int, ...]:
        """The partitions of a topic, ascending; empty if it is not known."""
        known = self.topics.get(topic)
        return tuple(known.partitions) if known is not None else ()

    def topic_id(self, topic: str) -> UUID:
        """The id of a topic, `ZERO_UUID` if it has none or was never known.

        One that is missing keeps its id: what was read of it must not be gone on with, by the mere
        name, in the next one that bears it.
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
        """The snapshot after a response that was asked for `wanted` topics, or for all (None).

        A `partial` one leaves what is known of other topics as it is. `unlisted` are nodes that
        the broker need not have named.
        """
        return _ResponseReader(self).read(response, wanted, partial=partial, unlisted=unlisted)

    def with_leader(
        self, tp: TopicPartition, leader_id: NodeId, leader_epoch: int
    ) -> MetadataUpdate:
        """The snapshot after a broker named a newer leader; unchanged if it is not newer."""
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
        """The snapshot after a broker named another's address."""
        address = valid_address(host, port)
        if node_id < 0 or address is None:
            return MetadataUpdate(
                self, warnings=(f"ignored node {node_id} at {host!r}:{port}: no address",)
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


def valid_address(host: str, port: int) -> Address | None:
    """The address, if one can connect to it at all."""
    if not host or not 1 <= port <= 65_535 or any(c.isspace() or c == "\0" for c in host):
        return None
    return Address(host, port)


_V = TypeVar("_V")


def _others(known: Mapping[str, _V], names: Collection[str] | None) -> dict[str, _V]:
    """What is known, but for some names."""
    left_out = frozenset(names or ())
    return {name: value for name, value in known.items() if name not in left_out}


class _ResponseReader:
    """Reads one response against the snapshot before it."""

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
            self._warn("ignored metadata without a single broker that can be connected to")
            return MetadataUpdate(before, tuple(self._warnings), usable=False)
        topics: dict[str, TopicMetadata] = {}
        errors: dict[str, int] = {}
        asked = None if wanted is None else frozenset(wanted)
        for told in response.topics:
            self._topic(told, asked, topics, errors)
        for name in wanted or ():
            if name not in topics and name not in errors:
                errors[name] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        told_of = tuple(wanted or ()) if partial and nodes.keys() == before.nodes.keys() else None
        if partial:
            topics = _others(before.topics, wanted) | topics
            errors = _others(before.errors, wanted) | errors
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
        return MetadataUpdate(snapshot, warnings, recreated_topics, changed=True, topics=told_of)

    def _missing(
        self, present: Container[str], asked: Container[str] | None
    ) -> dict[str, TopicMetadata]:
        """What was known of topics that are missing now, of all that were or of those `asked` for.

        Those that are missing longest come first.
        """
        known = {**self._before.missing_topics, **self._before.topics}
        missing = [
            name
            for name, topic in known.items()
            if name not in present
            and topic.topic_id != ZERO_UUID
            and (asked is None or name in asked)
        ]
        return {name: known[name] for name in missing[-MAX_MISSING_TOPICS:]}

    def _nodes(self, brokers: Iterable[MetadataResponseBroker]) -> dict[NodeId, NodeInfo]:
        nodes: dict[NodeId, NodeInfo] = {}
        for told in brokers:
            address = valid_address(told.host, told.port)
            if told.node_id < 0 or address is None:
                self._warn(f"ignored broker {told.node_id} at {told.host!r} port {told.port}")
            elif told.node_id in nodes:
                self._warn(f"ignored a second entry for broker {told.node_id}")
            else:
                nodes[told.node_id] = NodeInfo(told.node_id, address, told.rack)
        return nodes

    def _topic(
        self,
        told: MetadataResponseTopic,
        wanted: frozenset[str] | None,
        topics: dict[str, TopicMetadata],
        errors: dict[str, int],
    ) -> None:
        name = told.name
        if not name or (wanted is not None and name not in wanted):
            # Version 0 cannot ask for no topic; anything else is the broker's mistake.
            return
        if name in topics or name in errors:
            self._warn(f"ignored a second entry for topic {name!r}")
            return
        before = self._before.topics.get(name)
        if told.error_code in _INCONCLUSIVE_CODES and before is not None:
            topics[name] = before
        elif told.error_code != ErrorCode.NONE:
            errors[name] = told.error_code
        else:
            topics[name] = self._existing(
                name, told, before or self._before.missing_topics.get(name)
            )

    def _existing(
        self, name: str, told: MetadataResponseTopic, before: TopicMetadata | None
    ) -> TopicMetadata:
        if (
            before is not None
            and ZERO_UUID not in {before.topic_id, told.topic_id}
            and before.topic_id != told.topic_id
        ):
            self._warn(f"topic {name!r} was deleted and made anew: its id is {told.topic_id} now")
            self._recreated_topics.append(name)
            before = None
        partitions: dict[int, PartitionMetadata] = {}
        for entry in sorted(told.partitions, key=lambda item: item.partition_index):
            index = entry.partition_index
            if index < 0 or index in partitions:
                self._warn(f"ignored a repeated or impossible partition {index} of {name!r}")
                continue
            known = before.partitions.get(index) if before is not None else None
            partitions[index] = self._partition(told, entry, known)
        return TopicMetadata(name, told.topic_id, MappingProxyType(partitions), told.is_internal)

    def _partition(
        self,
        topic: MetadataResponseTopic,
        told: MetadataResponsePartition,
        known: PartitionMetadata | None,
    ) -> PartitionMetadata:
        # Whoever tells ids tells epochs; older brokers may leave them open.
        comparable = told.leader_epoch >= 0 or topic.topic_id != ZERO_UUID
        # mutation: stale-metadata-moves-leader-back
        if known is not None and comparable and told.leader_epoch < known.leader_epoch:
            # A broker that lags behind; what it says of the leader is out of date.
            self._warn(
                f"kept the leader of {topic.name}-{told.partition_index}: its epoch is"
                f" {known.leader_epoch}, and a broker told of {told.leader_epoch}"
            )
            return known
        return PartitionMetadata(
            told.partition_index,
            max(told.leader_id, NO_NODE_ID),
            told.leader_epoch,
            tuple(told.replica_nodes),
            tuple(told.isr_nodes),
            tuple(told.offline_replicas),
        )

    def _warn(self, text: str) -> None:
        if len(self._warnings) < MAX_WARNINGS:
            self._warnings.append(text)

"""Metadata: the nodes that live, the topics, and who leads what."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Protocol

from aiokafkawire.broker.call import Call
from aiokafkawire.broker.refusal import Refusal, StorageError
from aiokafkawire.broker.replication.messages import Assignment, LiveNode
from aiokafkawire.broker.replication.metadata_cache import MetadataCache
from aiokafkawire.broker.topics import NO_LEADER, Partition, check_topic_name
from aiokafkawire.wire import NO_ID, ErrorCode
from aiokafkawire.wire.messages.metadata import (
    OPERATIONS_NOT_ASKED,
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

__all__ = ("failed", "handle")

FIRST_ID_FIELD_VERSION = 10
FIRST_ID_VERSION = 12

ALL_TOPIC_OPERATIONS = 0b110111111000
ALL_CLUSTER_OPERATIONS = 0b1111110100000
"""Without an authorizer everything is allowed: a bit for each operation of Kafka's AclOperation."""


async def handle(call: Call, request: MetadataRequest) -> MetadataResponse:
    cluster = call.cluster
    asked = request.topics
    if not call.release.since("0.9.0"):
        try:
            for each in asked or []:
                check_topic_name(each.name or "")
        except Refusal as refusal:
            # One bad name spoilt the whole answer.
            return failed(request, call.version, refusal.code)
    if FIRST_ID_FIELD_VERSION <= call.version < FIRST_ID_VERSION and any(
        each.name is None or each.topic_id != NO_ID for each in asked or []
    ):
        # These two versions have the field, but no broker ever looked a topic up by it.
        return failed(request, call.version, ErrorCode.INVALID_REQUEST)
    view: _View = _Shared(call) if call.replicas is None else _Told(call.replicas.metadata)
    if asked is None or (call.version == 0 and not asked):
        topics = [_described(call, view, name, request) for name in view.names()]
    else:
        distinct = {(each.name, each.topic_id): each for each in asked}
        topics = [_asked(call, view, each, request) for each in distinct.values()]
    return MetadataResponse(
        brokers=[
            MetadataResponseBroker(
                node_id=node, host=live.address.host, port=live.address.port, rack=live.rack
            )
            for node, live in view.live.items()
        ],
        cluster_id=cluster.cluster_id,
        controller_id=view.controller_id,
        topics=topics,
        cluster_authorized_operations=(
            ALL_CLUSTER_OPERATIONS
            if request.include_cluster_authorized_operations
            else OPERATIONS_NOT_ASKED
        ),
    )


def failed(request: MetadataRequest, version: int, code: int) -> MetadataResponse:
    return MetadataResponse(
        brokers=[],
        topics=[_unknown(topic, version, code) for topic in request.topics or []],
        error_code=code,
    )


def _asked(
    call: Call, view: _View, asked: MetadataRequestTopic, request: MetadataRequest
) -> MetadataResponseTopic:
    cluster = call.cluster
    try:
        if asked.name is None:
            return _described(call, view, cluster.topic_by_id(asked.topic_id).name, request)
        create = call.state.options.auto_create_topics and request.allow_auto_topic_creation
        if create and asked.name not in cluster.topics:
            try:
                cluster.create_topic(asked.name)
            except StorageError as error:
                # As for a topic whose creation takes longer, so that clients ask again.
                raise Refusal(ErrorCode.LEADER_NOT_AVAILABLE) from error
        check_topic_name(asked.name)
        if asked.name not in view.names():
            # The node may not have heard of it yet; who wanted it made shall ask again.
            raise Refusal(
                ErrorCode.LEADER_NOT_AVAILABLE if create else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            )
        return _described(call, view, asked.name, request)
    except Refusal as refusal:
        return _unknown(asked, call.version, refusal.code)


def _unknown(asked: MetadataRequestTopic, version: int, code: int) -> MetadataResponseTopic:
    # Before version 12 a name cannot be null, not even for a topic asked by its id.
    name = asked.name if asked.name is not None or version >= FIRST_ID_VERSION else ""
    topic_id = asked.topic_id if asked.name is None else NO_ID
    return MetadataResponseTopic(error_code=code, name=name, topic_id=topic_id, partitions=[])


def _described(
    call: Call, view: _View, name: str, request: MetadataRequest
) -> MetadataResponseTopic:
    topic = call.cluster.topics.get(name)
    return MetadataResponseTopic(
        error_code=ErrorCode.NONE,
        name=name,
        topic_id=NO_ID if topic is None else topic.topic_id,
        partitions=[
            _partition(call.version, view, index, told) for index, told in view.partitions(name)
        ],
        topic_authorized_operations=(
            ALL_TOPIC_OPERATIONS
            if request.include_topic_authorized_operations
            else OPERATIONS_NOT_ASKED
        ),
    )


def _partition(
    version: int, view: _View, index: int, told: Partition | Assignment
) -> MetadataResponsePartition:
    offline = [node for node in told.replicas if node not in view.live]
    code = ErrorCode.NONE
    leader, replicas = told.leader, list(told.replicas)
    if leader not in view.live:
        code, leader = ErrorCode.LEADER_NOT_AVAILABLE, NO_LEADER
    elif version == 0 and offline:
        # The oldest clients cannot be told of a replica that is down.
        code = ErrorCode.REPLICA_NOT_AVAILABLE
        replicas = [node for node in replicas if node not in offline]
    return MetadataResponsePartition(
        error_code=code,
        partition_index=index,
        leader_id=leader,
        leader_epoch=told.leader_epoch,
        replica_nodes=replicas,
        isr_nodes=list(told.isr),
        offline_replicas=offline,
    )


# --- what a node knows ---------------------------------------------------------------------------


class _View(Protocol):
    """What a node tells of the cluster."""

    @property
    def live(self) -> Mapping[int, LiveNode]: ...

    @property
    def controller_id(self) -> int: ...

    def names(self) -> Collection[str]:
        """The topics."""
        ...

    def partitions(self, name: str) -> Iterable[tuple[int, Partition | Assignment]]:
        """The partitions of one of them."""
        ...


class _Shared:
    """What is so: all nodes know it at once."""

    def __init__(self, call: Call) -> None:
        cluster, addresses = call.cluster, call.state.addresses
        self._topics = cluster.topics
        self.controller_id = cluster.controller_id
        self.live = {
            node: LiveNode(addresses[node], cluster.racks.get(node))
            for node in cluster.live
            if node in addresses
        }

    def names(self) -> Collection[str]:
        return self._topics.keys()

    def partitions(self, name: str) -> Iterable[tuple[int, Partition]]:
        return ((partition.index, partition) for partition in self._topics[name].partitions)


class _Told:
    """What the controller told the node last."""

    def __init__(self, cache: MetadataCache) -> None:
        self._topics = cache.topics
        self.controller_id = cache.controller_id
        self.live = cache.live

    def names(self) -> Collection[str]:
        return self._topics.keys()

    def partitions(self, name: str) -> Iterable[tuple[int, Assignment]]:
        return sorted(self._topics[name].items(), key=lambda entry: entry[0])

"""Metadata: the nodes that live, the topics, and who leads what."""

from __future__ import annotations

from collections.abc import Iterator

from aiokafkawire.broker.call import Call
from aiokafkawire.broker.refusal import Refusal
from aiokafkawire.broker.topics import NO_LEADER, Partition, Topic, check_topic_name
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
    if FIRST_ID_FIELD_VERSION <= call.version < FIRST_ID_VERSION and any(
        each.name is None or each.topic_id != NO_ID for each in asked or []
    ):
        # These two versions have the field, but no broker ever looked a topic up by it.
        return failed(request, call.version, ErrorCode.INVALID_REQUEST)
    if asked is None or (call.version == 0 and not asked):
        topics = [_described(call, topic, request) for topic in cluster.topics.values()]
    else:
        distinct = {(each.name, each.topic_id): each for each in asked}
        topics = [_asked(call, each, request) for each in distinct.values()]
    return MetadataResponse(
        brokers=[
            MetadataResponseBroker(
                node_id=node,
                host=address.host,
                port=address.port,
                rack=cluster.racks.get(node),
            )
            for node in cluster.live
            if (address := call.state.addresses.get(node)) is not None
        ],
        cluster_id=cluster.cluster_id,
        controller_id=cluster.controller_id,
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
    call: Call, asked: MetadataRequestTopic, request: MetadataRequest
) -> MetadataResponseTopic:
    cluster = call.cluster
    try:
        if asked.name is None:
            return _described(call, cluster.topic_by_id(asked.topic_id), request)
        create = call.state.options.auto_create_topics and request.allow_auto_topic_creation
        if create and asked.name not in cluster.topics:
            cluster.create_topic(asked.name)
        check_topic_name(asked.name)
        return _described(call, cluster.topic(asked.name), request)
    except Refusal as refusal:
        return _unknown(asked, call.version, refusal.code)


def _unknown(asked: MetadataRequestTopic, version: int, code: int) -> MetadataResponseTopic:
    # Before version 12 a name cannot be null, not even for a topic asked by its id.
    name = asked.name if asked.name is not None or version >= FIRST_ID_VERSION else ""
    topic_id = asked.topic_id if asked.name is None else NO_ID
    return MetadataResponseTopic(error_code=code, name=name, topic_id=topic_id, partitions=[])


def _described(call: Call, topic: Topic, request: MetadataRequest) -> MetadataResponseTopic:
    return MetadataResponseTopic(
        error_code=ErrorCode.NONE,
        name=topic.name,
        topic_id=topic.topic_id,
        partitions=[_partition(call, partition) for partition in topic.partitions],
        topic_authorized_operations=(
            ALL_TOPIC_OPERATIONS
            if request.include_topic_authorized_operations
            else OPERATIONS_NOT_ASKED
        ),
    )


def _partition(call: Call, partition: Partition) -> MetadataResponsePartition:
    offline = list(_offline(call, partition))
    code = ErrorCode.NONE
    replicas = list(partition.replicas)
    if partition.leader == NO_LEADER:
        code = ErrorCode.LEADER_NOT_AVAILABLE
    elif call.version == 0 and offline:
        # The oldest clients cannot be told of a replica that is down.
        code = ErrorCode.REPLICA_NOT_AVAILABLE
        replicas = [node for node in replicas if node not in offline]
    return MetadataResponsePartition(
        error_code=code,
        partition_index=partition.index,
        leader_id=partition.leader,
        leader_epoch=partition.leader_epoch,
        replica_nodes=replicas,
        isr_nodes=list(partition.isr),
        offline_replicas=offline,
    )


def _offline(call: Call, partition: Partition) -> Iterator[int]:
    return (node for node in partition.replicas if node not in call.cluster.live)

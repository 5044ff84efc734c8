"""DescribeQuorum: leader, voters and observers of the controller quorum (KIP-595, KIP-836)."""

from __future__ import annotations

from aiokafkawire.broker.acls import AclOperation, ResourceType
from aiokafkawire.broker.quorum import CONTROLLER_LISTENER
from aiokafkawire.broker.request_context import RequestContext
from aiokafkawire.broker.topics import NO_LEADER
from aiokafkawire.wire import ErrorCode
from aiokafkawire.wire.messages.describe_quorum import (
    DescribeQuorumListener,
    DescribeQuorumPartitionResult,
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    DescribeQuorumTopicResult,
    QuorumNode,
    QuorumReplicaState,
)

__all__ = ("error_response", "handle")

METADATA_TOPIC = "__cluster_metadata"

UNKNOWN_PARTITION = "This server does not host this topic-partition."

UNKNOWN = -1
"""Offset and times of a node that is down, as of one that has not fetched from the leader."""


async def handle(context: RequestContext, request: DescribeQuorumRequest) -> DescribeQuorumResponse:
    if not context.is_authorized(AclOperation.DESCRIBE, ResourceType.CLUSTER):
        return error_response(request, context.version, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    topics = [
        DescribeQuorumTopicResult(
            topic_name=topic.topic_name,
            partitions=[
                _partition(context, topic.topic_name, each.partition_index)
                for each in topic.partitions
            ],
        )
        for topic in request.topics
    ]
    is_described = any(
        not partition.error_code for topic in topics for partition in topic.partitions
    )
    return DescribeQuorumResponse(
        error_code=ErrorCode.NONE,
        error_message="",
        topics=topics,
        nodes=_nodes(context) if is_described and context.version >= FIRST_NODES_VERSION else [],
    )


FIRST_NODES_VERSION = 2


def error_response(
    request: DescribeQuorumRequest, version: int, code: int
) -> DescribeQuorumResponse:
    return DescribeQuorumResponse(error_code=code, error_message=None, topics=[])


def _partition(context: RequestContext, topic: str, index: int) -> DescribeQuorumPartitionResult:
    if (topic, index) != (METADATA_TOPIC, 0):
        return DescribeQuorumPartitionResult(
            partition_index=index,
            error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            error_message=UNKNOWN_PARTITION,
            leader_id=0,
            leader_epoch=0,
            high_watermark=0,
            current_voters=[],
            observers=[],
        )
    cluster = context.cluster
    quorum = cluster.metadata.quorum
    live = [node for node in quorum.voters if node in cluster.live]
    leader = cluster.controller_id
    if leader not in quorum.voters:
        leader = live[0] if live else NO_LEADER
    return DescribeQuorumPartitionResult(
        partition_index=index,
        error_code=ErrorCode.NONE,
        leader_id=leader,
        leader_epoch=cluster.controller_epoch,
        high_watermark=cluster.metadata.offset,
        current_voters=[_state(context, node) for node in quorum.voters],
        observers=[_state(context, node) for node in quorum.node_ids if node not in quorum.voters],
    )


def _state(context: RequestContext, node: int) -> QuorumReplicaState:
    cluster = context.cluster
    is_live = node in cluster.live
    now_ms = context.state.clock.wall_ms() if is_live else UNKNOWN
    with_directory = context.version >= FIRST_NODES_VERSION
    state = QuorumReplicaState(
        replica_id=node,
        log_end_offset=cluster.metadata.offset if is_live else UNKNOWN,
        last_fetch_timestamp=now_ms,
        last_caught_up_timestamp=now_ms,
    )
    if with_directory:
        state.replica_directory_id = cluster.metadata.quorum.directory_id(cluster.cluster_id, node)
    return state


def _nodes(context: RequestContext) -> list[QuorumNode]:
    """Return the voters. They have no listener of their own, but the one of the clients."""
    return [
        QuorumNode(
            node_id=node,
            listeners=[
                DescribeQuorumListener(
                    name=CONTROLLER_LISTENER, host=address.host, port=address.port
                )
            ],
        )
        for node in context.cluster.metadata.quorum.voters
        if (address := context.addresses.get(node)) is not None
    ]

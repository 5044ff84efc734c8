"""DescribeTopicPartitions: topics in pages of partitions (KIP-966)."""

from __future__ import annotations

from itertools import islice

from aiokafkawire.broker.acls import AclOperation, ResourceType
from aiokafkawire.broker.api_error import ApiError
from aiokafkawire.broker.apis.metadata import MetadataSource, metadata_source
from aiokafkawire.broker.replication.controller_commands import LeaderAndIsr
from aiokafkawire.broker.request_context import RequestContext
from aiokafkawire.broker.topics import NO_LEADER, Partition, check_topic_name, is_internal_topic
from aiokafkawire.wire import ZERO_UUID, ErrorCode
from aiokafkawire.wire.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)

__all__ = ("error_response", "handle")

MAX_PARTITIONS = 2_000
"""Default of max.request.partition.size.limit."""


async def handle(
    context: RequestContext, request: DescribeTopicPartitionsRequest
) -> DescribeTopicPartitionsResponse:
    cursor, source = request.cursor, metadata_source(context)
    requested = {topic.name for topic in request.topics}
    if cursor is not None:
        is_missing = bool(requested) and cursor.topic_name not in requested
        if is_missing or cursor.partition_index < 0:
            return error_response(request, context.version, ErrorCode.INVALID_REQUEST)
    names = sorted(
        name for name in requested or source.names() if cursor is None or name >= cursor.topic_name
    )
    left = min(max(request.response_partition_limit, 1), MAX_PARTITIONS)
    response = DescribeTopicPartitionsResponse(throttle_time_ms=0, topics=[])
    for name in names:
        if not context.is_authorized(AclOperation.DESCRIBE, ResourceType.TOPIC, name):
            if requested:
                code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
                response.topics.append(_error_topic(context, name, code))
            continue
        if not left:
            response.next_cursor = Cursor(topic_name=name, partition_index=0)
            break
        first = cursor.partition_index if cursor and name == cursor.topic_name else 0
        topic = _describe(context, source, name, first, left)
        response.topics.append(topic)
        left -= len(topic.partitions)
        end = first + len(topic.partitions)
        if not left and name in source.names() and end < len(list(source.partitions(name))):
            response.next_cursor = Cursor(topic_name=name, partition_index=end)
            break
    return response


def error_response(
    request: DescribeTopicPartitionsRequest, version: int, code: int
) -> DescribeTopicPartitionsResponse:
    return DescribeTopicPartitionsResponse(
        throttle_time_ms=0,
        topics=[
            DescribeTopicPartitionsResponseTopic(
                error_code=code, name=topic.name, topic_id=ZERO_UUID, partitions=[]
            )
            for topic in request.topics
        ],
    )


def _error_topic(
    context: RequestContext, name: str, code: ErrorCode
) -> DescribeTopicPartitionsResponseTopic:
    return DescribeTopicPartitionsResponseTopic(
        error_code=code,
        name=name,
        topic_id=ZERO_UUID,
        is_internal=is_internal_topic(name),
        partitions=[],
        topic_authorized_operations=context.authorized_operations(ResourceType.TOPIC, name),
    )


def _describe(
    context: RequestContext, source: MetadataSource, name: str, first: int, count: int
) -> DescribeTopicPartitionsResponseTopic:
    try:
        check_topic_name(name)
        topic = context.cluster.topic(name)
        if name not in source.names():
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    except ApiError as error:
        return _error_topic(context, name, error.code)
    described = _error_topic(context, name, ErrorCode.NONE)
    described.topic_id = topic.topic_id
    described.partitions = [
        _partition(source, topic.partitions[index], state)
        for index, state in islice(source.partitions(name), first, first + count)
    ]
    return described


def _partition(
    source: MetadataSource, partition: Partition, state: Partition | LeaderAndIsr
) -> DescribeTopicPartitionsResponsePartition:
    has_leader = state.leader in source.live
    return DescribeTopicPartitionsResponsePartition(
        error_code=ErrorCode.NONE if has_leader else ErrorCode.LEADER_NOT_AVAILABLE,
        partition_index=partition.index,
        leader_id=state.leader if has_leader else NO_LEADER,
        leader_epoch=state.leader_epoch,
        replica_nodes=list(state.replicas),
        isr_nodes=list(state.isr),
        eligible_leader_replicas=list(partition.elr),
        last_known_elr=[],
        offline_replicas=[node for node in state.replicas if node not in source.live],
    )

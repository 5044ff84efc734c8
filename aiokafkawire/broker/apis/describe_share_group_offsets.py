"""DescribeShareGroupOffsets: start offsets and lag of share partitions (KIP-932, KIP-1226)."""

from __future__ import annotations

from collections.abc import Iterable

from aiokafkawire.broker.acls import AclOperation, ResourceType
from aiokafkawire.broker.api_error import ApiError
from aiokafkawire.broker.apis.group_requests import check_coordinator
from aiokafkawire.broker.apis.share_requests import check_share_groups
from aiokafkawire.broker.groups.share_group.group import ShareGroup
from aiokafkawire.broker.request_context import RequestContext
from aiokafkawire.broker.share.persister import NO_START_OFFSET, SharePartitionKey
from aiokafkawire.wire import ZERO_UUID, ErrorCode
from aiokafkawire.wire.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsResponse,
    DescribeShareGroupOffsetsResponseGroup,
    DescribeShareGroupOffsetsResponsePartition,
    DescribeShareGroupOffsetsResponseTopic,
)

__all__ = ("error_response", "handle")

UNKNOWN = -1


async def handle(
    context: RequestContext, request: DescribeShareGroupOffsetsRequest
) -> DescribeShareGroupOffsetsResponse:
    groups = []
    for group in request.groups:
        try:
            groups.append(_group(context, group))
        except ApiError as error:
            groups.append(_failed(group, error.code, error.message))
    return DescribeShareGroupOffsetsResponse(throttle_time_ms=0, groups=groups)


def error_response(
    request: DescribeShareGroupOffsetsRequest, version: int, code: int
) -> DescribeShareGroupOffsetsResponse:
    return DescribeShareGroupOffsetsResponse(
        throttle_time_ms=0, groups=[_failed(group, code) for group in request.groups]
    )


def _failed(
    group: DescribeShareGroupOffsetsRequestGroup, code: int, message: str | None = None
) -> DescribeShareGroupOffsetsResponseGroup:
    return DescribeShareGroupOffsetsResponseGroup(
        group_id=group.group_id, topics=[], error_code=code, error_message=message
    )


def _group(
    context: RequestContext, group: DescribeShareGroupOffsetsRequestGroup
) -> DescribeShareGroupOffsetsResponseGroup:
    check_share_groups(context)
    check_coordinator(context, group.group_id, AclOperation.DESCRIBE)
    if group.topics is None:
        topics = _all_topics(context, group.group_id)
    else:
        topics = [
            _topic(context, group.group_id, each.topic_name, each.partitions)
            for each in group.topics
        ]
    return DescribeShareGroupOffsetsResponseGroup(
        group_id=group.group_id, topics=topics, error_code=ErrorCode.NONE
    )


def _all_topics(
    context: RequestContext, group_id: str
) -> list[DescribeShareGroupOffsetsResponseTopic]:
    """Return the topics that are initialized, without those the principal may not describe."""
    known = context.state.group_coordinator.get(group_id)
    if not isinstance(known, ShareGroup):
        reason = "not found." if known is None else "is not a share group."
        raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} {reason}")
    names = context.state.group_coordinator.share_groups.topics().names
    return [
        _topic(context, group_id, name, sorted(partitions))
        for topic_id, (name, partitions) in known.data.initialized.items()
        if topic_id in names
        and context.is_authorized(AclOperation.DESCRIBE, ResourceType.TOPIC, name)
    ]


def _topic(
    context: RequestContext, group_id: str, name: str, partitions: Iterable[int]
) -> DescribeShareGroupOffsetsResponseTopic:
    topic = context.cluster.topics.get(name)
    if not context.is_authorized(AclOperation.DESCRIBE, ResourceType.TOPIC, name):
        code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        return DescribeShareGroupOffsetsResponseTopic(
            topic_name=name,
            topic_id=ZERO_UUID,
            partitions=[_partition(index, code=code) for index in partitions],
        )
    return DescribeShareGroupOffsetsResponseTopic(
        topic_name=name,
        topic_id=ZERO_UUID if topic is None else topic.topic_id,
        partitions=[
            _partition(index)
            if topic is None
            else _described(context, SharePartitionKey(group_id, topic.topic_id, index))
            for index in partitions
        ],
    )


def _described(
    context: RequestContext, key: SharePartitionKey
) -> DescribeShareGroupOffsetsResponsePartition:
    state = context.state.share_partitions.persister.read(key)
    if state is None or state.start_offset == NO_START_OFFSET:
        return _partition(key.partition)
    try:
        topic = context.cluster.topic_by_id(key.topic_id)
        end = context.cluster.partition(topic, key.partition).high_watermark
    except ApiError:
        return _partition(key.partition)
    lag = max(end - state.start_offset - state.delivery_complete_count, 0)
    return _partition(key.partition, state.start_offset, state.leader_epoch, lag)


def _partition(
    index: int,
    start_offset: int = NO_START_OFFSET,
    leader_epoch: int = 0,
    lag: int = UNKNOWN,
    *,
    code: ErrorCode = ErrorCode.NONE,
) -> DescribeShareGroupOffsetsResponsePartition:
    return DescribeShareGroupOffsetsResponsePartition(
        partition_index=index,
        start_offset=start_offset,
        leader_epoch=leader_epoch,
        lag=lag,
        error_code=code,
    )

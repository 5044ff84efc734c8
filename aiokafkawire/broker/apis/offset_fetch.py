"""OffsetFetch: committed offsets of groups; v0 reads those committed by v0."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from uuid import UUID

from aiokafkawire.broker.acls import AclOperation, ResourceType
from aiokafkawire.broker.api_error import ApiError
from aiokafkawire.broker.apis.group_requests import check_coordinator
from aiokafkawire.broker.groups.consumer_group.group import ConsumerGroup
from aiokafkawire.broker.groups.consumer_group.offset_checks import check_member_fetch
from aiokafkawire.broker.groups.offsets import CommittedOffset, OffsetsStorage
from aiokafkawire.broker.request_context import RequestContext
from aiokafkawire.types import TopicPartition
from aiokafkawire.wire import ZERO_UUID, ErrorCode
from aiokafkawire.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)

__all__ = ("error_response", "handle")

FIRST_CODE_VERSION = 2
FIRST_GROUPS_VERSION = 8
FIRST_MEMBER_VERSION = 9
FIRST_ID_VERSION = 10

NOTHING = CommittedOffset(-1, -1, "")
UnstablePartitions = AbstractSet[TopicPartition]
"""Partitions with an offset commit in an open transaction."""


@dataclass(frozen=True, slots=True)
class _RequestedTopic:
    """A topic of the request. `code` is the error of all its partitions."""

    name: str
    topic_id: UUID
    partitions: Sequence[int]
    code: ErrorCode = ErrorCode.NONE


async def handle(context: RequestContext, request: OffsetFetchRequest) -> OffsetFetchResponse:
    if context.version >= FIRST_GROUPS_VERSION:
        return OffsetFetchResponse(
            groups=[
                _group_response(
                    context, group, _unstable_partitions(context, request, group.group_id)
                )
                for group in request.groups
            ]
        )
    try:
        if context.version > 0:
            check_coordinator(context, request.group_id, AclOperation.DESCRIBE, allow_empty_id=True)
        else:
            context.authorize(AclOperation.DESCRIBE, ResourceType.GROUP, request.group_id)
    except ApiError as error:
        return error_response(request, context.version, error.code)
    if context.version == 0 and not context.release.has_zookeeper:
        return error_response(request, context.version, ErrorCode.UNSUPPORTED_VERSION)
    storage = OffsetsStorage.ZOOKEEPER if context.version == 0 else OffsetsStorage.KAFKA
    offsets = context.state.group_coordinator.offsets.committed(request.group_id, storage)
    unstable = _unstable_partitions(context, request, request.group_id)
    requested = (
        _everything(context, offsets)
        if request.topics is None
        else [
            _requested_topic(context, topic.name, ZERO_UUID, topic.partition_indexes)
            for topic in request.topics
        ]
    )
    return OffsetFetchResponse(
        topics=[
            OffsetFetchResponseTopic(
                name=topic.name,
                partitions=[
                    _partition(context, topic, index, offsets, unstable)
                    for index in topic.partitions
                ],
            )
            for topic in requested
        ]
    )


def error_response(request: OffsetFetchRequest, version: int, code: int) -> OffsetFetchResponse:
    if version >= FIRST_GROUPS_VERSION:
        return OffsetFetchResponse(
            groups=[
                OffsetFetchResponseGroup(group_id=group.group_id, topics=[], error_code=code)
                for group in request.groups
            ]
        )
    if version >= FIRST_CODE_VERSION:
        return OffsetFetchResponse(error_code=code)
    return OffsetFetchResponse(
        topics=[
            OffsetFetchResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetFetchResponsePartition(
                        partition_index=index,
                        committed_offset=NOTHING.offset,
                        metadata=NOTHING.metadata,
                        error_code=code,
                    )
                    for index in topic.partition_indexes
                ],
            )
            for topic in request.topics or []
        ]
    )


def _unstable_partitions(
    context: RequestContext, request: OffsetFetchRequest, group_id: str
) -> UnstablePartitions:
    """Return the partitions with a pending transactional commit, if `require_stable` (KIP-447)."""
    return (
        context.state.transaction_coordinator.unstable_partitions(group_id)
        if request.require_stable
        else frozenset()
    )


def _partition(
    context: RequestContext,
    topic: _RequestedTopic,
    index: int,
    offsets: Mapping[TopicPartition, CommittedOffset],
    unstable: UnstablePartitions,
) -> OffsetFetchResponsePartition:
    tp = TopicPartition(topic.name, index)
    if topic.code or tp in unstable:
        return OffsetFetchResponsePartition(
            partition_index=index,
            committed_offset=NOTHING.offset,
            metadata=NOTHING.metadata,
            error_code=topic.code or ErrorCode.UNSTABLE_OFFSET_COMMIT,
        )
    committed = offsets.get(tp, NOTHING)
    missing = context.version == 0 and committed is NOTHING
    return OffsetFetchResponsePartition(
        partition_index=index,
        committed_offset=committed.offset,
        committed_leader_epoch=committed.leader_epoch,
        metadata=committed.metadata,
        error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if missing else ErrorCode.NONE,
    )


def _group_response(
    context: RequestContext, group: OffsetFetchRequestGroup, unstable: UnstablePartitions
) -> OffsetFetchResponseGroup:
    try:
        check_coordinator(context, group.group_id, AclOperation.DESCRIBE, allow_empty_id=True)
        known = context.state.group_coordinator.get(group.group_id)
        if isinstance(known, ConsumerGroup) and context.version >= FIRST_MEMBER_VERSION:
            check_member_fetch(known, group.member_id, group.member_epoch)
    except ApiError as error:
        return OffsetFetchResponseGroup(group_id=group.group_id, topics=[], error_code=error.code)
    offsets = context.state.group_coordinator.offsets.committed(group.group_id)
    return OffsetFetchResponseGroup(
        group_id=group.group_id,
        topics=[
            OffsetFetchResponseTopics(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=[
                    _group_partition(topic, index, offsets, unstable) for index in topic.partitions
                ],
            )
            for topic in _requested(context, group, offsets)
        ],
    )


def _group_partition(
    topic: _RequestedTopic,
    index: int,
    offsets: Mapping[TopicPartition, CommittedOffset],
    unstable: UnstablePartitions,
) -> OffsetFetchResponsePartitions:
    tp = TopicPartition(topic.name, index)
    if topic.code or tp in unstable:
        return OffsetFetchResponsePartitions(
            partition_index=index,
            committed_offset=NOTHING.offset,
            metadata=NOTHING.metadata,
            error_code=topic.code or ErrorCode.UNSTABLE_OFFSET_COMMIT,
        )
    committed = offsets.get(tp, NOTHING)
    return OffsetFetchResponsePartitions(
        partition_index=index,
        committed_offset=committed.offset,
        committed_leader_epoch=committed.leader_epoch,
        metadata=committed.metadata,
        error_code=ErrorCode.NONE,
    )


def _requested(
    context: RequestContext,
    group: OffsetFetchRequestGroup,
    offsets: Mapping[TopicPartition, CommittedOffset],
) -> list[_RequestedTopic]:
    if group.topics is None:
        return _everything(context, offsets)
    return [
        _requested_topic(context, topic.name, topic.topic_id, topic.partition_indexes)
        for topic in group.topics
    ]


def _requested_topic(
    context: RequestContext, name: str, topic_id: UUID, partitions: Sequence[int]
) -> _RequestedTopic:
    """Return a topic of the request with its name, and with the error of all its partitions."""
    by_id = context.version >= FIRST_ID_VERSION
    try:
        if by_id:
            name = context.cluster.topic_by_id(topic_id).name
        context.authorize(AclOperation.DESCRIBE, ResourceType.TOPIC, name)
    except ApiError as error:
        return _RequestedTopic("" if by_id else name, topic_id, partitions, error.code)
    return _RequestedTopic(name, topic_id, partitions)


def _everything(
    context: RequestContext, offsets: Mapping[TopicPartition, CommittedOffset]
) -> list[_RequestedTopic]:
    partitions: dict[str, list[int]] = {}
    for tp in offsets:
        partitions.setdefault(tp.topic, []).append(tp.partition)
    topics = context.cluster.topics
    return [
        _RequestedTopic(name, topics[name].topic_id if name in topics else ZERO_UUID, indexes)
        for name, indexes in partitions.items()
        if context.is_authorized(AclOperation.DESCRIBE, ResourceType.TOPIC, name)
    ]

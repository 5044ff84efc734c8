"""OffsetDelete: delete committed offsets of partitions that no member subscribes to."""

from __future__ import annotations

from collections.abc import Callable

from aiokafkawire.broker.acls import AclOperation, ResourceType
from aiokafkawire.broker.api_error import ApiError
from aiokafkawire.broker.apis.group_requests import check_coordinator
from aiokafkawire.broker.groups.classic_group import ClassicGroup
from aiokafkawire.broker.groups.consumer_group.group import ConsumerGroup
from aiokafkawire.broker.groups.events import ClassicGroupState
from aiokafkawire.broker.groups.share_group.group import ShareGroup
from aiokafkawire.broker.groups.subscriptions import is_consumer_group, subscribed_topics
from aiokafkawire.broker.request_context import RequestContext
from aiokafkawire.types import TopicPartition
from aiokafkawire.wire import ErrorCode
from aiokafkawire.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)

__all__ = ("error_response", "handle")


async def handle(context: RequestContext, request: OffsetDeleteRequest) -> OffsetDeleteResponse:
    try:
        group = _group(context, request.group_id)
    except ApiError as error:
        return OffsetDeleteResponse(error_code=error.code, topics=[])
    subscribed = (
        group.data.subscribed_topics()
        if isinstance(group, ConsumerGroup)
        else subscribed_topics(group)
    )
    deleted: list[TopicPartition] = []

    def get_error(topic: str, index: int) -> ErrorCode:
        try:
            context.authorize(AclOperation.READ, ResourceType.TOPIC, topic)
            context.cluster.partition(context.cluster.topic(topic), index)
        except ApiError as error:
            return error.code
        if subscribed is None or topic in subscribed:
            return ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
        deleted.append(TopicPartition(topic, index))
        return ErrorCode.NONE

    response = _response(request, get_error)
    try:
        context.state.group_coordinator.offsets.delete(request.group_id, deleted)
        context.state.transaction_coordinator.delete_offsets(request.group_id, deleted)
    except ApiError as error:
        return error_response(request, context.version, error.code)
    return response


def error_response(request: OffsetDeleteRequest, version: int, code: int) -> OffsetDeleteResponse:
    return OffsetDeleteResponse(error_code=code, topics=[])


def _group(context: RequestContext, group_id: str) -> ClassicGroup | ConsumerGroup:
    check_coordinator(context, group_id, AclOperation.DELETE)
    group = context.state.group_coordinator.get(group_id)
    if isinstance(group, ConsumerGroup):
        return group
    if group is None or isinstance(group, ShareGroup) or group.state is ClassicGroupState.DEAD:
        raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND)
    if group.state is not ClassicGroupState.EMPTY and not is_consumer_group(group):
        # Subscriptions of other protocol types are unknown.
        raise ApiError(ErrorCode.NON_EMPTY_GROUP)
    return group


def _response(
    request: OffsetDeleteRequest, get_error: Callable[[str, int], ErrorCode]
) -> OffsetDeleteResponse:
    return OffsetDeleteResponse(
        error_code=ErrorCode.NONE,
        topics=[
            OffsetDeleteResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetDeleteResponsePartition(
                        partition_index=requested.partition_index,
                        error_code=get_error(topic.name, requested.partition_index),
                    )
                    for requested in topic.partitions
                ],
            )
            for topic in request.topics
        ],
    )

"""AlterShareGroupOffsets: start the share partitions of an empty group elsewhere (KIP-932)."""

from __future__ import annotations

from uuid import UUID

from aiokafkawire.broker.acls import AclOperation, ResourceType
from aiokafkawire.broker.api_error import ApiError
from aiokafkawire.broker.apis.group_requests import check_coordinator
from aiokafkawire.broker.apis.share_requests import NOT_HERE, check_share_groups
from aiokafkawire.broker.groups.events import Result
from aiokafkawire.broker.groups.share_group.events import StatesChanged
from aiokafkawire.broker.request_context import RequestContext
from aiokafkawire.runtime import Future
from aiokafkawire.wire import ZERO_UUID, ErrorCode
from aiokafkawire.wire.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestTopic,
    AlterShareGroupOffsetsResponse,
    AlterShareGroupOffsetsResponsePartition,
    AlterShareGroupOffsetsResponseTopic,
)

__all__ = ("NOT_EMPTY", "error_response", "handle")

NOT_EMPTY = "The group is not empty."

Offsets = dict[tuple[UUID, int], int]


async def handle(
    context: RequestContext, request: AlterShareGroupOffsetsRequest
) -> AlterShareGroupOffsetsResponse:
    offsets: Offsets = {}
    try:
        check_share_groups(context)
        check_coordinator(context, request.group_id, AclOperation.READ)
        topics = [_topic(context, topic, offsets) for topic in request.topics]
        _alter(context, request.group_id, offsets)
    except ApiError as error:
        response = error_response(request, context.version, error.code)
        response.error_message = error.message
        return response
    return AlterShareGroupOffsetsResponse(
        throttle_time_ms=0, error_code=ErrorCode.NONE, responses=topics
    )


def error_response(
    request: AlterShareGroupOffsetsRequest, version: int, code: int
) -> AlterShareGroupOffsetsResponse:
    return AlterShareGroupOffsetsResponse(throttle_time_ms=0, error_code=code, responses=[])


def _alter(context: RequestContext, group_id: str, offsets: Offsets) -> None:
    groups, names = context.state.group_coordinator, context.cluster
    event = StatesChanged(
        reply=Future[Result](),
        initialized=tuple(
            (topic, names.topic_by_id(topic).name, partition) for topic, partition in offsets
        ),
    )
    code = groups.change_share_states(group_id, event)
    if code:
        message = NOT_EMPTY if code is ErrorCode.NON_EMPTY_GROUP else None
        raise ApiError(code, message)
    groups.share_groups.reset(group_id, offsets)


def _topic(
    context: RequestContext, topic: AlterShareGroupOffsetsRequestTopic, offsets: Offsets
) -> AlterShareGroupOffsetsResponseTopic:
    """Return the result of a topic; add the valid offsets to `offsets`."""
    known = context.cluster.topics.get(topic.topic_name)
    is_readable = context.is_authorized(AclOperation.READ, ResourceType.TOPIC, topic.topic_name)
    results = []
    for requested in topic.partitions:
        index = requested.partition_index
        code, message = ErrorCode.NONE, None
        if not is_readable:
            code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        elif known is None or not 0 <= index < len(known.partitions):
            code, message = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, NOT_HERE
        else:
            offsets[known.topic_id, index] = requested.start_offset
        results.append(
            AlterShareGroupOffsetsResponsePartition(
                partition_index=index, error_code=code, error_message=message
            )
        )
    return AlterShareGroupOffsetsResponseTopic(
        topic_name=topic.topic_name,
        topic_id=ZERO_UUID if known is None else known.topic_id,
        partitions=results,
    )

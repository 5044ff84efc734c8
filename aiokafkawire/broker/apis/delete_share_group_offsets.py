"""DeleteShareGroupOffsets: delete the offsets of topics of an empty share group (KIP-932)."""

from __future__ import annotations

from uuid import UUID

from aiokafkawire.broker.acls import AclOperation, ResourceType
from aiokafkawire.broker.api_error import ApiError
from aiokafkawire.broker.apis.alter_share_group_offsets import NOT_EMPTY
from aiokafkawire.broker.apis.group_requests import check_coordinator
from aiokafkawire.broker.apis.share_requests import NOT_HERE, check_share_groups
from aiokafkawire.broker.groups.events import Result
from aiokafkawire.broker.groups.share_group.events import StatesChanged
from aiokafkawire.broker.groups.share_group.group import ShareGroup
from aiokafkawire.broker.request_context import RequestContext
from aiokafkawire.runtime import Future
from aiokafkawire.wire import ZERO_UUID, ErrorCode
from aiokafkawire.wire.messages.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsResponse,
    DeleteShareGroupOffsetsResponseTopic,
)

__all__ = ("error_response", "handle")

NOTHING_TO_DELETE = "There is no offset information to delete."


async def handle(
    context: RequestContext, request: DeleteShareGroupOffsetsRequest
) -> DeleteShareGroupOffsetsResponse:
    deleted: list[UUID] = []
    try:
        check_share_groups(context)
        check_coordinator(context, request.group_id, AclOperation.DELETE)
        group = _group(context, request.group_id)
        topics = [_topic(context, group, each.topic_name, deleted) for each in request.topics]
        event = StatesChanged(reply=Future[Result](), deleted=tuple(deleted))
        code = context.state.group_coordinator.change_share_states(request.group_id, event)
        if code:
            raise ApiError(code, NOT_EMPTY if code is ErrorCode.NON_EMPTY_GROUP else None)
        context.state.group_coordinator.share_groups.delete_states(request.group_id, deleted)
    except ApiError as error:
        response = error_response(request, context.version, error.code)
        response.error_message = error.message
        return response
    return DeleteShareGroupOffsetsResponse(
        throttle_time_ms=0, error_code=ErrorCode.NONE, responses=topics
    )


def error_response(
    request: DeleteShareGroupOffsetsRequest, version: int, code: int
) -> DeleteShareGroupOffsetsResponse:
    return DeleteShareGroupOffsetsResponse(throttle_time_ms=0, error_code=code, responses=[])


def _group(context: RequestContext, group_id: str) -> ShareGroup:
    group = context.state.group_coordinator.get(group_id)
    if not isinstance(group, ShareGroup):
        reason = "not found." if group is None else "is not a share group."
        raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} {reason}")
    return group


def _topic(
    context: RequestContext, group: ShareGroup, name: str, deleted: list[UUID]
) -> DeleteShareGroupOffsetsResponseTopic:
    """Return the result of a topic; add its id to `deleted` if the group has offsets of it."""
    topic = context.cluster.topics.get(name)
    topic_id = ZERO_UUID
    code, message = ErrorCode.NONE, None
    if not context.is_authorized(AclOperation.READ, ResourceType.TOPIC, name):
        code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    elif topic is None:
        code, message = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, NOT_HERE
    elif topic.topic_id not in group.data.initialized:
        code, message = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, NOTHING_TO_DELETE
    else:
        topic_id = topic.topic_id
        deleted.append(topic_id)
    return DeleteShareGroupOffsetsResponseTopic(
        topic_name=name, topic_id=topic_id, error_code=code, error_message=message
    )

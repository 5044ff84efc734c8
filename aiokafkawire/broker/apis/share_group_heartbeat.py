"""ShareGroupHeartbeat: join, heartbeat and leave of members of a share group (KIP-932)."""

from __future__ import annotations

from aiokafkawire.broker.acls import AclOperation, ResourceType
from aiokafkawire.broker.api_error import ApiError
from aiokafkawire.broker.apis.share_requests import check_share_groups
from aiokafkawire.broker.groups.consumer_group.member import JOIN_EPOCH, LEAVE_EPOCH
from aiokafkawire.broker.groups.events import HeartbeatResult
from aiokafkawire.broker.groups.share_group.events import ShareGroupHeartbeat
from aiokafkawire.broker.request_context import RequestContext
from aiokafkawire.runtime import Future
from aiokafkawire.wire import ErrorCode
from aiokafkawire.wire.messages.share_group_heartbeat import (
    ShareGroupHeartbeatAssignment,
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
    ShareGroupHeartbeatTopicPartitions,
)

__all__ = ("error_response", "handle")


async def handle(
    context: RequestContext, request: ShareGroupHeartbeatRequest
) -> ShareGroupHeartbeatResponse:
    try:
        result = _heartbeat(context, request)
    except ApiError as error:
        result = HeartbeatResult(code=error.code, message=error.message)
    return ShareGroupHeartbeatResponse(
        throttle_time_ms=0,
        error_code=result.code,
        error_message=result.message,
        member_id=result.member_id,
        member_epoch=result.member_epoch,
        heartbeat_interval_ms=result.heartbeat_interval_ms,
        assignment=None
        if result.assignment is None
        else ShareGroupHeartbeatAssignment(
            topic_partitions=[
                ShareGroupHeartbeatTopicPartitions(topic_id=topic, partitions=sorted(parts))
                for topic, parts in result.assignment.items()
            ]
        ),
    )


def error_response(
    request: ShareGroupHeartbeatRequest, version: int, code: int
) -> ShareGroupHeartbeatResponse:
    return ShareGroupHeartbeatResponse(
        throttle_time_ms=0, error_code=code, member_epoch=0, heartbeat_interval_ms=0
    )


def _heartbeat(context: RequestContext, request: ShareGroupHeartbeatRequest) -> HeartbeatResult:
    check_share_groups(context)
    context.authorize(AclOperation.READ, ResourceType.GROUP, request.group_id)
    for name in request.subscribed_topic_names or ():
        context.authorize(AclOperation.DESCRIBE, ResourceType.TOPIC, name)
    _check_request(request)
    context.check_coordinator(request.group_id)
    names = request.subscribed_topic_names
    event = ShareGroupHeartbeat(
        reply=Future[HeartbeatResult](),
        member_id=request.member_id,
        member_epoch=request.member_epoch,
        rack_id=request.rack_id,
        subscribed_names=None if names is None else tuple(names),
        client_id=context.client_id,
        client_host=f"/{context.connection.host}",
        timestamp_ms=context.state.clock.wall_ms(),
    )
    return context.state.group_coordinator.share_heartbeat(request.group_id, event)


def _check_request(request: ShareGroupHeartbeatRequest) -> None:
    """Raise `ApiError` if the request is invalid by itself, in the order of Kafka's checks."""
    invalid = ErrorCode.INVALID_REQUEST
    if not request.member_id:
        raise ApiError(invalid)
    if not request.group_id:
        raise ApiError(invalid, "GroupId can't be empty.")
    if request.rack_id is not None and not request.rack_id:
        raise ApiError(invalid, "RackId can't be empty.")
    if request.member_epoch == JOIN_EPOCH and request.subscribed_topic_names is None:
        raise ApiError(invalid, "SubscribedTopicNames must be set in first request.")
    if request.member_epoch < LEAVE_EPOCH:
        raise ApiError(invalid, "MemberEpoch is invalid.")

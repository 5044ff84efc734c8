"""ConsumerGroupHeartbeat: join, heartbeat and leave of the consumer protocol (KIP-848)."""

from __future__ import annotations

from aiokafkawire.broker.acls import AclOperation, ResourceType
from aiokafkawire.broker.api_error import ApiError
from aiokafkawire.broker.features import GROUP_VERSION
from aiokafkawire.broker.groups.consumer_group.assignors import ASSIGNORS
from aiokafkawire.broker.groups.consumer_group.events import ConsumerGroupHeartbeat
from aiokafkawire.broker.groups.consumer_group.member import JOIN_EPOCH, LEAVE_STATIC_EPOCH
from aiokafkawire.broker.groups.events import HeartbeatResult
from aiokafkawire.broker.request_context import RequestContext
from aiokafkawire.runtime import Future
from aiokafkawire.wire import ErrorCode
from aiokafkawire.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatAssignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    ConsumerGroupHeartbeatTopicPartitions,
)

__all__ = ("error_response", "handle")

FIRST_CLIENT_ID_VERSION = 1


async def handle(
    context: RequestContext, request: ConsumerGroupHeartbeatRequest
) -> ConsumerGroupHeartbeatResponse:
    try:
        result = _heartbeat(context, request)
    except ApiError as error:
        result = HeartbeatResult(code=error.code, message=error.message)
    return ConsumerGroupHeartbeatResponse(
        throttle_time_ms=0,
        error_code=result.code,
        error_message=result.message,
        member_id=result.member_id,
        member_epoch=result.member_epoch,
        heartbeat_interval_ms=result.heartbeat_interval_ms,
        assignment=None
        if result.assignment is None
        else ConsumerGroupHeartbeatAssignment(
            topic_partitions=[
                ConsumerGroupHeartbeatTopicPartitions(topic_id=topic, partitions=sorted(parts))
                for topic, parts in result.assignment.items()
            ]
        ),
    )


def error_response(
    request: ConsumerGroupHeartbeatRequest, version: int, code: int
) -> ConsumerGroupHeartbeatResponse:
    return ConsumerGroupHeartbeatResponse(
        throttle_time_ms=0, error_code=code, member_epoch=0, heartbeat_interval_ms=0
    )


def _heartbeat(context: RequestContext, request: ConsumerGroupHeartbeatRequest) -> HeartbeatResult:
    if not context.state.finalized_features.get(GROUP_VERSION):
        raise ApiError(ErrorCode.UNSUPPORTED_VERSION)
    context.authorize(AclOperation.READ, ResourceType.GROUP, request.group_id)
    _check_topics(context, request)
    _check_request(request, context.version)
    context.check_coordinator(request.group_id)
    member_id = request.member_id
    if not member_id:
        member_id = context.state.group_coordinator.new_member_id()
    event = ConsumerGroupHeartbeat(
        reply=Future[HeartbeatResult](),
        member_id=member_id,
        member_epoch=request.member_epoch,
        instance_id=request.instance_id,
        rack_id=request.rack_id,
        rebalance_timeout_ms=request.rebalance_timeout_ms,
        subscribed_names=None
        if request.subscribed_topic_names is None
        else tuple(request.subscribed_topic_names),
        subscribed_regex=request.subscribed_topic_regex,
        server_assignor=request.server_assignor,
        owned=None
        if request.topic_partitions is None
        else {each.topic_id: frozenset(each.partitions) for each in request.topic_partitions},
        client_id=context.client_id,
        client_host=f"/{context.connection.host}",
        timestamp_ms=context.state.clock.wall_ms(),
    )

    def is_visible(topic: str) -> bool:
        return context.is_authorized(AclOperation.DESCRIBE, ResourceType.TOPIC, topic)

    return context.state.group_coordinator.heartbeat(request.group_id, event, is_visible)


def _check_topics(context: RequestContext, request: ConsumerGroupHeartbeatRequest) -> None:
    for name in request.subscribed_topic_names or ():
        context.authorize(AclOperation.DESCRIBE, ResourceType.TOPIC, name)


def _check_request(request: ConsumerGroupHeartbeatRequest, version: int) -> None:
    """Raise `ApiError` if the request is invalid by itself, in the order of Kafka's checks."""
    epoch = request.member_epoch
    chooses_id = version >= FIRST_CLIENT_ID_VERSION or epoch != JOIN_EPOCH
    invalid = ErrorCode.INVALID_REQUEST
    if not request.group_id:
        raise ApiError(invalid, "GroupId can't be empty.")
    if chooses_id and not request.member_id:
        raise ApiError(invalid, "MemberId can't be empty.")
    if request.instance_id is not None and not request.instance_id:
        raise ApiError(invalid, "InstanceId can't be empty.")
    if request.rack_id is not None and not request.rack_id:
        raise ApiError(invalid, "RackId can't be empty.")
    if epoch == JOIN_EPOCH:
        _check_join(request)
    elif epoch == LEAVE_STATIC_EPOCH and request.instance_id is None:
        raise ApiError(invalid, "InstanceId can't be null.")
    elif epoch < LEAVE_STATIC_EPOCH:
        raise ApiError(invalid, "MemberEpoch is invalid.")
    assignor = request.server_assignor
    if assignor is not None and assignor not in ASSIGNORS:
        raise ApiError(
            ErrorCode.UNSUPPORTED_ASSIGNOR,
            f"ServerAssignor {assignor} is not supported. Supported assignors:"
            f" {', '.join(ASSIGNORS)}.",
        )


def _check_join(request: ConsumerGroupHeartbeatRequest) -> None:
    invalid = ErrorCode.INVALID_REQUEST
    if request.rebalance_timeout_ms == -1:
        raise ApiError(invalid, "RebalanceTimeoutMs must be provided in first request.")
    if request.topic_partitions is None or request.topic_partitions:
        raise ApiError(invalid, "TopicPartitions must be empty when (re-)joining.")
    if request.subscribed_topic_names is None and request.subscribed_topic_regex is None:
        raise ApiError(
            invalid,
            "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when"
            " (re-)joining.",
        )

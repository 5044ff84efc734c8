"""Conversion of the coordinator's responses and of failures to events."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from aiokafkawire.errors import GroupFailed, KafkaError, ProtocolError, UnknownServerError
from aiokafkawire.wire import consumer_protocol
from aiokafkawire.wire.error_codes import ErrorCode, error_for
from aiokafkawire.wire.messages.heartbeat import HeartbeatResponse
from aiokafkawire.wire.messages.join_group import JoinGroupResponse
from aiokafkawire.wire.messages.sync_group import SyncGroupResponse

from .membership import events, states

__all__ = (
    "failure_event",
    "group_error",
    "heartbeat_event",
    "join_event",
    "sync_event",
)

_EVENTS_BY_CODE: Mapping[int, Callable[[int], events.RequestCompleted]] = {
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: events.CoordinatorLoadInProgress,
    ErrorCode.COORDINATOR_NOT_AVAILABLE: events.CoordinatorUnavailable,
    ErrorCode.NOT_COORDINATOR: events.CoordinatorUnavailable,
    ErrorCode.REQUEST_TIMED_OUT: events.CoordinatorUnavailable,
    ErrorCode.UNKNOWN_MEMBER_ID: events.UnknownMemberId,
    ErrorCode.ILLEGAL_GENERATION: events.IllegalGeneration,
    ErrorCode.REBALANCE_IN_PROGRESS: events.RebalanceInProgress,
}

_GROUP_FAILURE_CODES = frozenset(
    {
        ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
        ErrorCode.INVALID_GROUP_ID,
        ErrorCode.INVALID_SESSION_TIMEOUT,
        ErrorCode.GROUP_MAX_SIZE_REACHED,
    }
)


def group_error(
    code: int, api: str, broker: str | None = None, group: str | None = None
) -> KafkaError:
    """Return the exception for an error code of a group API."""
    error = error_for(code, api=api, broker=broker, group=group)
    if code not in _GROUP_FAILURE_CODES:
        return error
    failed = GroupFailed(error.reason, api=api, broker=broker, group=group)
    failed.__cause__ = error
    return failed


def _error_event(request: int, code: int, api: str, broker: str | None) -> events.RequestCompleted:
    event = _EVENTS_BY_CODE.get(code)
    if event is not None:
        return event(request)
    error = group_error(code, api, broker)
    if code == ErrorCode.FENCED_INSTANCE_ID:
        return events.InstanceFenced(request, error)
    if isinstance(error, UnknownServerError):
        return events.UnknownServerErrorReceived(request, error)
    return (
        events.CoordinatorUnavailable(request)
        if error.retriable
        else events.FatalErrorOccurred(request, error)
    )


def failure_event(request: int, error: KafkaError) -> events.RequestCompleted:
    """Return the event for a request without a response."""
    if error.retriable:
        return events.CoordinatorUnavailable(request)
    if isinstance(error, ProtocolError):
        return events.ProtocolViolation(request, str(error))
    return events.FatalErrorOccurred(request, error)


def join_event(
    request: int, response: JoinGroupResponse, offered: Collection[str], broker: str | None = None
) -> events.RequestCompleted:
    """Return the event for a JoinGroup response.

    `offered` are the names of the assignors in the request.
    """
    code = response.error_code
    if code == ErrorCode.MEMBER_ID_REQUIRED:
        return events.MemberIdAssigned(request, response.member_id)
    if code == ErrorCode.INVALID_SESSION_TIMEOUT:
        return events.SessionTimeoutRejected(request, group_error(code, "JoinGroup", broker))
    if code != ErrorCode.NONE:
        return _error_event(request, code, "JoinGroup", broker)
    protocol = response.protocol_name or ""
    if protocol not in offered:
        return events.ProtocolViolation(request, f"assignor {protocol!r} was not offered")
    if response.leader != response.member_id:
        return events.JoinedAsFollower(
            request,
            response.member_id,
            response.generation_id,
            protocol,
            coordinator_assigns=not response.leader,
        )
    members = tuple(
        states.JoinedMember(member.member_id, member.group_instance_id, bytes(member.metadata))
        for member in response.members
    )
    return events.JoinedAsLeader(
        request,
        response.member_id,
        response.generation_id,
        protocol,
        members,
        response.skip_assignment,
    )


def sync_event(
    request: int, response: SyncGroupResponse, broker: str | None = None
) -> events.RequestCompleted:
    """Return the event for a SyncGroup response."""
    if response.error_code != ErrorCode.NONE:
        return _error_event(request, response.error_code, "SyncGroup", broker)
    try:
        assignment = consumer_protocol.decode_assignment(response.assignment)
    except ProtocolError as error:
        return events.ProtocolViolation(request, f"invalid assignment: {error}")
    partitions = consumer_protocol.flatten_by_topic(assignment.assigned_partitions)
    return events.Synced(request, tuple(partitions))


def heartbeat_event(
    request: int, response: HeartbeatResponse, broker: str | None = None
) -> events.RequestCompleted:
    """Return the event for a Heartbeat response."""
    if response.error_code != ErrorCode.NONE:
        return _error_event(request, response.error_code, "Heartbeat", broker)
    return events.HeartbeatSucceeded(request)

"""What the coordinator's answers mean to a member: responses and failures become events."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from aiokafkawire.errors import GroupFailed, KafkaError, ProtocolError, UnknownServerError
from aiokafkawire.wire import consumer_protocol
from aiokafkawire.wire.error_codes import ErrorCode, error_for
from aiokafkawire.wire.messages.heartbeat import HeartbeatResponse
from aiokafkawire.wire.messages.join_group import JoinGroupResponse
from aiokafkawire.wire.messages.sync_group import SyncGroupResponse

from . import events as on
from . import states as s

__all__ = (
    "failure",
    "group_error",
    "heartbeat_answer",
    "join_answer",
    "sync_answer",
)

_MEANINGS: Mapping[int, Callable[[int], on.Answer]] = {
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: on.CoordinatorLoading,
    ErrorCode.COORDINATOR_NOT_AVAILABLE: on.CoordinatorLost,
    ErrorCode.NOT_COORDINATOR: on.CoordinatorLost,
    ErrorCode.REQUEST_TIMED_OUT: on.CoordinatorLost,
    ErrorCode.UNKNOWN_MEMBER_ID: on.MemberUnknown,
    ErrorCode.ILLEGAL_GENERATION: on.GenerationOutdated,
    ErrorCode.REBALANCE_IN_PROGRESS: on.RebalanceBegan,
}

_GROUP_CODES = frozenset(
    {
        ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
        ErrorCode.INVALID_GROUP_ID,
        ErrorCode.INVALID_SESSION_TIMEOUT,
        ErrorCode.GROUP_MAX_SIZE_REACHED,
    }
)


def group_error(code: int, api: str, broker: str | None = None) -> KafkaError:
    """The exception for an error code of a group API."""
    error = error_for(code, api=api, broker=broker)
    if code not in _GROUP_CODES:
        return error
    failed = GroupFailed(error.reason, api=api, broker=broker)
    failed.__cause__ = error
    return failed


def _error(request: int, code: int, api: str, broker: str | None) -> on.Answer:
    meaning = _MEANINGS.get(code)
    if meaning is not None:
        return meaning(request)
    error = group_error(code, api, broker)
    if code == ErrorCode.FENCED_INSTANCE_ID:
        return on.InstanceFenced(request, error)
    if isinstance(error, UnknownServerError):
        return on.ServerFailed(request, error)
    return on.CoordinatorLost(request) if error.retriable else on.Refused(request, error)


def failure(request: int, error: KafkaError) -> on.Answer:
    """The event of a request that got no answer."""
    if error.retriable:
        return on.CoordinatorLost(request)
    if isinstance(error, ProtocolError):
        return on.Contradicted(request, str(error))
    return on.Refused(request, error)


def join_answer(
    request: int, response: JoinGroupResponse, offered: Collection[str], broker: str | None = None
) -> on.Answer:
    """Read an answer to JoinGroup; `offered` are the names of the assignors that were listed."""
    code = response.error_code
    if code == ErrorCode.MEMBER_ID_REQUIRED:
        return on.MemberIdAssigned(request, response.member_id)
    if code == ErrorCode.INVALID_SESSION_TIMEOUT:
        return on.SessionTimeoutRefused(request, group_error(code, "JoinGroup", broker))
    if code != ErrorCode.NONE:
        return _error(request, code, "JoinGroup", broker)
    protocol = response.protocol_name or ""
    if protocol not in offered:
        return on.Contradicted(request, f"it chose the assignor {protocol!r}, not one of ours")
    if response.leader != response.member_id:
        return on.JoinedAsFollower(request, response.member_id, response.generation_id, protocol)
    members = tuple(
        s.JoinedMember(member.member_id, member.group_instance_id, bytes(member.metadata))
        for member in response.members
    )
    return on.JoinedAsLeader(
        request,
        response.member_id,
        response.generation_id,
        protocol,
        members,
        response.skip_assignment,
    )


def sync_answer(request: int, response: SyncGroupResponse, broker: str | None = None) -> on.Answer:
    """Read an answer to SyncGroup."""
    if response.error_code != ErrorCode.NONE:
        return _error(request, response.error_code, "SyncGroup", broker)
    try:
        assignment = consumer_protocol.decode_assignment(response.assignment)
    except ProtocolError as error:
        return on.Contradicted(request, f"its assignment cannot be read: {error}")
    partitions = consumer_protocol.flatten_by_topic(assignment.assigned_partitions)
    return on.Synced(request, tuple(partitions))


def heartbeat_answer(
    request: int, response: HeartbeatResponse, broker: str | None = None
) -> on.Answer:
    """Read an answer to Heartbeat."""
    if response.error_code != ErrorCode.NONE:
        return _error(request, response.error_code, "Heartbeat", broker)
    return on.HeartbeatAnswered(request)

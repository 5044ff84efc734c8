from __future__ import annotations

from typing import Any

import pytest

from aiokafkawire.errors import (
    AuthenticationFailed,
    ConnectionLost,
    GroupFailed,
    MalformedMessage,
    UnsupportedVersion,
)
from aiokafkawire.group import responses
from aiokafkawire.group.membership import events, states
from aiokafkawire.types import TopicPartition
from aiokafkawire.wire import ErrorCode
from aiokafkawire.wire.consumer_protocol import encode_assignment
from aiokafkawire.wire.messages.heartbeat import HeartbeatResponse
from aiokafkawire.wire.messages.join_group import JoinGroupResponse, JoinGroupResponseMember
from aiokafkawire.wire.messages.sync_group import SyncGroupResponse

MEANINGS = {
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: events.CoordinatorLoadInProgress,
    ErrorCode.COORDINATOR_NOT_AVAILABLE: events.CoordinatorUnavailable,
    ErrorCode.NOT_COORDINATOR: events.CoordinatorUnavailable,
    ErrorCode.REQUEST_TIMED_OUT: events.CoordinatorUnavailable,
    ErrorCode.ILLEGAL_GENERATION: events.IllegalGeneration,
    ErrorCode.UNKNOWN_MEMBER_ID: events.UnknownMemberId,
    ErrorCode.REBALANCE_IN_PROGRESS: events.RebalanceInProgress,
    ErrorCode.FENCED_INSTANCE_ID: events.InstanceFenced,
    ErrorCode.INCONSISTENT_GROUP_PROTOCOL: events.FatalErrorOccurred,
    ErrorCode.GROUP_AUTHORIZATION_FAILED: events.FatalErrorOccurred,
    ErrorCode.INVALID_GROUP_ID: events.FatalErrorOccurred,
    ErrorCode.GROUP_MAX_SIZE_REACHED: events.FatalErrorOccurred,
    ErrorCode.UNKNOWN_SERVER_ERROR: events.UnknownServerErrorReceived,
    12_345: events.UnknownServerErrorReceived,
}


def joined(**fields: Any) -> JoinGroupResponse:
    values: dict[str, Any] = {
        "error_code": 0,
        "generation_id": 3,
        "protocol_name": "range",
        "leader": "you",
        "member_id": "me",
        "members": [],
    }
    return JoinGroupResponse(**values | fields)


@pytest.mark.parametrize(("code", "event"), MEANINGS.items())
def test_error_codes_map_to_the_same_event_in_every_api(code: int, event: type) -> None:
    got = (
        responses.join_event(5, joined(error_code=code), ["range"], "b1"),
        responses.sync_event(5, SyncGroupResponse(error_code=code, assignment=b""), "b1"),
        responses.heartbeat_event(5, HeartbeatResponse(error_code=code), "b1"),
    )
    for answer, api in zip(got, ("JoinGroup", "SyncGroup", "Heartbeat"), strict=True):
        assert type(answer) is event
        assert answer.request == 5
        if isinstance(answer, events.FatalErrorOccurred | events.UnknownServerErrorReceived):
            assert (answer.error.api, answer.error.broker) == (api, "b1")


def test_group_limits_raise_group_failed() -> None:
    for code in (ErrorCode.INCONSISTENT_GROUP_PROTOCOL, ErrorCode.GROUP_MAX_SIZE_REACHED):
        error = responses.group_error(code, "JoinGroup")
        assert isinstance(error, GroupFailed)
        assert ErrorCode(code).name in str(error)


def test_join_responses() -> None:
    assert responses.join_event(5, joined(), ["range"]) == events.JoinedAsFollower(
        5, "me", 3, "range"
    )
    assert responses.join_event(5, joined(leader=""), ["range"]) == events.JoinedAsFollower(
        5, "me", 3, "range", coordinator_assigns=True
    )
    required = joined(error_code=ErrorCode.MEMBER_ID_REQUIRED)
    assert responses.join_event(5, required, ["range"]) == events.MemberIdAssigned(5, "me")
    refused = joined(error_code=ErrorCode.INVALID_SESSION_TIMEOUT)
    assert isinstance(responses.join_event(5, refused, ["range"]), events.SessionTimeoutRejected)
    member = JoinGroupResponseMember(member_id="me", group_instance_id="i", metadata=b"x")
    lead = responses.join_event(5, joined(leader="me", members=[member]), ["range"])
    expected = states.JoinedMember("me", "i", b"x")
    assert lead == events.JoinedAsLeader(5, "me", 3, "range", (expected,))


@pytest.mark.parametrize("name", [None, "", "sticky"])
def test_an_assignor_that_was_not_offered_is_a_protocol_violation(name: str | None) -> None:
    answer = responses.join_event(5, joined(protocol_name=name), ["range"])
    assert isinstance(answer, events.ProtocolViolation)


def test_sync_responses() -> None:
    partitions = (TopicPartition("a", 0), TopicPartition("a", 2))
    good = SyncGroupResponse(error_code=0, assignment=encode_assignment(partitions))
    assert responses.sync_event(5, good) == events.Synced(5, partitions)
    empty = SyncGroupResponse(error_code=0, assignment=b"")
    assert responses.sync_event(5, empty) == events.Synced(5, ())
    bad = SyncGroupResponse(error_code=0, assignment=b"\0\0\x7f\xff\xff\xff")
    assert isinstance(responses.sync_event(5, bad), events.ProtocolViolation)


@pytest.mark.parametrize(
    ("error", "event"),
    [
        (ConnectionLost("gone"), events.CoordinatorUnavailable),
        (MalformedMessage("nonsense"), events.ProtocolViolation),
        (UnsupportedVersion("too old"), events.FatalErrorOccurred),
        (AuthenticationFailed("no"), events.FatalErrorOccurred),
    ],
)
def test_failed_requests(error: Any, event: type) -> None:
    answer = responses.failure_event(5, error)
    assert type(answer) is event
    assert answer.request == 5

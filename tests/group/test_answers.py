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
from aiokafkawire.group import answers, states
from aiokafkawire.group import events as on
from aiokafkawire.types import TopicPartition
from aiokafkawire.wire import ErrorCode
from aiokafkawire.wire.consumer_protocol import encode_assignment
from aiokafkawire.wire.messages.heartbeat import HeartbeatResponse
from aiokafkawire.wire.messages.join_group import JoinGroupResponse, JoinGroupResponseMember
from aiokafkawire.wire.messages.sync_group import SyncGroupResponse

MEANINGS = {
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: on.CoordinatorLoading,
    ErrorCode.COORDINATOR_NOT_AVAILABLE: on.CoordinatorLost,
    ErrorCode.NOT_COORDINATOR: on.CoordinatorLost,
    ErrorCode.REQUEST_TIMED_OUT: on.CoordinatorLost,
    ErrorCode.ILLEGAL_GENERATION: on.GenerationOutdated,
    ErrorCode.UNKNOWN_MEMBER_ID: on.MemberUnknown,
    ErrorCode.REBALANCE_IN_PROGRESS: on.RebalanceBegan,
    ErrorCode.FENCED_INSTANCE_ID: on.InstanceFenced,
    ErrorCode.INCONSISTENT_GROUP_PROTOCOL: on.Refused,
    ErrorCode.GROUP_AUTHORIZATION_FAILED: on.Refused,
    ErrorCode.INVALID_GROUP_ID: on.Refused,
    ErrorCode.GROUP_MAX_SIZE_REACHED: on.Refused,
    ErrorCode.UNKNOWN_SERVER_ERROR: on.ServerFailed,
    12_345: on.ServerFailed,
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
def test_error_codes_mean_the_same_in_every_answer(code: int, event: type) -> None:
    got = (
        answers.join_answer(5, joined(error_code=code), ["range"], "b1"),
        answers.sync_answer(5, SyncGroupResponse(error_code=code, assignment=b""), "b1"),
        answers.heartbeat_answer(5, HeartbeatResponse(error_code=code), "b1"),
    )
    for answer, api in zip(got, ("JoinGroup", "SyncGroup", "Heartbeat"), strict=True):
        assert type(answer) is event
        assert answer.request == 5
        if isinstance(answer, on.Refused | on.ServerFailed):
            assert (answer.error.api, answer.error.broker) == (api, "b1")


def test_limits_of_the_group_are_group_failures() -> None:
    for code in (ErrorCode.INCONSISTENT_GROUP_PROTOCOL, ErrorCode.GROUP_MAX_SIZE_REACHED):
        error = answers.group_error(code, "JoinGroup")
        assert isinstance(error, GroupFailed)
        assert ErrorCode(code).name in str(error)


def test_join_answers() -> None:
    assert answers.join_answer(5, joined(), ["range"]) == on.JoinedAsFollower(5, "me", 3, "range")
    required = joined(error_code=ErrorCode.MEMBER_ID_REQUIRED)
    assert answers.join_answer(5, required, ["range"]) == on.MemberIdAssigned(5, "me")
    refused = joined(error_code=ErrorCode.INVALID_SESSION_TIMEOUT)
    assert isinstance(answers.join_answer(5, refused, ["range"]), on.SessionTimeoutRefused)
    member = JoinGroupResponseMember(member_id="me", group_instance_id="i", metadata=b"x")
    lead = answers.join_answer(5, joined(leader="me", members=[member]), ["range"])
    expected = states.JoinedMember("me", "i", b"x")
    assert lead == on.JoinedAsLeader(5, "me", 3, "range", (expected,))


@pytest.mark.parametrize("name", [None, "", "sticky"])
def test_an_assignor_that_was_not_offered_is_a_contradiction(name: str | None) -> None:
    answer = answers.join_answer(5, joined(protocol_name=name), ["range"])
    assert isinstance(answer, on.Contradicted)


def test_sync_answers() -> None:
    partitions = (TopicPartition("a", 0), TopicPartition("a", 2))
    good = SyncGroupResponse(error_code=0, assignment=encode_assignment(partitions))
    assert answers.sync_answer(5, good) == on.Synced(5, partitions)
    empty = SyncGroupResponse(error_code=0, assignment=b"")
    assert answers.sync_answer(5, empty) == on.Synced(5, ())
    bad = SyncGroupResponse(error_code=0, assignment=b"\0\0\x7f\xff\xff\xff")
    assert isinstance(answers.sync_answer(5, bad), on.Contradicted)


@pytest.mark.parametrize(
    ("error", "event"),
    [
        (ConnectionLost("gone"), on.CoordinatorLost),
        (MalformedMessage("nonsense"), on.Contradicted),
        (UnsupportedVersion("too old"), on.Refused),
        (AuthenticationFailed("no"), on.Refused),
    ],
)
def test_failures(error: Any, event: type) -> None:
    answer = answers.failure(5, error)
    assert type(answer) is event
    assert answer.request == 5

"""Events for ConsumerGroupHeartbeat responses, hostile ones included."""

from __future__ import annotations

from functools import partial
from typing import Any
from uuid import UUID

import anyio
import anyio.lowlevel
import pytest

from aiokafkawire.cluster.routing import ToNode
from aiokafkawire.config import ConsumerConfig, ShareConsumerConfig
from aiokafkawire.connection import VersionedRequest
from aiokafkawire.errors import ConnectionFailed, GroupFailed, UnsupportedVersion
from aiokafkawire.group.consumer_protocol.effects import SendConsumerHeartbeat, SendLeaveEpoch
from aiokafkawire.group.consumer_protocol.events import (
    HeartbeatResponded,
    InstanceIdUnreleased,
    MemberFenced,
    ProtocolUnavailable,
)
from aiokafkawire.group.consumer_protocol.states import TargetAssignment
from aiokafkawire.group.consumer_requests import CONSUMER_HEARTBEAT, ConsumerGroupRequests
from aiokafkawire.group.heartbeat_requests import HeartbeatApi, HeartbeatRequests
from aiokafkawire.group.heartbeat_requests import heartbeat_event as event_of_protocol
from aiokafkawire.group.membership import events
from aiokafkawire.group.share_requests import ShareGroupRequests
from aiokafkawire.group.topic_id_partition import TopicIdPartition
from aiokafkawire.runtime import RealRuntime
from aiokafkawire.wire import ErrorCode
from aiokafkawire.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatAssignment,
    ConsumerGroupHeartbeatResponse,
    ConsumerGroupHeartbeatTopicPartitions,
)

ORDERS, OTHER = UUID(int=1), UUID(int=2)
NAMES = {ORDERS: "orders"}
JOIN = SendConsumerHeartbeat(7, 1, 0, full=True, topics=("orders",), owned=())
HEARTBEAT = SendConsumerHeartbeat(7, 1, 4, full=False, topics=None, owned=None)


heartbeat_event = partial(event_of_protocol, CONSUMER_HEARTBEAT)


def response(**fields: Any) -> ConsumerGroupHeartbeatResponse:
    return ConsumerGroupHeartbeatResponse(
        **{
            "throttle_time_ms": 0,
            "error_code": 0,
            "member_epoch": 5,
            "heartbeat_interval_ms": 5_000,
        }
        | fields
    )


def assignment(**partitions: Any) -> ConsumerGroupHeartbeatAssignment:
    return ConsumerGroupHeartbeatAssignment(
        topic_partitions=[
            ConsumerGroupHeartbeatTopicPartitions(topic_id=topic_id, partitions=numbers)
            for topic_id, numbers in partitions["topics"]
        ]
    )


def test_an_assignment_with_known_and_unknown_topics() -> None:
    event = heartbeat_event(
        HEARTBEAT, response(assignment=assignment(topics=[(ORDERS, [1, 0]), (OTHER, [3])])), NAMES
    )
    owned = (TopicIdPartition(ORDERS, "orders", 0), TopicIdPartition(ORDERS, "orders", 1))
    assert event == HeartbeatResponded(7, 5, 5.0, TargetAssignment(owned, {OTHER: (3,)}))


def test_no_assignment_is_not_an_empty_one() -> None:
    unchanged = heartbeat_event(HEARTBEAT, response(), NAMES)
    nothing = heartbeat_event(HEARTBEAT, response(assignment=assignment(topics=[])), NAMES)
    assert unchanged == HeartbeatResponded(7, 5, 5.0, None)
    assert nothing == HeartbeatResponded(7, 5, 5.0, TargetAssignment())


def test_repeated_and_negative_partitions_are_dropped() -> None:
    event = heartbeat_event(
        HEARTBEAT, response(assignment=assignment(topics=[(ORDERS, [1, -1, 1])])), NAMES
    )
    assert isinstance(event, HeartbeatResponded)
    assert event.target == TargetAssignment((TopicIdPartition(ORDERS, "orders", 1),))


@pytest.mark.parametrize(
    ("interval_ms", "expected_s"), [(0, 0.01), (-5, 0.01), (2**31 - 1, 3_600.0)]
)
def test_an_impossible_interval_is_bounded(interval_ms: int, expected_s: float) -> None:
    event = heartbeat_event(HEARTBEAT, response(heartbeat_interval_ms=interval_ms), NAMES)
    assert isinstance(event, HeartbeatResponded)
    assert event.interval_s == expected_s


@pytest.mark.parametrize("epoch", [0, -1, -2])
def test_an_epoch_that_no_member_has(epoch: int) -> None:
    event = heartbeat_event(HEARTBEAT, response(member_epoch=epoch), NAMES)
    assert isinstance(event, events.ProtocolViolation)


@pytest.mark.parametrize(
    ("code", "joining", "member"),
    [
        (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, events.CoordinatorLoadInProgress, None),
        (ErrorCode.NOT_COORDINATOR, events.CoordinatorUnavailable, None),
        (ErrorCode.COORDINATOR_NOT_AVAILABLE, events.CoordinatorUnavailable, None),
        (ErrorCode.UNKNOWN_MEMBER_ID, MemberFenced, None),
        (ErrorCode.FENCED_MEMBER_EPOCH, MemberFenced, None),
        (ErrorCode.GROUP_ID_NOT_FOUND, ProtocolUnavailable, MemberFenced),
        (ErrorCode.UNSUPPORTED_VERSION, ProtocolUnavailable, None),
        (ErrorCode.FENCED_INSTANCE_ID, events.InstanceFenced, None),
        (ErrorCode.UNRELEASED_INSTANCE_ID, InstanceIdUnreleased, None),
        (ErrorCode.GROUP_AUTHORIZATION_FAILED, events.FatalErrorOccurred, None),
        (ErrorCode.INVALID_REQUEST, events.FatalErrorOccurred, None),
        (ErrorCode.UNKNOWN_SERVER_ERROR, events.UnknownServerErrorReceived, None),
        (ErrorCode.NETWORK_EXCEPTION, events.CoordinatorUnavailable, None),
        (9_999, events.UnknownServerErrorReceived, None),
    ],
)
def test_error_codes(code: int, joining: type, member: type | None) -> None:
    failed = response(error_code=code, member_epoch=0, heartbeat_interval_ms=0)
    assert type(heartbeat_event(JOIN, failed, NAMES)) is joining
    assert type(heartbeat_event(HEARTBEAT, failed, NAMES)) is (member or joining)


@pytest.mark.parametrize(
    ("code", "kind", "advice"),
    [
        (ErrorCode.UNSUPPORTED_VERSION, UnsupportedVersion, "Kafka 4.0"),
        (ErrorCode.UNSUPPORTED_ASSIGNOR, GroupFailed, "group_remote_assignor"),
        (ErrorCode.GROUP_ID_NOT_FOUND, GroupFailed, "another type"),
        (ErrorCode.GROUP_MAX_SIZE_REACHED, GroupFailed, "max.size"),
    ],
)
def test_final_errors_have_the_text_of_the_coordinator_and_advice(
    code: int, kind: type, advice: str
) -> None:
    event = heartbeat_event(JOIN, response(error_code=code, error_message="its text"), NAMES)
    assert isinstance(event, events.FatalErrorOccurred | ProtocolUnavailable)
    assert type(event.error) is kind
    assert advice in str(event.error)
    assert kind is UnsupportedVersion or "its text" in str(event.error)


@pytest.mark.parametrize("api", [CONSUMER_HEARTBEAT, ShareGroupRequests.api])
def test_a_group_that_is_not_found_was_lost_or_has_another_type(api: HeartbeatApi) -> None:
    failed = response(error_code=ErrorCode.GROUP_ID_NOT_FOUND, error_message="Group g not found.")
    joined = event_of_protocol(api, HEARTBEAT, failed, NAMES)
    assert isinstance(joined, MemberFenced)
    assert joined.error.reason == (
        "GROUP_ID_NOT_FOUND: Group g not found. (the group was deleted, or the brokers started"
        " without their data)"
    )
    joining = event_of_protocol(api, JOIN, failed, NAMES)
    assert isinstance(joining, ProtocolUnavailable)
    assert "(a group of another type has this group_id; use another" in joining.error.reason


class ConnectingCluster:
    """A cluster whose connection to the coordinator opens later, for the leave request first."""

    def __init__(self) -> None:
        self.connected = anyio.Event()
        self.failure: Exception | None = None
        self.epochs: list[int] = []
        self.late_by = 5

    def finalized_feature_level(self, feature: str) -> int:
        return 1

    async def request(self, message: Any, *, to: Any, **options: Any) -> Any:
        await self.connected.wait()
        if isinstance(to, ToNode):
            for _ in range(self.late_by):
                await anyio.lowlevel.checkpoint()
            if self.failure is not None:
                raise self.failure
        built: Any = message.build(1) if isinstance(message, VersionedRequest) else message
        self.epochs.append(built.member_epoch)
        return response(member_epoch=max(built.member_epoch, 1))


def requests_to(cluster: Any, protocol: str) -> HeartbeatRequests:
    clock, options = RealRuntime().clock, {"bootstrap_servers": "localhost:1", "group_id": "g"}
    callbacks: Any = {
        "topic_names": dict,
        "on_result": lambda failure: None,
        "log": lambda *text, **fields: None,
    }
    if protocol == "share":
        share_config = ShareConsumerConfig(**options)  # type: ignore[arg-type]
        return ShareGroupRequests(cluster, clock, share_config, "m", **callbacks)
    config = ConsumerConfig(**options)  # type: ignore[arg-type]
    callbacks["must_check_feature"] = lambda: False
    return ConsumerGroupRequests(cluster, clock, config, "m", **callbacks)


PROTOCOLS = pytest.mark.parametrize("protocol", ["consumer", "share"])


@PROTOCOLS
@pytest.mark.parametrize("failure", [None, ConnectionFailed("refused")])
async def test_a_member_that_joins_leaves_after_its_join_is_sent(
    failure: Any, protocol: str
) -> None:
    cluster = ConnectingCluster()
    cluster.failure = failure
    requests = requests_to(cluster, protocol)
    join: Any = requests.heartbeat(JOIN)
    leave: Any = requests.leave(SendLeaveEpoch(8, -1, RealRuntime().clock.now() + 5, "closed"))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(leave)
        tasks.start_soon(join)
        await anyio.lowlevel.checkpoint()
        cluster.connected.set()
    assert cluster.epochs == ([0, -1] if failure is None else [-1])


@PROTOCOLS
async def test_a_member_that_left_joins_after_its_leave_is_answered(protocol: str) -> None:
    cluster = ConnectingCluster()
    cluster.late_by = 0
    requests = requests_to(cluster, protocol)
    leave: Any = requests.leave(SendLeaveEpoch(6, -1, RealRuntime().clock.now() + 5, "failed"))
    join: Any = requests.heartbeat(JOIN)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(join)
        tasks.start_soon(leave)
        await anyio.lowlevel.checkpoint()
        cluster.connected.set()
    assert cluster.epochs == [-1, 0]

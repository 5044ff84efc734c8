"""Requests about groups: filters, fallbacks to older APIs, and what brokers return."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from aiokafkawire.admin import GroupListing, GroupState, GroupType
from aiokafkawire.cluster import ToNode
from aiokafkawire.errors import (
    BrokerError,
    ConnectionFailed,
    KafkaError,
    MalformedMessage,
    PartialFailure,
    UnsupportedVersion,
)
from aiokafkawire.types import TopicPartition
from aiokafkawire.wire import ApiKey, ErrorCode
from aiokafkawire.wire.messages import consumer_group_describe as consumer_groups
from aiokafkawire.wire.messages.delete_groups import DeletableGroupResult, DeleteGroupsResponse
from aiokafkawire.wire.messages.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsResponse,
)
from aiokafkawire.wire.messages.leave_group import LeaveGroupResponse, MemberResponse
from aiokafkawire.wire.messages.list_groups import ListedGroup, ListGroupsResponse
from tests.admin.scripted import ScriptedAdmin, ScriptedCluster, coordinators_at

E = ErrorCode


@pytest.fixture
async def cluster(anyio_backend: object) -> ScriptedCluster:
    cluster = ScriptedCluster()
    cluster.answer(ApiKey.FIND_COORDINATOR, coordinators_at(2))
    return cluster


@pytest.fixture
async def admin(cluster: ScriptedCluster) -> ScriptedAdmin:
    return ScriptedAdmin(cluster)


def listed(*groups: tuple[str, str, str, str], code: int = 0) -> Any:
    return lambda request: ListGroupsResponse(
        throttle_time_ms=0,
        error_code=code,
        groups=[
            ListedGroup(group_id=name, protocol_type=protocol, group_state=state, group_type=kind)
            for name, protocol, state, kind in groups
        ],
    )


def classic(
    group_id: str, code: int = 0, protocol_type: str = "consumer", assignment: bytes = b""
) -> DescribedGroup:
    member = DescribedGroupMember(
        member_id="m",
        client_id="c",
        client_host="/h",
        member_metadata=b"",
        member_assignment=assignment,
    )
    return DescribedGroup(
        error_code=code,
        group_id=group_id,
        group_state="Dead" if code else "Stable",
        protocol_type=protocol_type,
        protocol_data="range",
        members=[member] if assignment else [],
    )


def classics(*groups: DescribedGroup) -> Any:
    return lambda request: DescribeGroupsResponse(
        groups=[group for group in groups if group.group_id in request.groups]
    )


def described_consumer_group(group_id: str, code: int = 0) -> Any:
    topic = consumer_groups.ConsumerGroupDescribeTopicPartitions(
        topic_id=UUID(int=1), topic_name="t", partitions=[1, 0]
    )
    assignment = consumer_groups.ConsumerGroupDescribeAssignment(topic_partitions=[topic])
    member = consumer_groups.ConsumerGroupDescribeMember(
        member_id="m",
        rack_id="r",
        member_epoch=4,
        client_id="c",
        client_host="/h",
        subscribed_topic_names=["t"],
        assignment=assignment,
        target_assignment=consumer_groups.ConsumerGroupDescribeAssignment(topic_partitions=[]),
        member_type=1,
    )
    return consumer_groups.DescribedConsumerGroup(
        error_code=code,
        group_id=group_id,
        group_state="Reconciling",
        group_epoch=5,
        assignment_epoch=4,
        assignor_name="uniform",
        members=[member],
    )


async def test_groups_of_all_brokers_are_merged_without_duplicates(
    cluster: ScriptedCluster, admin: ScriptedAdmin
):
    cluster.answer(
        ApiKey.LIST_GROUPS,
        listed(("b", "consumer", "Stable", "classic"), ("a", "", "Empty", "Classic")),
        listed(("b", "consumer", "Stable", "Classic")),
        listed(("s", "share", "NewInKafka9", "NewInKafka9")),
    )
    assert await admin.list_groups() == [
        GroupListing("a", GroupType.CLASSIC, "", GroupState.EMPTY),
        GroupListing("b", GroupType.CLASSIC, "consumer", GroupState.STABLE),
        GroupListing("s", GroupType.UNKNOWN, "share", GroupState.UNKNOWN),
    ]
    assert {sent.to for sent in cluster.requests(ApiKey.LIST_GROUPS)} == {
        ToNode(node) for node in (1, 2, 3)
    }


async def test_groups_of_the_other_brokers_are_kept_if_one_fails(
    cluster: ScriptedCluster, admin: ScriptedAdmin
):
    cluster.answer(
        ApiKey.LIST_GROUPS,
        listed(("a", "consumer", "Stable", "Classic")),
        lambda request: ConnectionFailed("gone"),
        listed(code=E.CLUSTER_AUTHORIZATION_FAILED),
    )
    with pytest.raises(PartialFailure) as caught:
        await admin.list_groups()
    assert list(caught.value.succeeded) == ["a"]
    assert len(caught.value.failed) == 2


async def test_filters_are_sent(cluster: ScriptedCluster, admin: ScriptedAdmin):
    cluster.answer(ApiKey.LIST_GROUPS, listed(("a", "", "", ""), ("b", "consumer", "", "")))
    await admin.list_groups(types=["share"], states=["empty"])
    request = cluster.sent[-1].message
    assert (request.types_filter, request.states_filter) == (["Share"], ["Empty"])
    groups = await admin.list_groups(protocol_types=["consumer"])
    assert groups == [GroupListing("b", None, "consumer", None)]
    with pytest.raises(TypeError, match="not a str"):
        await admin.list_groups(states="Empty")


@pytest.mark.parametrize(
    ("version", "filters", "release"),
    [(3, {"states": ["Empty"]}, "2.6"), (4, {"types": ["Share"]}, "3.8")],
)
async def test_a_filter_that_the_broker_lacks_is_an_error(
    cluster: ScriptedCluster,
    admin: ScriptedAdmin,
    version: int,
    filters: dict[str, Any],
    release: str,
):
    cluster.versions[ApiKey.LIST_GROUPS] = version
    cluster.answer(ApiKey.LIST_GROUPS, listed())
    with pytest.raises(UnsupportedVersion, match=release):
        await admin.list_groups(**filters)
    # All groups of such a broker are classic ones.
    assert await admin.list_groups(types=["Classic"]) == []


async def test_groups_of_the_consumer_type(cluster: ScriptedCluster, admin: ScriptedAdmin):
    cluster.answer(
        ApiKey.CONSUMER_GROUP_DESCRIBE,
        lambda request: consumer_groups.ConsumerGroupDescribeResponse(
            throttle_time_ms=0,
            groups=[
                described_consumer_group("new"),
                described_consumer_group("old", E.GROUP_ID_NOT_FOUND),
            ],
        ),
    )
    cluster.answer(ApiKey.DESCRIBE_GROUPS, classics(classic("old")))
    found = await admin.describe_consumer_groups(["old", "new"])
    assert list(found) == ["old", "new"]
    assert found["old"].type is GroupType.CLASSIC
    new = found["new"]
    assert (new.type, new.group_state) == (GroupType.CONSUMER, GroupState.RECONCILING)
    assert (new.group_epoch, new.target_assignment_epoch, new.coordinator_id) == (5, 4, 2)
    (member,) = new.members
    assert member.assignment == (TopicPartition("t", 0), TopicPartition("t", 1))
    assert (member.target_assignment, member.member_epoch, member.upgraded) == ((), 4, True)


async def test_brokers_without_consumer_groups_describe_classic_ones(
    cluster: ScriptedCluster, admin: ScriptedAdmin
):
    cluster.versions[ApiKey.CONSUMER_GROUP_DESCRIBE] = -1
    cluster.answer(
        ApiKey.DESCRIBE_GROUPS,
        classics(classic("a"), classic("dead", 0), classic("k", protocol_type="connect")),
    )
    found = await admin.describe_consumer_groups(["a", "k"], return_errors=True)
    assert not isinstance(found["a"], KafkaError)
    error = found["k"]
    assert isinstance(error, BrokerError)
    assert (error.code, error.group) == (E.INCONSISTENT_GROUP_PROTOCOL, "k")
    assert (await admin.describe_classic_groups(["k"]))["k"].protocol == "connect"


async def test_a_dead_group_does_not_exist(cluster: ScriptedCluster, admin: ScriptedAdmin):
    dead = classic("a")
    dead.group_state = "Dead"
    cluster.answer(ApiKey.DESCRIBE_GROUPS, classics(dead))
    found = await admin.describe_classic_groups(["a"], return_errors=True)
    error = found["a"]
    assert isinstance(error, BrokerError)
    assert error.code == E.GROUP_ID_NOT_FOUND


async def test_a_malformed_assignment_is_the_error_of_its_group(
    cluster: ScriptedCluster, admin: ScriptedAdmin
):
    cluster.answer(ApiKey.DESCRIBE_GROUPS, classics(classic("a", assignment=b"\xff"), classic("b")))
    found = await admin.describe_classic_groups(["a", "b"], return_errors=True)
    assert isinstance(found["a"], MalformedMessage)
    assert not isinstance(found["b"], KafkaError)


async def test_authorized_operations_need_their_version(
    cluster: ScriptedCluster, admin: ScriptedAdmin
):
    cluster.versions[ApiKey.DESCRIBE_GROUPS] = 2
    with pytest.raises(UnsupportedVersion, match=r"2\.3"):
        await admin.describe_classic_groups(["a"], include_authorized_operations=True)


def left(**codes: int) -> Any:
    return lambda request: LeaveGroupResponse(
        throttle_time_ms=0,
        error_code=0,
        members=[
            MemberResponse(member_id="", group_instance_id=name, error_code=code)
            for name, code in codes.items()
        ],
    )


async def test_static_members_are_removed_by_one_request(
    cluster: ScriptedCluster, admin: ScriptedAdmin
):
    cluster.answer(ApiKey.LEAVE_GROUP, left(a=0, b=E.UNKNOWN_MEMBER_ID))
    removed = await admin.remove_members_from_consumer_group(
        "g", ["a", "b"], reason="x" * 300, return_errors=True
    )
    assert removed["a"] is None
    assert isinstance(removed["b"], BrokerError)
    (sent,) = cluster.requests(ApiKey.LEAVE_GROUP)
    assert [member.group_instance_id for member in sent.message.members] == ["a", "b"]
    assert all(len(member.reason) == 255 for member in sent.message.members)


async def test_all_members_of_an_old_broker_leave_one_by_one(
    cluster: ScriptedCluster, admin: ScriptedAdmin
):
    cluster.versions |= {ApiKey.CONSUMER_GROUP_DESCRIBE: -1, ApiKey.LEAVE_GROUP: 2}
    cluster.answer(ApiKey.DESCRIBE_GROUPS, classics(classic("g", assignment=b"\0\0" + b"\0" * 8)))
    cluster.answer(
        ApiKey.LEAVE_GROUP, lambda request: LeaveGroupResponse(throttle_time_ms=0, error_code=0)
    )
    assert await admin.remove_members_from_consumer_group("g") == {"m": None}
    assert cluster.sent[-1].message.member_id == "m"
    with pytest.raises(UnsupportedVersion, match=r"2\.4"):
        await admin.remove_members_from_consumer_group("g", ["static"])


async def test_members_of_a_group_that_does_not_exist(
    cluster: ScriptedCluster, admin: ScriptedAdmin
):
    cluster.versions[ApiKey.CONSUMER_GROUP_DESCRIBE] = -1
    cluster.answer(ApiKey.DESCRIBE_GROUPS, classics(classic("g", E.GROUP_ID_NOT_FOUND)))
    with pytest.raises(BrokerError, match="GROUP_ID_NOT_FOUND"):
        await admin.remove_members_from_consumer_group("g")


async def test_a_group_that_cannot_be_deleted_says_why(
    cluster: ScriptedCluster, admin: ScriptedAdmin
) -> None:
    cluster.answer(
        ApiKey.DELETE_GROUPS,
        lambda request: DeleteGroupsResponse(
            throttle_time_ms=0,
            results=[
                DeletableGroupResult(
                    group_id="g",
                    error_code=E.GROUP_DELETION_FAILED,
                    error_message="the plugin failed",
                )
            ],
        ),
    )
    with pytest.raises(PartialFailure) as failed:
        await admin.delete_consumer_groups(["g"])
    assert "the plugin failed" in str(failed.value.failed["g"])

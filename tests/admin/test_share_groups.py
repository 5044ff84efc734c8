"""Requests about share groups, and what coordinators return."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from aiokafkawire.admin import GroupState, SharePartitionOffsetInfo
from aiokafkawire.cluster import ToNode
from aiokafkawire.errors import BrokerError, KafkaError, PartialFailure, UnsupportedVersion
from aiokafkawire.types import TopicPartition
from aiokafkawire.wire import ApiKey, ErrorCode
from aiokafkawire.wire.messages import describe_share_group_offsets as offsets
from aiokafkawire.wire.messages import share_group_describe as describe
from aiokafkawire.wire.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsResponse,
    AlterShareGroupOffsetsResponsePartition,
    AlterShareGroupOffsetsResponseTopic,
)
from aiokafkawire.wire.messages.delete_share_group_offsets import (
    DeleteShareGroupOffsetsResponse,
    DeleteShareGroupOffsetsResponseTopic,
)
from tests.admin.scripted import ScriptedAdmin, ScriptedCluster, coordinators_at

E = ErrorCode
ID = UUID(int=1)
TP = TopicPartition("t", 0)


@pytest.fixture
async def cluster(anyio_backend: object) -> ScriptedCluster:
    cluster = ScriptedCluster()
    cluster.answer(ApiKey.FIND_COORDINATOR, coordinators_at(2))
    return cluster


@pytest.fixture
async def admin(cluster: ScriptedCluster) -> ScriptedAdmin:
    return ScriptedAdmin(cluster)


def started(**by_group: tuple[int, int, int]) -> Any:
    """Answer with start offset, lag and error code of partition 0 of `t`, by group."""
    return lambda request: offsets.DescribeShareGroupOffsetsResponse(
        throttle_time_ms=0,
        groups=[
            offsets.DescribeShareGroupOffsetsResponseGroup(
                group_id=group,
                topics=[
                    offsets.DescribeShareGroupOffsetsResponseTopic(
                        topic_name="t",
                        topic_id=ID,
                        partitions=[
                            offsets.DescribeShareGroupOffsetsResponsePartition(
                                partition_index=0,
                                start_offset=start,
                                leader_epoch=-1,
                                lag=lag,
                                error_code=code,
                            )
                        ],
                    )
                ],
                error_code=0,
            )
            for group, (start, lag, code) in by_group.items()
        ],
    )


async def test_a_share_group(cluster: ScriptedCluster, admin: ScriptedAdmin):
    topic = describe.ShareGroupDescribeTopicPartitions(
        topic_id=ID, topic_name="t", partitions=[1, 0]
    )
    member = describe.ShareGroupDescribeMember(
        member_id="m",
        rack_id="r",
        member_epoch=3,
        client_id="c",
        client_host="/h",
        subscribed_topic_names=["t"],
        assignment=describe.ShareGroupDescribeAssignment(topic_partitions=[topic]),
    )
    group = describe.DescribedShareGroup(
        error_code=0,
        group_id="g",
        group_state="Stable",
        group_epoch=4,
        assignment_epoch=3,
        assignor_name="simple",
        members=[member],
    )
    cluster.answer(
        ApiKey.SHARE_GROUP_DESCRIBE,
        lambda request: describe.ShareGroupDescribeResponse(throttle_time_ms=0, groups=[group]),
    )
    described = (await admin.describe_share_groups(["g"]))["g"]
    assert (described.group_state, described.group_epoch) == (GroupState.STABLE, 4)
    assert (described.target_assignment_epoch, described.coordinator_id) == (3, 2)
    (only,) = described.members
    assert only.assignment == (TP, TopicPartition("t", 1))
    assert (only.rack_id, only.member_epoch, only.host) == ("r", 3, "/h")


async def test_brokers_without_share_groups(cluster: ScriptedCluster, admin: ScriptedAdmin):
    cluster.versions = dict.fromkeys(
        (ApiKey.SHARE_GROUP_DESCRIBE, ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS), -1
    )
    with pytest.raises(UnsupportedVersion, match=r"4\.1"):
        await admin.describe_share_groups(["g"])
    with pytest.raises(UnsupportedVersion, match=r"4\.1"):
        await admin.list_share_group_offsets(["g"])


async def test_start_offsets_are_at_the_group_coordinator(
    cluster: ScriptedCluster, admin: ScriptedAdmin
):
    cluster.answer(
        ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS,
        started(a=(5, 2, 0), b=(-1, -1, 0), c=(0, 0, E.TOPIC_AUTHORIZATION_FAILED)),
    )
    found = await admin.list_share_group_offsets(
        {"a": None, "b": [TP], "c": None}, return_errors=True
    )
    assert found["a"] == {TP: SharePartitionOffsetInfo(5, None, 2)}
    assert found["b"] == {TP: None}
    assert isinstance(found["c"], PartialFailure)
    (sent,) = cluster.requests(ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS)
    assert sent.to == ToNode(2)
    assert [group.topics is None for group in sent.message.groups] == [True, False, True]


async def test_an_error_of_the_group(cluster: ScriptedCluster, admin: ScriptedAdmin):
    group = offsets.DescribeShareGroupOffsetsResponseGroup(
        group_id="g", topics=[], error_code=E.GROUP_ID_NOT_FOUND, error_message="Group g not found"
    )
    cluster.answer(
        ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS,
        lambda request: offsets.DescribeShareGroupOffsetsResponse(
            throttle_time_ms=0, groups=[group]
        ),
    )
    with pytest.raises(PartialFailure, match="Group g not found"):
        await admin.list_share_group_offsets(["g"])


async def test_start_offsets_are_altered(cluster: ScriptedCluster, admin: ScriptedAdmin):
    def altered(*codes: int) -> Any:
        partitions = [
            AlterShareGroupOffsetsResponsePartition(partition_index=number, error_code=code)
            for number, code in enumerate(codes)
        ]
        topic = AlterShareGroupOffsetsResponseTopic(
            topic_name="t", topic_id=ID, partitions=partitions
        )
        return lambda request: AlterShareGroupOffsetsResponse(
            throttle_time_ms=0, error_code=0, responses=[topic]
        )

    cluster.answer(
        ApiKey.ALTER_SHARE_GROUP_OFFSETS,
        altered(E.REBALANCE_IN_PROGRESS, E.UNKNOWN_TOPIC_OR_PARTITION),
        altered(0),
    )
    results = await admin.alter_share_group_offsets("g", {TP: 3, ("t", 1): 0}, return_errors=True)
    assert results[TP] is None
    error = results[TopicPartition("t", 1)]
    assert isinstance(error, BrokerError)
    assert (error.group, error.topic, error.partition) == ("g", "t", 1)
    with pytest.raises(ValueError, match="offset"):
        await admin.alter_share_group_offsets("g", {TP: -1})


async def test_members_forbid_changes(cluster: ScriptedCluster, admin: ScriptedAdmin):
    cluster.answer(
        ApiKey.ALTER_SHARE_GROUP_OFFSETS,
        lambda request: AlterShareGroupOffsetsResponse(
            throttle_time_ms=0, error_code=E.NON_EMPTY_GROUP, responses=[]
        ),
    )
    with pytest.raises(PartialFailure, match="NON_EMPTY_GROUP"):
        await admin.alter_share_group_offsets("g", {TP: 3})


async def test_offsets_of_topics_are_deleted(cluster: ScriptedCluster, admin: ScriptedAdmin):
    cluster.answer(
        ApiKey.DELETE_SHARE_GROUP_OFFSETS,
        lambda request: DeleteShareGroupOffsetsResponse(
            throttle_time_ms=0,
            error_code=0,
            responses=[
                DeleteShareGroupOffsetsResponseTopic(topic_name=name, topic_id=ID, error_code=code)
                for name, code in (("t", 0), ("u", E.UNKNOWN_TOPIC_OR_PARTITION))
            ],
        ),
    )
    results = await admin.delete_share_group_offsets("g", ["t", "u", "v"], return_errors=True)
    assert results["t"] is None
    assert isinstance(results["u"], BrokerError)
    assert isinstance(results["v"], KafkaError)

"""Requests about streams groups, and what coordinators return."""

from __future__ import annotations

import pytest

from aiokafkawire.admin import (
    GroupState,
    StreamsEndpoint,
    StreamsTaskIds,
    StreamsTaskOffset,
    StreamsTopicInfo,
)
from aiokafkawire.errors import PartialFailure, UnsupportedVersion
from aiokafkawire.wire import ApiKey, ErrorCode
from aiokafkawire.wire.messages import streams_group_describe as describe
from tests.admin.scripted import ScriptedAdmin, ScriptedCluster, coordinators_at


@pytest.fixture
async def cluster(anyio_backend: object) -> ScriptedCluster:
    cluster = ScriptedCluster()
    cluster.answer(ApiKey.FIND_COORDINATOR, coordinators_at(3))
    return cluster


@pytest.fixture
async def admin(cluster: ScriptedCluster) -> ScriptedAdmin:
    return ScriptedAdmin(cluster)


def assignment(*partitions: int) -> describe.StreamsGroupDescribeAssignment:
    tasks = describe.StreamsGroupDescribeTaskIds(subtopology_id="0", partitions=list(partitions))
    return describe.StreamsGroupDescribeAssignment(
        active_tasks=[tasks], standby_tasks=[], warmup_tasks=[]
    )


def a_group(topology: bool = True, code: int = 0) -> describe.DescribedStreamsGroup:
    member = describe.StreamsGroupDescribeMember(
        member_id="m",
        member_epoch=2,
        instance_id="i",
        rack_id="r",
        client_id="c",
        client_host="/h",
        topology_epoch=1,
        process_id="p",
        user_endpoint=describe.StreamsGroupDescribeEndpoint(host="u", port=65_535),
        client_tags=[describe.StreamsGroupDescribeKeyValue(key="zone", value="a")],
        task_offsets=[
            describe.StreamsGroupDescribeTaskOffset(subtopology_id="0", partition=1, offset=7)
        ],
        task_end_offsets=[],
        assignment=assignment(0, 1),
        target_assignment=assignment(1),
        is_classic=False,
    )
    changelog = describe.StreamsGroupDescribeTopicInfo(
        name="store",
        partitions=2,
        replication_factor=3,
        topic_configs=[
            describe.StreamsGroupDescribeKeyValue(key="cleanup.policy", value="compact")
        ],
    )
    subtopology = describe.StreamsGroupDescribeSubtopology(
        subtopology_id="0",
        source_topics=["in"],
        repartition_sink_topics=["out"],
        state_changelog_topics=[changelog],
        repartition_source_topics=[],
    )
    return describe.DescribedStreamsGroup(
        error_code=code,
        group_id="g",
        group_state="NotReady",
        group_epoch=5,
        assignment_epoch=4,
        topology=describe.StreamsGroupDescribeTopology(epoch=1, subtopologies=[subtopology])
        if topology
        else None,
        members=[member],
    )


def answer(cluster: ScriptedCluster, group: describe.DescribedStreamsGroup) -> None:
    cluster.answer(
        ApiKey.STREAMS_GROUP_DESCRIBE,
        lambda request: describe.StreamsGroupDescribeResponse(throttle_time_ms=0, groups=[group]),
    )


async def test_a_streams_group(cluster: ScriptedCluster, admin: ScriptedAdmin):
    answer(cluster, a_group())
    group = (await admin.describe_streams_groups(["g"]))["g"]
    assert (group.group_state, group.group_epoch) == (GroupState.NOT_READY, 5)
    assert (group.target_assignment_epoch, group.topology_epoch, group.coordinator_id) == (4, 1, 3)
    (part,) = group.subtopologies
    assert (part.source_topics, part.repartition_sink_topics) == (("in",), ("out",))
    assert part.state_changelog_topics == {
        "store": StreamsTopicInfo(2, 3, {"cleanup.policy": "compact"})
    }
    (member,) = group.members
    assert member.user_endpoint == StreamsEndpoint("u", 65_535)
    assert member.client_tags == {"zone": "a"}
    assert member.task_offsets == (StreamsTaskOffset("0", 1, 7),)
    assert member.assignment.active_tasks == (StreamsTaskIds("0", (0, 1)),)
    assert member.target_assignment.active_tasks == (StreamsTaskIds("0", (1,)),)


async def test_a_group_without_topology(cluster: ScriptedCluster, admin: ScriptedAdmin):
    answer(cluster, a_group(topology=False))
    group = (await admin.describe_streams_groups(["g"]))["g"]
    assert (group.topology_epoch, group.subtopologies) == (-1, ())


async def test_errors(cluster: ScriptedCluster, admin: ScriptedAdmin):
    answer(cluster, a_group(code=ErrorCode.GROUP_ID_NOT_FOUND))
    with pytest.raises(PartialFailure, match="GROUP_ID_NOT_FOUND"):
        await admin.describe_streams_groups(["g"])
    cluster.versions[ApiKey.STREAMS_GROUP_DESCRIBE] = -1
    with pytest.raises(UnsupportedVersion, match=r"4\.1"):
        await admin.describe_streams_groups(["g"])

"""Cases about groups and their offsets."""

from __future__ import annotations

from typing import Any

import anyio

from aiokafkawire.wire import ApiKey, ErrorCode, Request
from aiokafkawire.wire.messages import (
    delete_groups,
    describe_groups,
    find_coordinator,
    heartbeat,
    join_group,
    leave_group,
    list_groups,
    offset_commit,
    offset_delete,
    offset_fetch,
    sync_group,
)
from tests.broker.conformance.cases import (
    LED,
    MIN_SESSION_TIMEOUT_MS,
    NOWHERE,
    POLL_INTERVAL_S,
    ConformanceClient,
    conformance_case,
    other,
)

STRANGER = "somebody"
MAX_INT32 = 2**31 - 1
RANGE = (("range", b"mine"),)

COORDINATED = {"nodeId"}
"""The coordinator's node is random."""


# --- what is said --------------------------------------------------------------------------------


def join(
    group: str,
    member_id: str = "",
    *,
    protocols: tuple[tuple[str, bytes], ...] = RANGE,
    protocol_type: str = "consumer",
    session_ms: int = 10_000,
) -> Request[Any]:
    return join_group.JoinGroupRequest(
        group_id=group,
        session_timeout_ms=session_ms,
        rebalance_timeout_ms=session_ms,
        member_id=member_id,
        protocol_type=protocol_type,
        protocols=[
            join_group.JoinGroupRequestProtocol(name=name, metadata=data)
            for name, data in protocols
        ],
    )


def sync(group: str, member_id: str, generation: int) -> Request[Any]:
    assignment = sync_group.SyncGroupRequestAssignment(member_id=member_id, assignment=b"all")
    return sync_group.SyncGroupRequest(
        group_id=group,
        generation_id=generation,
        member_id=member_id,
        protocol_type="consumer",
        protocol_name="range",
        assignments=[assignment],
    )


def heartbeat_request(group: str, member_id: str, generation: int) -> Request[Any]:
    return heartbeat.HeartbeatRequest(group_id=group, generation_id=generation, member_id=member_id)


def leave(to: ConformanceClient, group: str, member_id: str) -> Request[Any]:
    if to.version(ApiKey.LEAVE_GROUP) < 3:
        return leave_group.LeaveGroupRequest(group_id=group, member_id=member_id)
    member = leave_group.MemberIdentity(member_id=member_id)
    return leave_group.LeaveGroupRequest(group_id=group, members=[member])


def commit(
    group: str,
    member_id: str = "",
    generation: int = -1,
    *,
    topic: str = LED,
    partition: int = 0,
    record: str = "",
) -> Request[Any]:
    asked = offset_commit.OffsetCommitRequestPartition(
        partition_index=partition, committed_offset=7, committed_metadata=record
    )
    return offset_commit.OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=generation,
        member_id=member_id,
        topics=[offset_commit.OffsetCommitRequestTopic(name=topic, partitions=[asked])],
    )


def committed(to: ConformanceClient, group: str, *, everything: bool = False) -> Request[Any]:
    partitions = [0, 1]
    if to.version(ApiKey.OFFSET_FETCH) >= 8:
        named = [offset_fetch.OffsetFetchRequestTopics(name=LED, partition_indexes=partitions)]
        wanted = None if everything else named
        asked = offset_fetch.OffsetFetchRequestGroup(group_id=group, topics=wanted)
        return offset_fetch.OffsetFetchRequest(groups=[asked])
    return committed_of_before(group, everything=everything)


def committed_of_before(group: str, *, everything: bool = False) -> Request[Any]:
    topics = [offset_fetch.OffsetFetchRequestTopic(name=LED, partition_indexes=[0, 1])]
    return offset_fetch.OffsetFetchRequest(group_id=group, topics=None if everything else topics)


def describe(*groups: str) -> Request[Any]:
    return describe_groups.DescribeGroupsRequest(groups=list(groups))


async def joined(to: ConformanceClient, group: str, node: int) -> str:
    """Create a group with one member, in its first generation; nothing is recorded."""
    member_id = ""
    while True:
        answer = await to.request_unrecorded(join(group, member_id), node=node)
        member_id = answer.member_id
        if answer.error_code == ErrorCode.NONE:
            break
        assert answer.error_code == ErrorCode.MEMBER_ID_REQUIRED, answer
    assert answer.generation_id == 1
    synced = await to.request_unrecorded(sync(group, member_id, 1), node=node)
    assert synced.error_code == ErrorCode.NONE, synced
    return member_id


# --- coordinators --------------------------------------------------------------------------------


@conformance_case(ApiKey.FIND_COORDINATOR)
async def find_coordinator_of_a_group(to: ConformanceClient) -> None:
    await to.coordinator("found")
    version = to.version(ApiKey.FIND_COORDINATOR)
    keys = {"coordinator_keys": ["found"]} if version >= 4 else {"key": "found"}
    await to.request(find_coordinator.FindCoordinatorRequest(**keys), hide=COORDINATED)


@conformance_case(ApiKey.FIND_COORDINATOR, 1)
async def find_coordinator_of_an_invalid_key(to: ConformanceClient) -> None:
    version = to.version(ApiKey.FIND_COORDINATOR)
    keys = {"coordinator_keys": ["found"]} if version >= 4 else {"key": "found"}
    await to.request(find_coordinator.FindCoordinatorRequest(**keys, key_type=9))


@conformance_case(ApiKey.HEARTBEAT)
async def group_requests_at_another_node(to: ConformanceClient) -> None:
    elsewhere = other(await to.coordinator("elsewhere"))
    await to.request(join("elsewhere"), node=elsewhere)
    await to.request(sync("elsewhere", STRANGER, 1), node=elsewhere)
    await to.request(heartbeat_request("elsewhere", STRANGER, 1), node=elsewhere)
    await to.request(leave(to, "elsewhere", STRANGER), node=elsewhere)
    await to.request(describe("elsewhere"), node=elsewhere)


@conformance_case(ApiKey.OFFSET_COMMIT, 1)
async def offset_requests_at_another_node(to: ConformanceClient) -> None:
    elsewhere = other(await to.coordinator("far"))
    await to.request(commit("far"), node=elsewhere)
    await to.request(committed(to, "far"), node=elsewhere)


# --- members -------------------------------------------------------------------------------------


@conformance_case(ApiKey.JOIN_GROUP)
async def member_lifecycle(to: ConformanceClient) -> None:
    group = "life"
    node = await to.coordinator(group)
    answer = await to.request(join(group), node=node)
    if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
        answer = await to.request(join(group, answer.member_id), node=node)
    me = answer.member_id
    while True:
        # The description of a group follows the responses to its members.
        if (await to.request_unrecorded(describe(group), node=node)).groups[0].members:
            break
        await anyio.sleep(POLL_INTERVAL_S)
    await to.request(describe(group), node=node)
    await to.request(sync(group, me, 1), node=node)
    await to.request(describe(group), node=node)
    await to.request(heartbeat_request(group, me, 1), node=node)
    await to.request(commit(group, me, 1), node=node)
    await to.request(join(group, me), node=node)
    await to.request(heartbeat_request(group, me, 2), node=node)
    await to.request(sync(group, me, 2), node=node)
    await to.request(leave(to, group, me), node=node)
    await to.request(describe(group), node=node)
    await to.request(committed(to, group), node=node)


@conformance_case(ApiKey.JOIN_GROUP)
async def join_with_an_unknown_member_id(to: ConformanceClient) -> None:
    node = await to.coordinator("unknown")
    await to.request(join("unknown", STRANGER), node=node)
    await joined(to, "unknown", node)
    await to.request(join("unknown", STRANGER), node=node)


@conformance_case(ApiKey.JOIN_GROUP)
async def join_with_an_invalid_session_timeout(to: ConformanceClient) -> None:
    node = await to.coordinator("session")
    await to.request(join("session", session_ms=MIN_SESSION_TIMEOUT_MS - 1), node=node)
    await to.request(join("session", session_ms=MAX_INT32), node=node)


@conformance_case(ApiKey.JOIN_GROUP)
async def join_with_a_session_above_5_minutes(to: ConformanceClient) -> None:
    node = await to.coordinator("long")
    # The limit was 30 seconds in 0.9, five minutes until 2.3, and is 30 minutes since.
    await to.request(join("long", session_ms=300_001), node=node)


@conformance_case(ApiKey.JOIN_GROUP)
async def join_an_empty_group_id(to: ConformanceClient) -> None:
    await to.request(join(""))


@conformance_case(ApiKey.JOIN_GROUP)
async def join_without_protocols(to: ConformanceClient) -> None:
    node = await to.coordinator("silent")
    await to.request(join("silent", protocols=()), node=node)
    await to.request(join("silent", protocol_type=""), node=node)


@conformance_case(ApiKey.JOIN_GROUP)
async def join_with_another_protocol_type(to: ConformanceClient) -> None:
    node = await to.coordinator("other")
    await joined(to, "other", node)
    await to.request(join("other", protocols=(("another", b""),)), node=node)
    await to.request(join("other", protocol_type="connect"), node=node)


@conformance_case(ApiKey.SYNC_GROUP)
async def sync_with_another_generation(to: ConformanceClient) -> None:
    node = await to.coordinator("sync")
    await to.request(sync("sync", STRANGER, 1), node=node)
    me = await joined(to, "sync", node)
    await to.request(sync("sync", STRANGER, 1), node=node)
    await to.request(sync("sync", me, 9), node=node)
    await to.request(sync("sync", me, 1), node=node)


@conformance_case(ApiKey.HEARTBEAT)
async def heartbeat_with_another_generation(to: ConformanceClient) -> None:
    node = await to.coordinator("beat")
    await to.request(heartbeat_request("beat", STRANGER, 1), node=node)
    me = await joined(to, "beat", node)
    await to.request(heartbeat_request("beat", STRANGER, 1), node=node)
    await to.request(heartbeat_request("beat", me, 9), node=node)
    await to.request(heartbeat_request("beat", me, 1), node=node)


@conformance_case(ApiKey.LEAVE_GROUP)
async def leave_with_an_unknown_member_id(to: ConformanceClient) -> None:
    node = await to.coordinator("leave")
    await to.request(leave(to, "leave", STRANGER), node=node)
    await joined(to, "leave", node)
    await to.request(leave(to, "leave", STRANGER), node=node)


@conformance_case(ApiKey.DESCRIBE_GROUPS)
async def describe_an_unknown_group(to: ConformanceClient) -> None:
    node = await to.coordinator("nobody")
    await to.request(describe("nobody"), node=node)


@conformance_case(ApiKey.LIST_GROUPS)
async def list_groups_of_a_node(to: ConformanceClient) -> None:
    group = "listed"
    node = await to.coordinator(group)
    await joined(to, group, node)
    found = await to.request_unrecorded(list_groups.ListGroupsRequest(), node=node)
    # The node may coordinate other groups, too.
    found.groups = [each for each in found.groups if each.group_id == group]
    to.record("the group in ListGroups", found, to.version(ApiKey.LIST_GROUPS))


@conformance_case(ApiKey.DELETE_GROUPS)
async def delete_a_group(to: ConformanceClient) -> None:
    node = await to.coordinator("deleted")
    await to.request(delete_groups.DeleteGroupsRequest(groups_names=["deleted"]), node=node)
    me = await joined(to, "deleted", node)
    await to.request(delete_groups.DeleteGroupsRequest(groups_names=["deleted"]), node=node)
    await to.request_unrecorded(leave(to, "deleted", me), node=node)
    await to.request(delete_groups.DeleteGroupsRequest(groups_names=["deleted"]), node=node)


# --- offsets -------------------------------------------------------------------------------------


@conformance_case(ApiKey.OFFSET_COMMIT, 1)
async def commit_without_a_member(to: ConformanceClient) -> None:
    group = "simple"
    node = await to.coordinator(group)
    await to.request(committed(to, group), node=node)
    await to.request(commit(group, record="a note"), node=node)
    await to.request(committed(to, group), node=node)


@conformance_case(ApiKey.OFFSET_COMMIT, 1)
async def commit_for_an_unknown_topic(to: ConformanceClient) -> None:
    node = await to.coordinator("commit")
    await to.request(commit("commit", topic=NOWHERE), node=node)
    await to.request(commit("commit", partition=9), node=node)


@conformance_case(ApiKey.OFFSET_COMMIT, 1)
async def commit_with_long_metadata(to: ConformanceClient) -> None:
    node = await to.coordinator("record")
    await to.request(commit("record", record="n" * 4_097), node=node)


@conformance_case(ApiKey.OFFSET_COMMIT, 1)
async def commit_for_an_empty_group_id(to: ConformanceClient) -> None:
    node = await to.coordinator("")
    await to.request(commit(""), node=node)


@conformance_case(ApiKey.OFFSET_COMMIT, 2)
async def commit_with_another_generation(to: ConformanceClient) -> None:
    group = "generation"
    node = await to.coordinator(group)
    await to.request(commit(group, STRANGER, 1), node=node)
    me = await joined(to, group, node)
    await to.request(commit(group, STRANGER, 1), node=node)
    await to.request(commit(group, me, 9), node=node)
    await to.request(commit(group), node=node)
    await to.request(commit(group, me, 1), node=node)


@conformance_case(ApiKey.OFFSET_FETCH, 2)
async def fetch_all_committed_offsets(to: ConformanceClient) -> None:
    group = "everything"
    node = await to.coordinator(group)
    await to.request(committed(to, group, everything=True), node=node)
    await to.request_unrecorded(commit(group), node=node)
    await to.request(committed(to, group, everything=True), node=node)


@conformance_case(ApiKey.OFFSET_COMMIT, 0, this_version_only=True)
async def offsets_stored_in_zookeeper(to: ConformanceClient) -> None:
    await to.request(committed_of_before("zookeeper"), 0)
    await to.request(commit("zookeeper", record="a note"), 0)
    await to.request(commit("zookeeper", topic=NOWHERE), 0)
    await to.request(committed_of_before("zookeeper"), 0)


@conformance_case(ApiKey.OFFSET_DELETE)
async def delete_committed_offsets(to: ConformanceClient) -> None:
    async def forget(group: str, topic: str) -> None:
        asked = offset_delete.OffsetDeleteRequestTopic(
            name=topic,
            partitions=[offset_delete.OffsetDeleteRequestPartition(partition_index=0)],
        )
        request = offset_delete.OffsetDeleteRequest(group_id=group, topics=[asked])
        await to.request(request, node=node)

    node = await to.coordinator("forget")
    await forget("forget", LED)
    await to.request_unrecorded(commit("forget"), node=node)
    await forget("forget", NOWHERE)
    await forget("forget", LED)

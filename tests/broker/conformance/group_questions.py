"""Questions about groups and their offsets."""

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
from tests.broker.conformance.questions import (
    LED,
    MIN_SESSION_TIMEOUT_MS,
    NOWHERE,
    POLL_INTERVAL_S,
    Interview,
    other,
    question,
)

STRANGER = "somebody"
MAX_INT32 = 2**31 - 1
RANGE = (("range", b"mine"),)

COORDINATED = {"nodeId"}
"""Which node coordinates is drawn."""


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


def beat(group: str, member_id: str, generation: int) -> Request[Any]:
    return heartbeat.HeartbeatRequest(group_id=group, generation_id=generation, member_id=member_id)


def leave(to: Interview, group: str, member_id: str) -> Request[Any]:
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
    note: str = "",
) -> Request[Any]:
    asked = offset_commit.OffsetCommitRequestPartition(
        partition_index=partition, committed_offset=7, committed_metadata=note
    )
    return offset_commit.OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=generation,
        member_id=member_id,
        topics=[offset_commit.OffsetCommitRequestTopic(name=topic, partitions=[asked])],
    )


def committed(to: Interview, group: str, *, everything: bool = False) -> Request[Any]:
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


async def joined(to: Interview, group: str, node: int) -> str:
    """Make the one member of a group, in its first generation; nothing is noted."""
    member_id = ""
    while True:
        answer = await to.look(join(group, member_id), node=node)
        member_id = answer.member_id
        if answer.error_code == ErrorCode.NONE:
            break
        assert answer.error_code == ErrorCode.MEMBER_ID_REQUIRED, answer
    assert answer.generation_id == 1
    synced = await to.look(sync(group, member_id, 1), node=node)
    assert synced.error_code == ErrorCode.NONE, synced
    return member_id


# --- coordinators --------------------------------------------------------------------------------


@question(ApiKey.FIND_COORDINATOR)
async def the_coordinator_of_a_group(to: Interview) -> None:
    await to.coordinator("found")
    version = to.version(ApiKey.FIND_COORDINATOR)
    keys = {"coordinator_keys": ["found"]} if version >= 4 else {"key": "found"}
    await to.ask(find_coordinator.FindCoordinatorRequest(**keys), hide=COORDINATED)


@question(ApiKey.FIND_COORDINATOR, 1)
async def the_coordinator_of_what_there_is_not(to: Interview) -> None:
    version = to.version(ApiKey.FIND_COORDINATOR)
    keys = {"coordinator_keys": ["found"]} if version >= 4 else {"key": "found"}
    await to.ask(find_coordinator.FindCoordinatorRequest(**keys, key_type=9))


@question(ApiKey.HEARTBEAT)
async def a_node_that_does_not_coordinate(to: Interview) -> None:
    elsewhere = other(await to.coordinator("elsewhere"))
    await to.ask(join("elsewhere"), node=elsewhere)
    await to.ask(sync("elsewhere", STRANGER, 1), node=elsewhere)
    await to.ask(beat("elsewhere", STRANGER, 1), node=elsewhere)
    await to.ask(leave(to, "elsewhere", STRANGER), node=elsewhere)
    await to.ask(describe("elsewhere"), node=elsewhere)


@question(ApiKey.OFFSET_COMMIT, 1)
async def offsets_at_a_node_that_does_not_coordinate(to: Interview) -> None:
    elsewhere = other(await to.coordinator("far"))
    await to.ask(commit("far"), node=elsewhere)
    await to.ask(committed(to, "far"), node=elsewhere)


# --- members -------------------------------------------------------------------------------------


@question(ApiKey.JOIN_GROUP)
async def the_life_of_a_member(to: Interview) -> None:
    group = "life"
    node = await to.coordinator(group)
    answer = await to.ask(join(group), node=node)
    if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
        answer = await to.ask(join(group, answer.member_id), node=node)
    me = answer.member_id
    while True:
        # The description of a group follows the responses to its members.
        if (await to.look(describe(group), node=node)).groups[0].members:
            break
        await anyio.sleep(POLL_INTERVAL_S)
    await to.ask(describe(group), node=node)
    await to.ask(sync(group, me, 1), node=node)
    await to.ask(describe(group), node=node)
    await to.ask(beat(group, me, 1), node=node)
    await to.ask(commit(group, me, 1), node=node)
    await to.ask(join(group, me), node=node)
    await to.ask(beat(group, me, 2), node=node)
    await to.ask(sync(group, me, 2), node=node)
    await to.ask(leave(to, group, me), node=node)
    await to.ask(describe(group), node=node)
    await to.ask(committed(to, group), node=node)


@question(ApiKey.JOIN_GROUP)
async def join_as_nobody_knows_whom(to: Interview) -> None:
    node = await to.coordinator("unknown")
    await to.ask(join("unknown", STRANGER), node=node)
    await joined(to, "unknown", node)
    await to.ask(join("unknown", STRANGER), node=node)


@question(ApiKey.JOIN_GROUP)
async def join_for_too_short_or_too_long(to: Interview) -> None:
    node = await to.coordinator("session")
    await to.ask(join("session", session_ms=MIN_SESSION_TIMEOUT_MS - 1), node=node)
    await to.ask(join("session", session_ms=MAX_INT32), node=node)


@question(ApiKey.JOIN_GROUP)
async def join_for_as_long_as_the_default_was(to: Interview) -> None:
    node = await to.coordinator("long")
    # The limit was 30 seconds in 0.9, five minutes until 2.3, and is half an hour.
    await to.ask(join("long", session_ms=300_001), node=node)


@question(ApiKey.JOIN_GROUP)
async def join_no_group(to: Interview) -> None:
    await to.ask(join(""))


@question(ApiKey.JOIN_GROUP)
async def join_without_a_protocol(to: Interview) -> None:
    node = await to.coordinator("silent")
    await to.ask(join("silent", protocols=()), node=node)
    await to.ask(join("silent", protocol_type=""), node=node)


@question(ApiKey.JOIN_GROUP)
async def join_with_another_protocol(to: Interview) -> None:
    node = await to.coordinator("other")
    await joined(to, "other", node)
    await to.ask(join("other", protocols=(("another", b""),)), node=node)
    await to.ask(join("other", protocol_type="connect"), node=node)


@question(ApiKey.SYNC_GROUP)
async def sync_of_another_generation(to: Interview) -> None:
    node = await to.coordinator("sync")
    await to.ask(sync("sync", STRANGER, 1), node=node)
    me = await joined(to, "sync", node)
    await to.ask(sync("sync", STRANGER, 1), node=node)
    await to.ask(sync("sync", me, 9), node=node)
    await to.ask(sync("sync", me, 1), node=node)


@question(ApiKey.HEARTBEAT)
async def heartbeat_of_another_generation(to: Interview) -> None:
    node = await to.coordinator("beat")
    await to.ask(beat("beat", STRANGER, 1), node=node)
    me = await joined(to, "beat", node)
    await to.ask(beat("beat", STRANGER, 1), node=node)
    await to.ask(beat("beat", me, 9), node=node)
    await to.ask(beat("beat", me, 1), node=node)


@question(ApiKey.LEAVE_GROUP)
async def leave_without_having_joined(to: Interview) -> None:
    node = await to.coordinator("leave")
    await to.ask(leave(to, "leave", STRANGER), node=node)
    await joined(to, "leave", node)
    await to.ask(leave(to, "leave", STRANGER), node=node)


@question(ApiKey.DESCRIBE_GROUPS)
async def describe_nobody(to: Interview) -> None:
    node = await to.coordinator("nobody")
    await to.ask(describe("nobody"), node=node)


@question(ApiKey.LIST_GROUPS)
async def the_groups_of_a_node(to: Interview) -> None:
    group = "listed"
    node = await to.coordinator(group)
    await joined(to, group, node)
    found = await to.look(list_groups.ListGroupsRequest(), node=node)
    # The node may coordinate others, too.
    found.groups = [each for each in found.groups if each.group_id == group]
    to.note("the group in ListGroups", found, to.version(ApiKey.LIST_GROUPS))


@question(ApiKey.DELETE_GROUPS)
async def delete_a_group(to: Interview) -> None:
    node = await to.coordinator("deleted")
    await to.ask(delete_groups.DeleteGroupsRequest(groups_names=["deleted"]), node=node)
    me = await joined(to, "deleted", node)
    await to.ask(delete_groups.DeleteGroupsRequest(groups_names=["deleted"]), node=node)
    await to.look(leave(to, "deleted", me), node=node)
    await to.ask(delete_groups.DeleteGroupsRequest(groups_names=["deleted"]), node=node)


# --- offsets -------------------------------------------------------------------------------------


@question(ApiKey.OFFSET_COMMIT, 1)
async def commit_without_a_member(to: Interview) -> None:
    group = "simple"
    node = await to.coordinator(group)
    await to.ask(committed(to, group), node=node)
    await to.ask(commit(group, note="a note"), node=node)
    await to.ask(committed(to, group), node=node)


@question(ApiKey.OFFSET_COMMIT, 1)
async def commit_for_what_there_is_not(to: Interview) -> None:
    node = await to.coordinator("commit")
    await to.ask(commit("commit", topic=NOWHERE), node=node)
    await to.ask(commit("commit", partition=9), node=node)


@question(ApiKey.OFFSET_COMMIT, 1)
async def commit_with_a_long_note(to: Interview) -> None:
    node = await to.coordinator("note")
    await to.ask(commit("note", note="n" * 4_097), node=node)


@question(ApiKey.OFFSET_COMMIT, 1)
async def commit_for_no_group(to: Interview) -> None:
    node = await to.coordinator("")
    await to.ask(commit(""), node=node)


@question(ApiKey.OFFSET_COMMIT, 2)
async def commit_of_another_generation(to: Interview) -> None:
    group = "generation"
    node = await to.coordinator(group)
    await to.ask(commit(group, STRANGER, 1), node=node)
    me = await joined(to, group, node)
    await to.ask(commit(group, STRANGER, 1), node=node)
    await to.ask(commit(group, me, 9), node=node)
    await to.ask(commit(group), node=node)
    await to.ask(commit(group, me, 1), node=node)


@question(ApiKey.OFFSET_FETCH, 2)
async def all_that_was_committed(to: Interview) -> None:
    group = "everything"
    node = await to.coordinator(group)
    await to.ask(committed(to, group, everything=True), node=node)
    await to.look(commit(group), node=node)
    await to.ask(committed(to, group, everything=True), node=node)


@question(ApiKey.OFFSET_COMMIT, 0, exactly=True)
async def offsets_of_the_time_of_zookeeper(to: Interview) -> None:
    await to.ask(committed_of_before("zookeeper"), 0)
    await to.ask(commit("zookeeper", note="a note"), 0)
    await to.ask(commit("zookeeper", topic=NOWHERE), 0)
    await to.ask(committed_of_before("zookeeper"), 0)


@question(ApiKey.OFFSET_DELETE)
async def forget_offsets(to: Interview) -> None:
    async def forget(group: str, topic: str) -> None:
        asked = offset_delete.OffsetDeleteRequestTopic(
            name=topic,
            partitions=[offset_delete.OffsetDeleteRequestPartition(partition_index=0)],
        )
        request = offset_delete.OffsetDeleteRequest(group_id=group, topics=[asked])
        await to.ask(request, node=node)

    node = await to.coordinator("forget")
    await forget("forget", LED)
    await to.look(commit("forget"), node=node)
    await forget("forget", NOWHERE)
    await forget("forget", LED)

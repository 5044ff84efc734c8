"""The admin client's operations on consumer groups and their committed offsets."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from functools import partial

import pytest

from aiokafkawire import Admin, Consumer, OffsetAndMetadata, TopicPartition
from aiokafkawire.admin import (
    ConsumerGroupDescription,
    GroupState,
    GroupType,
    MemberDescription,
    OffsetReset,
    PartitionLag,
)
from aiokafkawire.errors import BrokerError, KafkaError, PartialFailure, UnsupportedVersion
from tests.behaviour.conftest import NewTopic
from tests.behaviour.features import needs, without
from tests.behaviour.support import (
    MEMBER,
    eventually,
    fill,
    numbered,
    partitions_of,
    poll_until,
    settle,
    take,
)

UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_MEMBER_ID, NON_EMPTY_GROUP, GROUP_ID_NOT_FOUND = 3, 25, 68, 69

pytestmark = [pytest.mark.slow, needs("groups")]


@pytest.fixture
async def admin(bootstrap_servers: str) -> AsyncIterator[Admin]:
    async with Admin(bootstrap_servers=bootstrap_servers) as client:
        yield client


@asynccontextmanager
async def member(
    bootstrap_servers: str, topic: str, group_id: str, **options: str
) -> AsyncIterator[Consumer]:
    """A member that has read the topic's only record."""
    settings = MEMBER | options
    async with Consumer(
        topic, bootstrap_servers=bootstrap_servers, group_id=group_id, **settings
    ) as consumer:
        await take(consumer, 1)
        yield consumer


def code_of(error: object) -> int:
    assert isinstance(error, BrokerError), error
    return error.code


async def test_a_group_with_a_member(
    admin: Admin, bootstrap_servers: str, topic: str, group_id: str
):
    await fill(bootstrap_servers, topic, numbered(1))
    async with member(bootstrap_servers, topic, group_id, client_id="reader"):
        listed = {group.group_id: group for group in await admin.list_groups()}
        assert listed[group_id].protocol == "consumer"
        assert not listed[group_id].is_simple_consumer_group
        assert group_id in {group.group_id for group in await admin.list_consumer_groups()}
        described = (await admin.describe_consumer_groups([group_id]))[group_id]
        assert described.group_state is GroupState.STABLE
        assert described.partition_assignor == "range"
        (only,) = described.members
        assert (only.client_id, only.assignment) == ("reader", (TopicPartition(topic, 0),))
        assert only.host
        classic = (await admin.describe_classic_groups([group_id]))[group_id]
        assert (classic.protocol, classic.members) == ("consumer", (only,))


@needs("consumer protocol")
async def test_a_group_of_the_consumer_protocol_has_targets_beside_assignments(
    admin: Admin, bootstrap_servers: str, new_topic: NewTopic, group_id: str
):
    topic = await new_topic(partitions=2)
    one, two = partitions_of(topic, 2)
    options = {"bootstrap_servers": bootstrap_servers, "group_protocol": "consumer"}

    async def describe() -> tuple[ConsumerGroupDescription, dict[str, MemberDescription]]:
        described = (await admin.describe_consumer_groups([group_id]))[group_id]
        return described, {each.client_id: each for each in described.members}

    async with Consumer(topic, group_id=group_id, client_id="old", **options) as old:
        await poll_until(old, lambda: len(old.assignment()) == 2)
        described, members = await describe()
        assert (described.type, described.partition_assignor) == (GroupType.CONSUMER, "uniform")
        before = described.group_epoch
        assert members["old"].assignment == members["old"].target_assignment == (one, two)
        assert members["old"].member_epoch == described.target_assignment_epoch == before
        async with Consumer(topic, group_id=group_id, client_id="new", **options) as new:
            # The old member revokes a partition only when it polls.
            await new.getmany(timeout_ms=500)
            described, members = await describe()
            assert described.group_state is GroupState.RECONCILING
            assert described.group_epoch == described.target_assignment_epoch == before + 1
            assert members["new"].assignment == ()
            targets = [members[name].target_assignment for name in ("old", "new")]
            assert sorted(targets) == [(one,), (two,)]
            assert [members[name].member_epoch for name in ("old", "new")] == [before, before + 1]
            await settle(old, new, partitions=2)
            await eventually(partial(is_stable, admin, group_id))
            _, members = await describe()
            assert all(each.assignment == each.target_assignment for each in members.values())
            assert {each.member_epoch for each in members.values()} == {before + 1}


async def is_stable(admin: Admin, group_id: str) -> bool:
    described = (await admin.describe_consumer_groups([group_id]))[group_id]
    return described.group_state is GroupState.STABLE


async def test_a_group_that_does_not_exist(admin: Admin, group_id: str):
    found = await admin.describe_consumer_groups([group_id], return_errors=True)
    assert code_of(found[group_id]) == GROUP_ID_NOT_FOUND
    with pytest.raises(PartialFailure, match=group_id):
        await admin.describe_classic_groups([group_id])


@needs("group states")
async def test_groups_are_listed_by_state_and_protocol(
    admin: Admin, bootstrap_servers: str, topic: str, group_id: str
):
    await fill(bootstrap_servers, topic, numbered(1))
    async with member(bootstrap_servers, topic, group_id):
        for states, protocols, is_listed in [
            (["Stable"], [], True),
            ([GroupState.EMPTY], [], False),
            ([], ["consumer"], True),
            ([], ["connect"], False),
        ]:
            groups = await admin.list_groups(states=states, protocol_types=protocols)
            assert (group_id in {group.group_id for group in groups}) is is_listed


@without("group states", as_of="2.5")
async def test_a_filter_that_brokers_lack_names_the_release(admin: Admin):
    with pytest.raises(UnsupportedVersion, match=r"2\.6"):
        await admin.list_groups(states=["Stable"])


@needs("deleting groups")
async def test_groups_are_deleted_when_they_have_no_members(
    admin: Admin, bootstrap_servers: str, topic: str, group_id: str
):
    await fill(bootstrap_servers, topic, numbered(1))
    async with member(bootstrap_servers, topic, group_id):
        refused = await admin.delete_consumer_groups([group_id], return_errors=True)
        assert code_of(refused[group_id]) == NON_EMPTY_GROUP
        changed = await admin.alter_consumer_group_offsets(
            group_id, {(topic, 0): 1}, return_errors=True
        )
        assert code_of(changed[TopicPartition(topic, 0)]) == UNKNOWN_MEMBER_ID
    await admin.alter_consumer_group_offsets(group_id, {(topic, 0): 1})
    with pytest.raises(PartialFailure) as caught:
        await admin.delete_consumer_groups([group_id, f"{group_id}-other"])
    assert caught.value.succeeded == {group_id: None}
    assert code_of(caught.value.failed[f"{group_id}-other"]) == GROUP_ID_NOT_FOUND
    assert group_id not in {group.group_id for group in await admin.list_groups()}


@without("deleting groups", as_of="1.0")
async def test_deleting_groups_names_the_release_that_can(admin: Admin, group_id: str):
    with pytest.raises(UnsupportedVersion, match=r"1\.1"):
        await admin.delete_consumer_groups([group_id])


@needs("removing static members")
async def test_a_static_member_is_removed(
    admin: Admin, bootstrap_servers: str, topic: str, group_id: str
):
    await fill(bootstrap_servers, topic, numbered(1))
    async with member(bootstrap_servers, topic, group_id, group_instance_id="one"):
        removed = await admin.remove_members_from_consumer_group(
            group_id, ["one", "two"], reason="test", return_errors=True
        )
        assert removed["one"] is None
        assert code_of(removed["two"]) == UNKNOWN_MEMBER_ID


async def test_all_members_are_removed(
    admin: Admin, bootstrap_servers: str, topic: str, group_id: str
):
    await fill(bootstrap_servers, topic, numbered(1))
    async with member(bootstrap_servers, topic, group_id):
        (described,) = (await admin.describe_consumer_groups([group_id]))[group_id].members
        removed = await admin.remove_members_from_consumer_group(group_id)
        assert removed == {described.member_id: None}


@needs("all committed offsets")
async def test_committed_offsets(admin: Admin, new_topic: NewTopic, group_id: str):
    topic = await new_topic(partitions=2)
    one, other = TopicPartition(topic, 0), TopicPartition(topic, 1)
    assert await admin.list_consumer_group_offsets([group_id]) == {group_id: {}}
    committed = OffsetAndMetadata(7, "note")
    assert await admin.alter_consumer_group_offsets(group_id, {one: committed}) == {one: None}
    assert await admin.list_consumer_group_offsets([group_id]) == {group_id: {one: committed}}
    assert await admin.list_consumer_group_offsets({group_id: [one, other]}) == {
        group_id: {one: committed, other: None}
    }


async def test_committed_offsets_of_partitions(admin: Admin, topic: str, group_id: str):
    tp = TopicPartition(topic, 0)
    await admin.alter_consumer_group_offsets(group_id, {tp: 3})
    offsets = await admin.list_consumer_group_offsets({group_id: [tp]})
    assert offsets == {group_id: {tp: OffsetAndMetadata(3)}}


async def test_an_offset_of_a_topic_that_does_not_exist(admin: Admin, topic: str, group_id: str):
    changed = await admin.alter_consumer_group_offsets(
        group_id, {(topic, 0): 1, (f"{topic}-missing", 0): 1}, return_errors=True
    )
    assert changed[TopicPartition(topic, 0)] is None
    assert code_of(changed[TopicPartition(f"{topic}-missing", 0)]) == UNKNOWN_TOPIC_OR_PARTITION


@needs("deleting offsets")
async def test_committed_offsets_are_deleted(admin: Admin, topic: str, group_id: str):
    tp = TopicPartition(topic, 0)
    with pytest.raises(PartialFailure, match="GROUP_ID_NOT_FOUND"):
        await admin.delete_consumer_group_offsets(group_id, [tp])
    await admin.alter_consumer_group_offsets(group_id, {tp: 3})
    assert await admin.delete_consumer_group_offsets(group_id, [tp]) == {tp: None}
    offsets = await admin.list_consumer_group_offsets({group_id: [tp]})
    assert offsets == {group_id: {tp: None}}


@needs("all committed offsets")
async def test_the_lag_of_groups(
    admin: Admin, bootstrap_servers: str, new_topic: NewTopic, group_id: str
):
    topic, other = await new_topic(partitions=2), f"{group_id}-other"
    await fill(bootstrap_servers, topic, numbered(5))
    await admin.alter_consumer_group_offsets(group_id, {(topic, 0): 2, (topic, 1): 0})
    await admin.alter_consumer_group_offsets(other, {(topic, 0): 5})
    for lags in (await admin.lag(), await admin.lag([group_id, other])):
        assert lags[group_id].partitions == {
            TopicPartition(topic, 0): PartitionLag(2, 5),
            TopicPartition(topic, 1): PartitionLag(0, 0),
        }
        assert (lags[group_id].lag, lags[other].lag) == (3, 0)


@needs("all committed offsets")
async def test_offsets_are_reset(admin: Admin, bootstrap_servers: str, topic: str, group_id: str):
    await fill(bootstrap_servers, topic, numbered(5))
    tp = TopicPartition(topic, 0)
    await admin.alter_consumer_group_offsets(group_id, {tp: 2})
    for target, expected in [
        ({"to": "earliest"}, 0),
        ({"to": "latest"}, 5),
        ({"to": 4}, 4),
        ({"to": 99}, 5),
        ({"to": datetime(2000, 1, 1, tzinfo=UTC)}, 0),
        ({"to": datetime(2100, 1, 1, tzinfo=UTC)}, 5),
        ({"shift_by": 1}, 3),
        ({"shift_by": -9}, 0),
    ]:
        planned = await admin.reset_group_offsets(group_id, **target, dry_run=True)
        assert planned == {tp: OffsetReset(2, expected)}, target
    assert await admin.reset_group_offsets(group_id, [topic], to="latest") == {
        tp: OffsetReset(2, 5)
    }
    offsets = await admin.list_consumer_group_offsets([group_id])
    assert offsets == {group_id: {tp: OffsetAndMetadata(5)}}


@needs("all committed offsets")
async def test_offsets_of_a_group_with_members_are_not_reset(
    admin: Admin, bootstrap_servers: str, topic: str, group_id: str
):
    await fill(bootstrap_servers, topic, numbered(1))
    async with member(bootstrap_servers, topic, group_id):
        for dry_run in (True, False):
            with pytest.raises(PartialFailure, match="stop its consumers first") as caught:
                await admin.reset_group_offsets(group_id, [topic], to="latest", dry_run=dry_run)
            assert code_of(caught.value.failed[TopicPartition(topic, 0)]) == UNKNOWN_MEMBER_ID


@needs("all committed offsets")
async def test_without_a_committed_offset_there_is_none_to_shift(
    admin: Admin, topic: str, group_id: str
):
    with pytest.raises(KafkaError, match="no committed offset"):
        await admin.reset_group_offsets(group_id, [topic], shift_by=1)
    with pytest.raises(PartialFailure, match="UNKNOWN_TOPIC_OR_PARTITION"):
        await admin.reset_group_offsets(group_id, [f"{topic}-missing"], to="latest")

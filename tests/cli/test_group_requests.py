from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from aiokafkawire import Broker, Consumer, Producer, TopicPartition
from aiokafkawire.broker import Answer, ApiKey, SeenRequest
from aiokafkawire.cli import group_requests as requests
from aiokafkawire.cli.arguments import parse_offset
from aiokafkawire.cli.client_session import ClientSession, admin_options, open_session
from aiokafkawire.cli.error_text import CommandFailed
from aiokafkawire.errors import BrokerError, KafkaError, ProtocolError
from aiokafkawire.wire.messages.describe_groups import DescribeGroupsResponse

FIRST, SECOND = TopicPartition("orders", 0), TopicPartition("orders", 1)


@asynccontextmanager
async def shop() -> AsyncIterator[tuple[Broker, ClientSession]]:
    """Two nodes, a topic of two partitions, three records at 1000 to 1002 ms in the first."""
    async with Broker(2) as broker:
        await broker.create_topic("orders", partitions=2)
        servers = broker.bootstrap_servers
        async with Producer(bootstrap_servers=servers) as producer:
            for number in range(3):
                await producer.send("orders", b"x", partition=0, timestamp_ms=1000 + number)
        async with open_session(admin_options(servers, ()), all_topics=True) as session:
            yield broker, session


def reader(broker: Broker, group_id: str = "billing") -> Consumer:
    return Consumer(
        "orders",
        bootstrap_servers=broker.bootstrap_servers,
        group_id=group_id,
        group_instance_id="desk-1",
        client_id="desk",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    )


async def test_a_group_is_described_with_its_members_and_lag():
    async with shop() as (broker, session), reader(broker) as consumer:
        await consumer.getone()
        await consumer.commit({FIRST: 1})
        group = await requests.describe_group(session, "billing")
        assert (group.state, group.protocol, group.lag) == ("Stable", "range", 2)
        assert group.coordinator == broker.coordinator("billing")
        (member,) = group.members
        assert (member.client_id, member.group_instance_id) == ("desk", "desk-1")
        assert member.partitions == (FIRST, SECOND)
        assert group.offsets == (
            requests.PartitionLag(FIRST, 1, 3, member.member_id),
            requests.PartitionLag(SECOND, None, 0, member.member_id),
        )
        assert [each.lag for each in group.offsets] == [2, None]


async def test_groups_of_all_brokers_are_listed_and_errors_reported():
    async with shop() as (broker, session):
        names = ["a", "b", "c", "d"]
        for name in names:
            assert not await requests.reset_offsets(session, name, {FIRST: 0})
        coordinators = {broker.coordinator(name) for name in names}
        assert coordinators == {1, 2}
        found, failed = await requests.list_groups(session)
        assert ([group.group_id for group in found], failed) == (names, [])
        broker.on(ApiKey.LIST_GROUPS, Answer(31), node=1)
        found, failed = await requests.list_groups(session)
        assert [group.group_id for group in found] == [
            name for name in names if broker.coordinator(name) == 2
        ]
        assert [error.broker for error in failed] == ["1"]


async def test_offsets_are_reset_only_without_members():
    async with shop() as (broker, session):
        async with reader(broker) as consumer:
            await consumer.getone()
            with pytest.raises(
                CommandFailed, match=r"is Stable with 1 member, .* stop the group first"
            ):
                await requests.reset_offsets(session, "billing", {FIRST: 2})
            assert isinstance((await requests.delete_groups(session, ["billing"]))[0], BrokerError)
        # The static member stays until its session ends: another group has none.
        assert not await requests.reset_offsets(session, "other", {FIRST: 2})
        group = await requests.describe_group(session, "other")
        assert group.offsets == (requests.PartitionLag(FIRST, 2, 3),)
        assert (group.state, group.members) == ("Empty", ())


@pytest.mark.parametrize(
    ("place", "offset"),
    [("beginning", 0), ("end", 3), ("-1", 2), ("2", 2), ("9", 3), ("s@1001", 1), ("s@2000", 3)],
)
async def test_a_place_is_an_offset_within_the_log(place: str, offset: int):
    async with shop() as (_, session):
        found = await requests.resolve_offsets(session, [FIRST, SECOND], parse_offset(place))
        assert found == {FIRST: offset, SECOND: 0}


async def test_a_partition_without_a_leader_has_no_offsets():
    async with shop() as (_, session):
        place = parse_offset("end")
        assert await requests.resolve_offsets(session, [TopicPartition("orders", 9)], place) == {}


def test_lag_needs_both_ends_and_is_never_negative():
    assert requests.PartitionLag(FIRST, 5, None).lag is None
    assert requests.PartitionLag(FIRST, None, 5).lag is None
    assert requests.PartitionLag(FIRST, 7, 5).lag == 0


async def test_an_answer_about_another_group_is_refused():
    async with shop() as (broker, session):

        def another(_: SeenRequest) -> DescribeGroupsResponse:
            return DescribeGroupsResponse(groups=[])

        broker.on(ApiKey.DESCRIBE_GROUPS, another)
        with pytest.raises(ProtocolError, match="does not contain group 'g'"):
            await requests.describe_group(session, "g")


async def test_a_group_is_forgotten_in_part_or_whole():
    async with shop() as (_, session):
        for name in ("a", "b"):
            await requests.reset_offsets(session, name, {FIRST: 1, SECOND: 0})
        assert not await requests.delete_offsets(session, "a", [FIRST])
        assert [
            each.partition for each in (await requests.describe_group(session, "a")).offsets
        ] == [SECOND]
        (error,) = await requests.delete_groups(session, ["b", "nobody"])
        assert str(error) == "group 'nobody': GROUP_ID_NOT_FOUND (api DeleteGroups)"
        for name in ("b", "nobody"):
            with pytest.raises(CommandFailed, match=f"group '{name}' does not exist"):
                await requests.describe_group(session, name)


async def test_offsets_of_topics_that_are_read_stay():
    async with shop() as (broker, session), reader(broker) as consumer:
        await consumer.getone()
        errors = await requests.delete_offsets(session, "billing", [FIRST, SECOND])
        assert [error.topic for error in errors] == ["orders"]
        assert "GROUP_SUBSCRIBED_TO_TOPIC" in str(errors[0])


async def test_a_refusal_names_the_group():
    async with shop() as (broker, session):
        await requests.reset_offsets(session, "g", {FIRST: 0})
        broker.on(ApiKey.DESCRIBE_GROUPS, Answer(30))
        with pytest.raises(KafkaError, match="group 'g': GROUP_AUTHORIZATION_FAILED"):
            await requests.describe_group(session, "g")
        broker.clear_faults()
        broker.on(ApiKey.OFFSET_FETCH, Answer(30))
        with pytest.raises(KafkaError, match="group 'g': GROUP_AUTHORIZATION_FAILED"):
            await requests.describe_group(session, "g")

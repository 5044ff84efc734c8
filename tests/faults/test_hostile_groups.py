"""Contradictory coordinators: a member never reads partitions that it does not own."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from aiokafkawire.broker import Broker, SeenRequest
from aiokafkawire.consumer import Consumer
from aiokafkawire.errors import GroupFailed
from aiokafkawire.wire import ApiKey
from aiokafkawire.wire.consumer_protocol import encode_assignment
from aiokafkawire.wire.messages.find_coordinator import Coordinator, FindCoordinatorResponse
from aiokafkawire.wire.messages.join_group import JoinGroupResponse
from aiokafkawire.wire.messages.sync_group import SyncGroupResponse
from tests.behaviour.support import fill, numbered, poll_until, take
from tests.faults.support import MEMBER

pytestmark = pytest.mark.slow

NewTopic = Callable[..., Awaitable[str]]


def member(broker: Broker, topic: str, group_id: str) -> Consumer:
    return Consumer(topic, bootstrap_servers=broker.bootstrap_servers, group_id=group_id, **MEMBER)


async def outcome(consumer: Consumer) -> object:
    """Return the values of five records, or the group that an error names: both are correct."""
    try:
        return [record.value for record in await take(consumer, 5)]
    except GroupFailed as error:
        return next(
            (name for name in str(error).replace("'", " ").split() if "group-" in name), error
        )


async def test_a_leader_that_receives_no_members_joins_again(
    broker: Broker, topic: str, group_id: str
):
    await fill(broker.bootstrap_servers, topic, numbered(5))

    def leader_of_nobody(seen: SeenRequest) -> JoinGroupResponse:
        return JoinGroupResponse(
            error_code=0,
            generation_id=7,
            protocol_type="consumer",
            protocol_name="range",
            leader="me",
            member_id="me",
            members=[],
        )

    fault = broker.on(ApiKey.JOIN_GROUP, leader_of_nobody, times=1)
    async with member(broker, topic, group_id) as consumer:
        assert [record.value for record in await take(consumer, 5)] == numbered(5)
    assert fault.hits == 1


@pytest.mark.parametrize("protocol", ["unknown-assignor", None])
async def test_a_protocol_that_the_member_did_not_offer(
    broker: Broker, topic: str, group_id: str, protocol: str | None
):
    await fill(broker.bootstrap_servers, topic, numbered(5))

    def other_protocol(seen: SeenRequest) -> JoinGroupResponse:
        return JoinGroupResponse(
            error_code=0,
            generation_id=1,
            protocol_type="consumer",
            protocol_name=protocol,
            leader="somebody",
            member_id="me",
            members=[],
        )

    broker.on(ApiKey.JOIN_GROUP, other_protocol, times=1)
    async with member(broker, topic, group_id) as consumer:
        assert await outcome(consumer) in (numbered(5), group_id)


async def test_a_topic_that_was_not_subscribed_is_never_read(
    broker: Broker, new_topic: NewTopic, group_id: str
):
    mine, foreign = await new_topic(), await new_topic()
    await fill(broker.bootstrap_servers, foreign, [b"not yours"])

    def both(seen: SeenRequest) -> SyncGroupResponse:
        assignment = encode_assignment([(foreign, 0), (mine, 0)])
        return SyncGroupResponse(
            error_code=0,
            protocol_type="consumer",
            protocol_name="range",
            assignment=assignment,
        )

    fault = broker.on(ApiKey.SYNC_GROUP, both, times=1)
    async with member(broker, mine, group_id) as consumer:
        await poll_until(consumer, lambda: fault.hits == 1)
        await fill(broker.bootstrap_servers, mine, numbered(3))
        records = await take(consumer, 3)
        assert await consumer.getmany(timeout_ms=200) == {}
        assert {partition.topic for partition in consumer.assignment()} == {mine}
    assert [record.value for record in records] == numbered(3)


@pytest.mark.parametrize("garbage", [b"\x00", b"\xff\xff\xff\xff", b"\x00\x00\x7f\xff\xff\xff"])
async def test_an_assignment_that_cannot_be_read(
    broker: Broker, topic: str, group_id: str, garbage: bytes
):
    await fill(broker.bootstrap_servers, topic, numbered(5))

    def unreadable(seen: SeenRequest) -> SyncGroupResponse:
        return SyncGroupResponse(
            error_code=0, protocol_type="consumer", protocol_name="range", assignment=garbage
        )

    broker.on(ApiKey.SYNC_GROUP, unreadable, times=1)
    async with member(broker, topic, group_id) as consumer:
        assert await outcome(consumer) in (numbered(5), group_id)


async def test_a_coordinator_that_does_not_exist_is_sought_again(
    broker: Broker, topic: str, group_id: str
):
    await fill(broker.bootstrap_servers, topic, numbered(5))

    def nowhere(seen: SeenRequest) -> FindCoordinatorResponse:
        found = Coordinator(key=group_id, node_id=77, host="127.0.0.1", port=70_000, error_code=0)
        return FindCoordinatorResponse(coordinators=[found])

    fault = broker.on(ApiKey.FIND_COORDINATOR, nowhere, times=2)
    async with member(broker, topic, group_id) as consumer:
        assert [record.value for record in await take(consumer, 5)] == numbered(5)
    assert fault.hits == 2

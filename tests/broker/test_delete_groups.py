"""DeleteGroups and OffsetDelete: conditions and effects."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from aiokafkawire.broker import Broker
from aiokafkawire.wire import ErrorCode
from aiokafkawire.wire.consumer_protocol import encode_subscription
from aiokafkawire.wire.messages.delete_groups import DeleteGroupsRequest
from aiokafkawire.wire.messages.leave_group import LeaveGroupRequest
from aiokafkawire.wire.messages.list_groups import ListGroupsRequest
from aiokafkawire.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)

from . import group_requests
from .raw_client import RawClient, connected

E = ErrorCode
TOPICS = ("read", "unread")


async def join(client: RawClient, metadata: bytes, protocol_type: str = "consumer") -> str:
    request = group_requests.join(metadata=metadata, protocol_type=protocol_type)
    answer = await client.call(request, 3)
    assert answer.error_code == E.NONE
    member: str = answer.member_id
    return member


async def commit(client: RawClient) -> None:
    response = await client.call(group_requests.commit(*TOPICS), 7)
    assert {p.error_code for t in response.topics for p in t.partitions} == {E.NONE}


async def committed(client: RawClient) -> list[int]:
    response = await client.call(group_requests.offset_fetch_request(*TOPICS), 7)
    return [topic.partitions[0].committed_offset for topic in response.topics]


async def delete(client: RawClient, *groups: str) -> list[int]:
    response = await client.call(DeleteGroupsRequest(groups_names=list(groups)), 2)
    assert [result.group_id for result in response.results] == list(dict.fromkeys(groups))
    return [result.error_code for result in response.results]


async def forget(client: RawClient, *topics: str, group: str = "g", index: int = 0) -> list[int]:
    """Return the error code of the whole request, or one for each topic."""
    partition = OffsetDeleteRequestPartition(partition_index=index)
    asked = [OffsetDeleteRequestTopic(name=name, partitions=[partition]) for name in topics]
    response = await client.call(OffsetDeleteRequest(group_id=group, topics=asked), 0)
    if response.error_code:
        assert response.topics == []
        return [response.error_code]
    assert [topic.name for topic in response.topics] == list(topics)
    return [topic.partitions[0].error_code for topic in response.topics]


@pytest.fixture
async def broker() -> AsyncIterator[Broker]:
    async with Broker(nodes=2) as broker:
        for name in TOPICS:
            await broker.create_topic(name)
        yield broker


@pytest.fixture
async def client(broker: Broker) -> AsyncIterator[RawClient]:
    async with connected(broker, broker.coordinator("g")) as client:
        yield client


async def test_a_group_is_deleted_when_it_has_no_members(broker: Broker, client: RawClient) -> None:
    near = next(n for n in "hijklm" if broker.coordinator(n) == broker.coordinator("g"))
    await commit(client)
    member = await join(client, b"")
    assert await delete(client, "g", near, "g") == [E.NON_EMPTY_GROUP, E.GROUP_ID_NOT_FOUND]
    await client.call(LeaveGroupRequest(group_id="g", member_id=member), 2)
    assert await committed(client) == [5, 5]
    assert await delete(client, "g") == [E.NONE]
    assert await committed(client) == [-1, -1]
    assert (await client.call(ListGroupsRequest(), 5)).groups == []
    assert await delete(client, "g") == [E.GROUP_ID_NOT_FOUND]
    await commit(client)
    assert await committed(client) == [5, 5]


async def test_only_its_coordinator_deletes_a_group(broker: Broker) -> None:
    async with connected(broker, 3 - broker.coordinator("g")) as stranger:
        assert await delete(stranger, "g") == [E.NOT_COORDINATOR]
        assert await forget(stranger, "read") == [E.NOT_COORDINATOR]


async def test_offsets_of_what_is_read_stay(client: RawClient) -> None:
    await commit(client)
    await join(client, encode_subscription(topics=["read"]))
    found = await forget(client, "read", "unread", "nowhere")
    assert found == [E.GROUP_SUBSCRIBED_TO_TOPIC, E.NONE, E.UNKNOWN_TOPIC_OR_PARTITION]
    assert await committed(client) == [5, -1]


async def test_offsets_of_an_empty_group_go(client: RawClient) -> None:
    await commit(client)
    assert await forget(client, "read", index=9) == [E.UNKNOWN_TOPIC_OR_PARTITION]
    assert await forget(client, "read") == [E.NONE]
    assert await committed(client) == [-1, 5]
    assert await forget(client, "read") == [E.NONE]


async def test_members_whose_metadata_cannot_be_read_may_read_anything(client: RawClient) -> None:
    await commit(client)
    await join(client, b"\xff")
    assert await forget(client, *TOPICS) == [E.GROUP_SUBSCRIBED_TO_TOPIC] * 2


async def test_a_group_of_another_kind_keeps_its_offsets(client: RawClient) -> None:
    await commit(client)
    await join(client, b"\xff", "connect")
    assert await forget(client, "unread") == [E.NON_EMPTY_GROUP]


async def test_a_group_that_is_not_there(broker: Broker, client: RawClient) -> None:
    assert await forget(client, "read") == [E.GROUP_ID_NOT_FOUND]
    assert await forget(client, "read", group="") == [E.INVALID_GROUP_ID]


async def test_what_was_deleted_stays_so_over_a_restart(tmp_path: Path) -> None:
    for attempt in range(2):
        async with Broker(data_dir=tmp_path) as broker, connected(broker) as client:
            if attempt == 0:
                for name in TOPICS:
                    await broker.create_topic(name)
                await commit(client)
                assert await delete(client, "g") == [E.NONE]
            assert await committed(client) == [-1, -1]
            assert await delete(client, "g") == [E.GROUP_ID_NOT_FOUND]

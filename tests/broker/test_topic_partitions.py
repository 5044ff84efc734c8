"""DescribeTopicPartitions: order, limits and cursors."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from aiokafkawire.broker import Acl, Broker
from aiokafkawire.wire import ErrorCode
from aiokafkawire.wire.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsTopicRequest,
)

from .raw_client import connected

E = ErrorCode
Shown = tuple[list[tuple[str, int, list[int]]], tuple[str, int] | None]


@pytest.fixture
async def broker() -> AsyncIterator[Broker]:
    async with Broker() as broker:
        await broker.create_topic("b", 2)
        await broker.create_topic("a", 3)
        yield broker


async def describe(
    broker: Broker, *names: str, limit: int = 2_000, cursor: tuple[str, int] | None = None
) -> Any:
    request = DescribeTopicPartitionsRequest(
        topics=[DescribeTopicPartitionsTopicRequest(name=name) for name in names],
        response_partition_limit=limit,
        cursor=cursor and Cursor(topic_name=cursor[0], partition_index=cursor[1]),
    )
    async with connected(broker) as client:
        return await client.call(request, 0)


def shown(response: Any) -> Shown:
    topics = [
        (topic.name, topic.error_code, [each.partition_index for each in topic.partitions])
        for topic in response.topics
    ]
    cursor = response.next_cursor
    return topics, cursor and (cursor.topic_name, cursor.partition_index)


@pytest.mark.parametrize(
    ("names", "limit", "cursor", "expected"),
    [
        ((), 9, None, ([("a", 0, [0, 1, 2]), ("b", 0, [0, 1])], None)),
        (("b", "a", "a"), 2, None, ([("a", 0, [0, 1])], ("a", 2))),
        (("b", "a"), 2, ("a", 2), ([("a", 0, [2]), ("b", 0, [0])], ("b", 1))),
        (("b", "a"), 3, None, ([("a", 0, [0, 1, 2])], ("b", 0))),
        (("b",), 2, None, ([("b", 0, [0, 1])], None)),
        (("a",), 0, None, ([("a", 0, [0])], ("a", 1))),
        (("b", "a"), 2, ("b", 99), ([("b", 0, [])], None)),
        ((), 9, ("aa", 5), ([("b", 0, [0, 1])], None)),
        (("c", "a b"), 9, None, ([("a b", 17, []), ("c", 3, [])], None)),
        (("b", "a"), 9, ("aa", 0), ([("b", 42, []), ("a", 42, [])], None)),
        (("b",), 9, ("b", -1), ([("b", 42, [])], None)),
    ],
)
async def test_pages(
    broker: Broker,
    names: tuple[str, ...],
    limit: int,
    cursor: tuple[str, int] | None,
    expected: Shown,
) -> None:
    response = await describe(broker, *names, limit=limit, cursor=cursor)
    assert shown(response) == expected


async def test_partitions_are_described(broker: Broker) -> None:
    (topic,) = (await describe(broker, "b", limit=1)).topics
    assert not topic.is_internal
    assert topic.topic_authorized_operations > 0
    (partition,) = topic.partitions
    assert (partition.leader_id, partition.leader_epoch) == (1, 0)
    assert (partition.replica_nodes, partition.isr_nodes) == ([1], [1])
    assert (partition.eligible_leader_replicas, partition.offline_replicas) == ([], [])


async def test_a_partition_without_a_leader_with_replication() -> None:
    async with Broker(nodes=3, replicate=True) as broker:
        await broker.create_topic("t", 1, 2)
        down = list(broker.isr("t", 0))
        for node in down:
            await broker.kill(node)
        await broker._wait_for_metadata_propagation(broker._running)
        (topic,) = (await describe(broker, "t")).topics
        (partition,) = topic.partitions
        assert (partition.error_code, partition.leader_id) == (E.LEADER_NOT_AVAILABLE, -1)
        assert sorted(partition.offline_replicas) == sorted(down)


async def test_only_permitted_topics_are_described() -> None:
    async with Broker(acls=[Acl("User:*", "Describe", topic="a")]) as broker:
        for name in ("a", "b"):
            await broker.create_topic(name)
        assert shown(await describe(broker))[0] == [("a", 0, [0])]
        refused = E.TOPIC_AUTHORIZATION_FAILED
        assert shown(await describe(broker, "a", "b"))[0] == [("a", 0, [0]), ("b", refused, [])]

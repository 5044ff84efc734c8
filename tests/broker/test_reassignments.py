"""AlterPartitionReassignments and ListPartitionReassignments on one shared log."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from aiokafkawire.broker import Acl, Broker
from aiokafkawire.broker.topics import NO_LEADER
from aiokafkawire.wire import ErrorCode
from aiokafkawire.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from aiokafkawire.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
)

from .raw_client import batch, connected, only, produce_request

E = ErrorCode


@pytest.fixture
async def broker() -> AsyncIterator[Broker]:
    async with Broker(nodes=3) as broker:
        broker._running.cluster.create_topic("t", assignments={0: [1, 2], 1: [2, 3]})
        yield broker


async def alter(
    broker: Broker,
    replicas: list[int] | None,
    *,
    topic: str = "t",
    index: int = 0,
    version: int = 1,
    **fields: Any,
) -> tuple[int, str | None]:
    """Return the error code and text of one partition."""
    partition = ReassignablePartition(partition_index=index, replicas=replicas)
    request = AlterPartitionReassignmentsRequest(
        topics=[ReassignableTopic(name=topic, partitions=[partition])], timeout_ms=5_000, **fields
    )
    async with connected(broker) as client:
        response = await client.call(request, version)
    (result,) = response.responses[0].partitions
    return result.error_code, result.error_message


async def pending(
    broker: Broker, topics: dict[str, list[int]] | None = None
) -> dict[tuple[str, int], tuple[list[int], list[int], list[int]]]:
    """Return replicas, adding and removing replicas of each reassignment in progress."""
    requested = (
        None
        if topics is None
        else [
            ListPartitionReassignmentsTopics(name=name, partition_indexes=indexes)
            for name, indexes in topics.items()
        ]
    )
    async with connected(broker) as client:
        response = await client.call(ListPartitionReassignmentsRequest(topics=requested), 0)
    assert response.error_code == E.NONE
    return {
        (topic.name, each.partition_index): (
            each.replicas,
            each.adding_replicas,
            each.removing_replicas,
        )
        for topic in response.topics
        for each in topic.partitions
    }


async def test_replicas_move_at_once(broker: Broker) -> None:
    partition = broker._running.cluster.topics["t"].partitions[0]
    assert await alter(broker, [3, 1]) == (E.NONE, None)
    assert (partition.replicas, partition.isr, partition.leader) == ([3, 1], [3, 1], 1)
    assert await pending(broker) == {}


async def test_a_removed_leader_is_replaced(broker: Broker) -> None:
    assert await alter(broker, [3, 2]) == (E.NONE, None)
    assert broker.leader("t", 0) == 3
    async with connected(broker, 3) as client:
        answer = only(await client.call(produce_request("t", 0, batch(b"v")), 9))
    assert answer.error_code == E.NONE


@pytest.mark.parametrize(
    ("replicas", "fields", "expected"),
    [
        ([1], {"topic": "u"}, (E.UNKNOWN_TOPIC_OR_PARTITION, "Unable to find a topic named u.")),
        ([1], {"index": 9}, (E.UNKNOWN_TOPIC_OR_PARTITION, "Unable to find partition t:9.")),
        (None, {}, (E.NO_REASSIGNMENT_IN_PROGRESS, None)),
        (
            [],
            {},
            (
                E.INVALID_REPLICA_ASSIGNMENT,
                "The manual partition assignment includes an empty replica list.",
            ),
        ),
        (
            [1, 1],
            {},
            (
                E.INVALID_REPLICA_ASSIGNMENT,
                "The manual partition assignment includes the broker 1 more than once.",
            ),
        ),
        (
            [1, 9],
            {},
            (
                E.INVALID_REPLICA_ASSIGNMENT,
                "The manual partition assignment includes broker 9, but no such broker is"
                " registered.",
            ),
        ),
        (
            [1, 2, 3],
            {"allow_replication_factor_change": False},
            (
                E.INVALID_REPLICATION_FACTOR,
                "The replication factor is changed from 2 to 3",
            ),
        ),
    ],
)
async def test_errors_and_texts_of_kafka_4_3(
    broker: Broker,
    replicas: list[int] | None,
    fields: dict[str, Any],
    expected: tuple[int, str | None],
) -> None:
    assert await alter(broker, replicas, **fields) == expected
    assert broker._running.cluster.topics["t"].partitions[0].replicas == [1, 2]


async def test_a_replica_on_a_dead_node_is_awaited(broker: Broker) -> None:
    partition = broker._running.cluster.topics["t"].partitions[0]
    await broker.kill(3)
    assert await alter(broker, [1, 3]) == (E.NONE, None)
    waiting = {("t", 0): ([1, 3, 2], [3], [2])}
    assert await pending(broker) == waiting
    assert await pending(broker, {"t": [0, 1, 9], "u": [0]}) == waiting
    assert await pending(broker, {"t": [1]}) == {}
    await broker.restart(3)
    assert await pending(broker) == {}
    assert (partition.replicas, partition.isr) == ([1, 3], [1, 3])


async def test_a_reassignment_can_be_cancelled(broker: Broker) -> None:
    partition = broker._running.cluster.topics["t"].partitions[0]
    await broker.kill(3)
    await alter(broker, [1, 3])
    assert await alter(broker, None) == (E.NONE, None)
    assert (partition.replicas, partition.isr, partition.leader) == ([1, 2], [1, 2], 1)
    assert await pending(broker) == {}
    assert await alter(broker, None) == (E.NO_REASSIGNMENT_IN_PROGRESS, None)


async def test_a_cancellation_needs_an_in_sync_replica(broker: Broker) -> None:
    await broker.kill(3)
    await alter(broker, [3])
    partition = broker._running.cluster.topics["t"].partitions[0]
    partition.isr, partition.leader = [3], NO_LEADER
    assert await alter(broker, None) == (
        E.INVALID_REPLICA_ASSIGNMENT,
        "Unable to revert partition assignment for t:0 because it would require an unclean leader"
        " election.",
    )


async def test_alter_and_describe_on_the_cluster_are_needed() -> None:
    acls = [Acl("User:ANONYMOUS", "Describe", cluster=True)]
    async with Broker(nodes=2, acls=acls) as broker:
        broker._running.cluster.create_topic("t", assignments={0: [1]})
        assert (await alter(broker, [2]))[0] == E.CLUSTER_AUTHORIZATION_FAILED
        assert await pending(broker) == {}
        broker.remove_acls(*acls)
        async with connected(broker) as client:
            response = await client.call(ListPartitionReassignmentsRequest(topics=None), 0)
        assert response.error_code == E.CLUSTER_AUTHORIZATION_FAILED


async def test_before_kraft_only_the_controller_answers() -> None:
    async with Broker(nodes=2, as_of="2.8") as broker, connected(broker, 2) as client:
        request = AlterPartitionReassignmentsRequest(topics=[])
        assert (await client.call(request, 0)).error_code == E.NOT_CONTROLLER
        listing = ListPartitionReassignmentsRequest(topics=None)
        assert (await client.call(listing, 0)).error_code == E.NOT_CONTROLLER


async def test_a_reassignment_completes_with_a_restart(tmp_path: Any) -> None:
    async with Broker(nodes=3, data_dir=tmp_path) as broker:
        broker._running.cluster.create_topic("t", assignments={0: [1, 2]})
        await broker.kill(3)
        await alter(broker, [1, 3])
    async with Broker(nodes=3, data_dir=tmp_path) as broker:
        assert broker._running.cluster.topics["t"].partitions[0].replicas == [1, 3]
        assert await pending(broker) == {}

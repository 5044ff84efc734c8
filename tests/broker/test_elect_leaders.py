"""ElectLeaders."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from aiokafkawire.broker import Acl, Broker
from aiokafkawire.wire import ErrorCode
from aiokafkawire.wire.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersTopicPartitions,
)

from .raw_client import connected

E = ErrorCode
PREFERRED, UNCLEAN = 0, 1
NOT_NEEDED = (E.ELECTION_NOT_NEEDED, "Leader election not needed for topic partition.")
Results = dict[tuple[str, int], tuple[int, str | None]]


@pytest.fixture
async def broker() -> AsyncIterator[Broker]:
    async with Broker(nodes=3) as broker:
        broker._running.cluster.create_topic("t", assignments={0: [1, 2], 1: [2, 3]})
        yield broker


async def elect(
    broker: Broker,
    topics: dict[str, list[int]] | None,
    election_type: int = PREFERRED,
    *,
    version: int = 2,
    node: int | None = None,
) -> tuple[int, Results]:
    partitions = (
        None
        if topics is None
        else [
            ElectLeadersTopicPartitions(topic=name, partitions=indexes)
            for name, indexes in topics.items()
        ]
    )
    request = ElectLeadersRequest(
        election_type=election_type, topic_partitions=partitions, timeout_ms=5_000
    )
    async with connected(broker, node) as client:
        response = await client.call(request, version)
    return response.error_code, {
        (topic.topic, each.partition_id): (each.error_code, each.error_message)
        for topic in response.replica_election_results
        for each in topic.partition_result
    }


@pytest.mark.parametrize("version", [0, 1, 2])
async def test_the_preferred_leader_is_elected(broker: Broker, version: int) -> None:
    broker.move_leader("t", 0, 2)
    assert await elect(broker, {"t": [0]}, version=version) == (E.NONE, {("t", 0): (E.NONE, None)})
    assert broker.leader("t", 0) == 1


async def test_errors_and_texts_of_kafka_4_3(broker: Broker) -> None:
    assert await elect(broker, {"t": [0, 9], "u": [0]}) == (
        E.NONE,
        {
            ("t", 0): NOT_NEEDED,
            ("t", 9): (E.UNKNOWN_TOPIC_OR_PARTITION, "No such partition as t-9"),
            ("u", 0): (E.UNKNOWN_TOPIC_OR_PARTITION, "No such topic as u"),
        },
    )
    assert await elect(broker, {"t": [0]}, UNCLEAN) == (E.NONE, {("t", 0): NOT_NEEDED})
    assert await elect(broker, {"t": [0]}, 7) == (
        E.INVALID_REQUEST,
        {("t", 0): (E.INVALID_REQUEST, "Unknown election type 7")},
    )


async def test_null_is_every_partition_that_needs_it(broker: Broker) -> None:
    broker.move_leader("t", 1, 3)
    assert await elect(broker, None) == (E.NONE, {("t", 1): (E.NONE, None)})
    assert await elect(broker, None) == (E.NONE, {})
    assert broker.leader("t", 1) == 2


async def test_a_preferred_leader_that_is_down(broker: Broker) -> None:
    await broker.kill(1)
    assert await elect(broker, {"t": [0]}) == (
        E.NONE,
        {("t", 0): (E.PREFERRED_LEADER_NOT_AVAILABLE, "The preferred leader was not available.")},
    )


async def test_an_unclean_election_needs_a_live_replica(broker: Broker) -> None:
    await broker.kill(2)
    await broker.kill(3)
    text = "Eligible topic partition leaders are not available."
    assert await elect(broker, None, UNCLEAN) == (
        E.NONE,
        {("t", 1): (E.ELIGIBLE_LEADERS_NOT_AVAILABLE, text)},
    )


async def test_alter_on_the_cluster_is_needed() -> None:
    async with Broker(acls=[Acl("User:x", "All", cluster=True)]) as broker:
        code, _ = await elect(broker, None)
        assert code == E.CLUSTER_AUTHORIZATION_FAILED


async def test_before_kraft_only_the_controller_answers() -> None:
    async with Broker(nodes=2, as_of="2.8") as broker:
        code, _ = await elect(broker, None, node=2)
        assert code == E.NOT_CONTROLLER

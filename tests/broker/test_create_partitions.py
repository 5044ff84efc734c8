"""CreatePartitions, and `Broker.add_partitions`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest

from aiokafkawire.broker import Broker
from aiokafkawire.errors import BrokerError
from aiokafkawire.wire import ErrorCode
from aiokafkawire.wire.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)

from .raw_client import batch, connected, only, produce_request

E = ErrorCode


@pytest.fixture
async def broker() -> AsyncIterator[Broker]:
    async with Broker(nodes=3) as broker:
        await broker.create_topic("t", partitions=2, replication_factor=2)
        yield broker


async def create(
    broker: Broker,
    *counts: tuple[str, int],
    assignments: Sequence[Sequence[int]] | None = None,
    validate_only: bool = False,
) -> list[tuple[str, int]]:
    given = assignments and [
        CreatePartitionsAssignment(broker_ids=list(each)) for each in assignments
    ]
    topics = [
        CreatePartitionsTopic(
            name=name, count=count, assignments=None if given is None else list(given)
        )
        for name, count in counts
    ]
    request = CreatePartitionsRequest(topics=topics, timeout_ms=1_000, validate_only=validate_only)
    async with connected(broker) as client:
        response = await client.call(request, 3)
    return [(result.name, result.error_code) for result in response.results]


async def test_partitions_are_added_and_can_be_written(broker: Broker) -> None:
    assert await create(broker, ("t", 5)) == [("t", E.NONE)]
    assert broker.topics == {"t": 5}
    for partition in broker._running.cluster.topics["t"].partitions:
        assert (len(partition.replicas), partition.isr) == (2, partition.replicas)
        async with connected(broker, partition.leader) as client:
            request = produce_request("t", partition.index, batch(b"v"))
            assert only(await client.call(request, 9)).error_code == E.NONE


async def test_it_can_be_tried_first(broker: Broker) -> None:
    assert await create(broker, ("t", 5), validate_only=True) == [("t", E.NONE)]
    assert broker.topics == {"t": 2}


@pytest.mark.parametrize(
    ("counts", "assignments", "expected"),
    [
        ((("t", 2),), None, E.INVALID_PARTITIONS),
        ((("t", 1),), None, E.INVALID_PARTITIONS),
        ((("t", 10_003),), None, E.POLICY_VIOLATION),
        ((("u", 2),), None, E.UNKNOWN_TOPIC_OR_PARTITION),
        ((("t", 3), ("t", 4)), None, E.INVALID_REQUEST),
        ((("t", 4),), [[1]], E.INVALID_REPLICA_ASSIGNMENT),
        ((("t", 3),), [[9]], E.INVALID_REPLICA_ASSIGNMENT),
        ((("t", 3),), [[1, 1]], E.INVALID_REPLICA_ASSIGNMENT),
        ((("t", 3),), [[]], E.INVALID_REPLICA_ASSIGNMENT),
    ],
)
async def test_what_cannot_be_is_refused(
    broker: Broker,
    counts: tuple[tuple[str, int], ...],
    assignments: list[list[int]] | None,
    expected: ErrorCode,
) -> None:
    found = await create(broker, *counts, assignments=assignments)
    assert found == [(counts[0][0], expected)]
    assert broker.topics == {"t": 2}


async def test_the_first_replica_of_an_assignment_leads(broker: Broker) -> None:
    assert await create(broker, ("t", 4), assignments=[[3, 1], [2, 3]]) == [("t", E.NONE)]
    assert [broker.leader("t", index) for index in (2, 3)] == [3, 2]


async def test_by_hand(broker: Broker) -> None:
    await broker.add_partitions("t", 3)
    assert broker.topics == {"t": 3}
    with pytest.raises(BrokerError, match="INVALID_PARTITIONS"):
        await broker.add_partitions("t", 3)
    with pytest.raises(BrokerError, match="UNKNOWN_TOPIC_OR_PARTITION"):
        await broker.add_partitions("u", 3)


async def test_they_outlive_a_restart(tmp_path: Path) -> None:
    async with Broker(data_dir=tmp_path) as broker:
        await broker.create_topic("t")
        await broker.add_partitions("t", 4)
    async with Broker(data_dir=tmp_path) as broker:
        assert broker.topics == {"t": 4}

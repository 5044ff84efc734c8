"""Records without a key and the racks of partition leaders (KIP-1123)."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from aiokafkawire.broker import Broker
from aiokafkawire.producer import Producer

pytestmark = pytest.mark.slow

QUICK: dict[str, Any] = {
    "linger_ms": 0,
    "batch_size_bytes": 1,
    "retry_backoff_ms": 5,
    "retry_backoff_max_ms": 20,
    "reconnect_backoff_ms": 5,
}


async def leaders_used(broker: Broker, **options: Any) -> Counter[int]:
    """Return how many of 40 records without a key each node got."""
    found: Counter[int] = Counter()
    servers = broker.bootstrap_servers
    async with Producer(bootstrap_servers=servers, **(QUICK | options)) as producer:
        for number in range(40):
            sent = await producer.send_and_wait("t", b"%d" % number)
            found[broker.leader("t", sent.partition)] += 1
    return found


@pytest.mark.parametrize(
    ("options", "nodes"),
    [
        ({"client_rack": "b", "partitioner_rack_aware": True}, {2}),
        ({"client_rack": "a", "partitioner_rack_aware": True}, {1, 3}),
        ({"client_rack": "b"}, {1, 2, 3}),
        ({"partitioner_rack_aware": True}, {1, 2, 3}),
        ({"client_rack": "elsewhere", "partitioner_rack_aware": True}, {1, 2, 3}),
    ],
)
async def test_records_without_a_key_stay_in_the_rack(
    options: dict[str, Any], nodes: set[int]
) -> None:
    async with Broker(nodes=3, racks=["a", "b", "a"]) as broker:
        await broker.create_topic("t", partitions=6, replication_factor=3)
        assert set(await leaders_used(broker, **options)) == nodes


async def test_other_racks_are_used_while_the_rack_has_no_leader() -> None:
    options = {"client_rack": "b", "partitioner_rack_aware": True}
    async with Broker(nodes=3, racks=["a", "b", "a"]) as broker:
        await broker.create_topic("t", partitions=6, replication_factor=3)
        await broker.kill(2)
        assert set(await leaders_used(broker, **options)) == {1, 3}


async def test_records_with_a_key_and_those_of_a_partitioner_go_everywhere() -> None:
    options = {"client_rack": "b", "partitioner_rack_aware": True, **QUICK}
    async with Broker(nodes=3, racks=["a", "b", "a"]) as broker:
        await broker.create_topic("t", partitions=6, replication_factor=3)
        servers = broker.bootstrap_servers
        async with Producer(bootstrap_servers=servers, **options) as producer:
            partitions = {
                (await producer.send_and_wait("t", b"v", key=b"%d" % number)).partition
                for number in range(40)
            }
        assert partitions == set(range(6))
        async with Producer(
            bootstrap_servers=servers, partitioner=lambda key, every, led: every[0], **options
        ) as producer:
            assert (await producer.send_and_wait("t", b"v")).partition == 0

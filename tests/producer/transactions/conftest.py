"""Transactional producers on embedded brokers of `transaction.version` 0 and 2."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from aiokafkawire.broker import Broker
from aiokafkawire.consumer import Consumer
from aiokafkawire.producer import Producer
from aiokafkawire.types import TopicPartition

RELEASE_TV_0, RELEASE_TV_2 = "2.8", "4.4"
"""Releases whose `transaction.version` is 0, and 2."""

QUICK: dict[str, Any] = {
    "transactional_id": "id",
    "linger_ms": 0,
    "request_timeout_ms": 10_000,
    "delivery_timeout_ms": 30_000,
    "retry_backoff_ms": 5,
    "retry_backoff_max_ms": 20,
    "reconnect_backoff_ms": 5,
    "reconnect_backoff_max_ms": 20,
    "max_block_ms": 20_000,
}


@pytest.fixture(params=[RELEASE_TV_0, RELEASE_TV_2], ids=["TV_0", "TV_2"])
def release(request: pytest.FixtureRequest) -> str:
    found: str = request.param
    return found


@pytest.fixture
async def broker(anyio_backend: object, release: str) -> AsyncIterator[Broker]:
    async with Broker(nodes=3, as_of=release, auto_create_topics=False) as broker:
        await broker.create_topic("t", partitions=2, replication_factor=3)
        yield broker


NewProducer = Callable[..., Producer]


@pytest.fixture
def new_producer(broker: Broker) -> NewProducer:
    def make(**options: Any) -> Producer:
        return Producer(bootstrap_servers=broker.bootstrap_servers, **(QUICK | options))

    return make


async def visible(broker: Broker, topic: str = "t") -> list[bytes | None]:
    """Return what a `read_committed` consumer reads, partition by partition."""
    values: list[bytes | None] = []
    async with Consumer(
        bootstrap_servers=broker.bootstrap_servers,
        isolation_level="read_committed",
        auto_offset_reset="earliest",
        fetch_max_wait_ms=10,
    ) as consumer:
        for number in range(broker.topics[topic]):
            partition = TopicPartition(topic, number)
            consumer.assign(partition)
            end = (await consumer.end_offsets(partition))[partition]
            while await consumer.position(partition) < end:
                for records in (await consumer.getmany(timeout_ms=10)).values():
                    values += records.values()
    return values

"""Producers on an embedded broker of three nodes."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from aiokafkawire.broker import Broker
from aiokafkawire.producer import Producer
from aiokafkawire.records import iter_batches

HASTY: dict[str, Any] = {
    "request_timeout_ms": 10_000,
    "delivery_timeout_ms": 30_000,
    "retry_backoff_ms": 10,
    "retry_backoff_max_ms": 50,
    "reconnect_backoff_ms": 10,
    "reconnect_backoff_max_ms": 50,
    "max_block_ms": 20_000,
}


@pytest.fixture
async def broker(anyio_backend: object) -> AsyncIterator[Broker]:
    async with Broker(nodes=3, auto_create_topics=False) as broker:
        await broker.create_topic("t", partitions=3, replication_factor=3)
        yield broker


@pytest.fixture
def new_producer(broker: Broker) -> Callable[..., Producer]:
    def make(**options: Any) -> Producer:
        return Producer(bootstrap_servers=broker.bootstrap_servers, **(HASTY | options))

    return make


def produced(request: Any) -> list[Any]:
    """Return the batches of a Produce request, in order."""
    return [
        view
        for topic in request.message.topic_data
        for partition in topic.partition_data
        for view in iter_batches(memoryview(partition.records))
    ]

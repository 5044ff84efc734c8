"""Helpers for tests of the consumer: records in the embedded broker, short timeouts."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import anyio

from aiokafkawire.broker import Broker
from aiokafkawire.consumer import Consumer
from aiokafkawire.records import Record
from aiokafkawire.types import TopicPartition
from tests.broker.raw_client import batch, connected, only, produce_request

TIMEOUT_S = 30
PRODUCE_VERSION = 5
"""All releases with record batches support it."""

QUICK: dict[str, Any] = {
    "auto_offset_reset": "earliest",
    "fetch_max_wait_ms": 50,
    "retry_backoff_ms": 10,
    "retry_backoff_max_ms": 50,
    "reconnect_backoff_ms": 10,
    "reconnect_backoff_max_ms": 50,
    "heartbeat_interval_ms": 50,
}


def consumer(broker: Broker, *topics: str, **options: Any) -> Consumer:
    return Consumer(*topics, bootstrap_servers=broker.bootstrap_servers, **QUICK | options)


def numbers(start: int, stop: int) -> list[bytes]:
    return [b"%d" % number for number in range(start, stop)]


@asynccontextmanager
async def orders_broker(
    partitions: int = 1, *, records: int = 0, **options: Any
) -> AsyncIterator[Broker]:
    """Run a broker with the topic `orders`, and records `numbers(0, records)` in partition 0."""
    async with Broker(**options) as broker:
        await broker.create_topic("orders", partitions)
        if records:
            await produce(broker, "orders", 0, numbers(0, records))
        yield broker


async def produce(
    broker: Broker, topic: str, partition: int, values: list[bytes], *, each: int = 100
) -> None:
    """Append the values in batches of `each` records."""
    async with connected(broker, broker.leader(topic, partition)) as client:
        for start in range(0, len(values), each):
            records = batch(*values[start : start + each])
            request = produce_request(topic, partition, records)
            response = await client.call(request, PRODUCE_VERSION)
            assert only(response).error_code == 0


async def read(reader: Consumer, count: int) -> list[Record]:
    """Return `count` records, read one by one."""
    records: list[Record] = []
    with anyio.fail_after(TIMEOUT_S):
        while len(records) < count:
            records.append(await reader.getone())
    return records


async def until(condition: Callable[[], bool], reader: Consumer) -> None:
    """Call `getmany`, which must return no records, until a condition holds."""
    with anyio.fail_after(TIMEOUT_S):
        while not condition():
            assert await reader.getmany(timeout_ms=5) == {}


async def eventually(condition: Callable[[], Awaitable[bool]]) -> None:
    with anyio.fail_after(TIMEOUT_S):
        while not await condition():
            await anyio.lowlevel.checkpoint()


def parts(topic: str, count: int) -> list[TopicPartition]:
    return [TopicPartition(topic, number) for number in range(count)]

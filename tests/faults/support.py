"""Helpers of the fault tests: options with short timeouts, and reading back."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import anyio

from aiokafkawire.consumer import Consumer
from aiokafkawire.producer import Producer
from aiokafkawire.records import Record
from aiokafkawire.types import TopicPartition

WITHIN_S = 30.0
"""Longer than any step takes on a busy machine; a test that reaches it has failed."""

IMPATIENT: dict[str, Any] = {
    "request_timeout_ms": 400,
    "retry_backoff_ms": 10,
    "retry_backoff_max_ms": 100,
    "reconnect_backoff_ms": 10,
    "reconnect_backoff_max_ms": 100,
}
"""Options of a client with short timeouts and backoffs."""

READER: dict[str, Any] = IMPATIENT | {"auto_offset_reset": "earliest", "fetch_max_wait_ms": 50}

MEMBER: dict[str, Any] = READER | {
    "enable_auto_commit": False,
    "session_timeout_ms": 1_500,
    "heartbeat_interval_ms": 50,
}


def numbered(count: int, start: int = 0) -> list[bytes]:
    return [b"%05d" % number for number in range(start, start + count)]


async def fill(bootstrap_servers: str, topic: str, values: list[bytes], partition: int = 0) -> None:
    async with Producer(bootstrap_servers=bootstrap_servers) as producer:
        for value in values:
            await producer.send(topic, value, partition=partition)


@asynccontextmanager
async def reading(
    bootstrap_servers: str, topic: str, partitions: int = 1, **options: Any
) -> AsyncIterator[Consumer]:
    """A consumer without a group at the start of all partitions."""
    async with Consumer(bootstrap_servers=bootstrap_servers, **(READER | options)) as consumer:
        consumer.assign([TopicPartition(topic, number) for number in range(partitions)])
        yield consumer


async def take(consumer: Consumer, count: int) -> list[Record]:
    """Read until there are at least `count` records; fail if they do not arrive."""
    records: list[Record] = []
    with anyio.fail_after(WITHIN_S):
        while len(records) < count:
            for some in (await consumer.getmany(timeout_ms=100)).values():
                records.extend(some)
    return records


async def committed(consumer: Consumer, partition: TopicPartition) -> int | None:
    """Return the committed offset of a consumer's group."""
    found = (await consumer.committed(partition))[partition]
    return None if found is None else found.offset


async def poll_until(consumer: Consumer, holds: Callable[[], bool]) -> list[Record]:
    """Poll until a condition holds; return the records read meanwhile."""
    records: list[Record] = []
    with anyio.fail_after(WITHIN_S):
        while not holds():
            for some in (await consumer.getmany(timeout_ms=50)).values():
                records.extend(some)
    return records


async def stored(bootstrap_servers: str, topic: str, partitions: int = 1) -> list[bytes | None]:
    """Return all values of a topic, partition by partition in the order of offsets."""
    async with reading(bootstrap_servers, topic, partitions) as consumer:
        ends = await consumer.end_offsets(*consumer.assignment())
        records = await take(consumer, sum(ends.values()))
    return [r.value for r in sorted(records, key=lambda r: (r.partition, r.offset))]

"""Helpers of the behaviour tests: write some records, read them back."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import anyio

from aiokafkawire.consumer import Consumer
from aiokafkawire.producer import Producer
from aiokafkawire.records import Record
from aiokafkawire.types import TopicPartition

WITHIN_S = 30.0
"""Longer than any step takes on a busy machine; a test that reaches it has failed."""

POLL_MS = 250

MEMBER: dict[str, Any] = {
    "auto_offset_reset": "earliest",
    "enable_auto_commit": False,
    "session_timeout_ms": 10_000,
    "heartbeat_interval_ms": 100,
    "fetch_max_wait_ms": 100,
}
"""Options of a group member with short timeouts, but for the session: a busy machine may delay
heartbeats by a second."""


def partitions_of(topic: str, count: int) -> list[TopicPartition]:
    return [TopicPartition(topic, partition) for partition in range(count)]


def numbered(count: int, start: int = 0) -> list[bytes]:
    return [b"%05d" % number for number in range(start, start + count)]


async def fill(
    bootstrap_servers: str, topic: str, values: Sequence[bytes], partition: int | None = 0
) -> None:
    """Write values to one partition, or with `partition=None` to any."""
    async with Producer(bootstrap_servers=bootstrap_servers) as producer:
        for value in values:
            await producer.send(topic, value, partition=partition)


async def spread(bootstrap_servers: str, topic: str, per_partition: int, partitions: int) -> None:
    """Write `per_partition` unique values to each partition."""
    async with Producer(bootstrap_servers=bootstrap_servers) as producer:
        for number in range(per_partition):
            for partition in range(partitions):
                await producer.send(topic, b"%d/%d" % (partition, number), partition=partition)


def spread_values(per_partition: int, partitions: int) -> set[bytes]:
    """Return the values that `spread` writes."""
    return {b"%d/%d" % (p, n) for n in range(per_partition) for p in range(partitions)}


@asynccontextmanager
async def reading(
    bootstrap_servers: str, topic: str, partitions: int = 1, **options: Any
) -> AsyncIterator[Consumer]:
    """A consumer without a group at the start of all partitions."""
    options = {"auto_offset_reset": "earliest", "fetch_max_wait_ms": 100} | options
    async with Consumer(bootstrap_servers=bootstrap_servers, **options) as consumer:
        consumer.assign(partitions_of(topic, partitions))
        yield consumer


async def take(consumer: Consumer, count: int) -> list[Record]:
    """Read until there are at least `count` records; fail if they do not arrive."""
    records: list[Record] = []
    with anyio.fail_after(WITHIN_S):
        while len(records) < count:
            for some in (await consumer.getmany(timeout_ms=POLL_MS)).values():
                records.extend(some)
    return records


async def stored(bootstrap_servers: str, topic: str, partitions: int = 1) -> list[Record]:
    """Return all records of a topic, partition by partition in the order of offsets."""
    async with reading(bootstrap_servers, topic, partitions) as consumer:
        ends = await consumer.end_offsets(*partitions_of(topic, partitions))
        records = await take(consumer, sum(ends.values()))
    return sorted(records, key=lambda record: (record.partition, record.offset))


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


async def eventually(check: Callable[[], Awaitable[bool]]) -> None:
    """Wait until a check holds, such as until brokers have learned of a change."""
    with anyio.fail_after(WITHIN_S):
        while not await check():  # noqa: ASYNC110 - a broker gives no sign
            await anyio.sleep(0.05)


async def settle(*members: Consumer, partitions: int) -> list[Record]:
    """Poll all members in turn until together they own this number of partitions, each at least
    one.

    All in this task, as a poll of another task does not mark this task's records as processed.
    """
    records: list[Record] = []
    with anyio.fail_after(WITHIN_S):
        while not _settled(members, partitions):
            for consumer in members:
                for some in (await consumer.getmany(timeout_ms=20)).values():
                    records.extend(some)
    return records


def _settled(members: Sequence[Consumer], partitions: int) -> bool:
    owned = [consumer.assignment() for consumer in members]
    return all(owned) and sum(map(len, owned)) == partitions

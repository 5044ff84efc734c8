"""aiokafkawire."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import aiokafkawire
from aiokafkawire import Consumer, Producer, TopicPartition
from aiokafkawire.errors import BufferFull
from benchmarks.clients import common
from benchmarks.load import (
    ARROW_RECORDS,
    BATCH_BYTES,
    BUFFER_BYTES,
    FETCH_BYTES,
    LINGER_MS,
    MAX_RECORDS,
    PARTITIONS,
    PER_YIELD,
    VALUE,
    Setup,
    Side,
    check,
    working,
)


def about() -> str:
    return str(aiokafkawire.about()).removeprefix("aiokafkawire ")


@asynccontextmanager
async def producer(setup: Setup, linger_ms: int = LINGER_MS) -> AsyncIterator[Producer]:
    async with Producer(
        bootstrap_servers=setup.bootstrap_servers,
        acks="all",
        enable_idempotence=True,
        linger_ms=linger_ms,
        batch_size_bytes=BATCH_BYTES,
        buffer_memory_bytes=BUFFER_BYTES,
        compression_type=setup.compression,
    ) as opened:
        yield opened


def know_all(deliveries: list[Any]) -> None:
    """Ask each for its outcome: raises the first failure."""
    for delivery in deliveries:
        delivery.result()


async def send_nowait(producer: Producer, setup: Setup, count: int) -> int:
    topic = setup.topic
    await producer.partitions_for(topic)
    deliveries: list[Any] = []
    send, add = producer.send_nowait, deliveries.append
    for start in range(0, count, PER_YIELD):
        for _ in range(min(PER_YIELD, count - start)):
            try:
                add(send(topic, VALUE))
            except BufferFull:
                add(await producer.send(topic, VALUE))
        await asyncio.sleep(0)
    await producer.flush()
    know_all(deliveries)
    return count


async def send(producer: Producer, setup: Setup, count: int) -> int:
    topic = setup.topic
    deliveries: list[Any] = []
    add = deliveries.append
    for _ in range(count):
        add(await producer.send(topic, VALUE))
    await producer.flush()
    know_all(deliveries)
    return count


async def send_many(producer: Producer, setup: Setup, count: int) -> int:
    """`flush` raises if one of them failed."""
    values = [VALUE] * MAX_RECORDS
    for _ in range(0, count, MAX_RECORDS):
        await producer.send_many(setup.topic, values)
    await producer.flush()
    return count


async def one_at_a_time(producer: Producer, setup: Setup, count: int) -> int:
    return await common.one_at_a_time(
        lambda: producer.send_and_wait(setup.topic, VALUE), setup, count
    )


async def requests(producer: Producer, setup: Setup, count: int) -> int:
    return await common.requests(lambda: producer.send_and_wait(setup.topic, VALUE), setup, count)


@asynccontextmanager
async def consumer(setup: Setup, max_records: int = MAX_RECORDS) -> AsyncIterator[Consumer]:
    async with Consumer(
        bootstrap_servers=setup.bootstrap_servers,
        auto_offset_reset="earliest",
        max_poll_records=max_records,
        max_partition_fetch_bytes=FETCH_BYTES,
    ) as opened:
        opened.assign(*(TopicPartition(setup.topic, number) for number in range(PARTITIONS)))
        yield opened


async def in_lists(consumer: Consumer, setup: Setup, count: int) -> int:
    return await common.in_lists(consumer, count)


async def in_values(consumer: Consumer, setup: Setup, count: int) -> int:
    """Values without records."""
    return await common.in_lists(
        consumer, count, lambda records: sum(len(value) for value in records.values())
    )


async def one_by_one(consumer: Consumer, setup: Setup, count: int) -> int:
    return await common.one_by_one(consumer, count)


async def to_arrow(consumer: Consumer, setup: Setup, count: int) -> int:
    from pyarrow import compute  # noqa: PLC0415 - slow to import, and only wanted here

    seen = size = 0
    async for records in consumer.batches():
        batch = records.to_arrow()
        size += compute.sum(compute.binary_length(batch.column("value"))).as_py()
        seen += batch.num_rows
        if seen >= count:
            break
    check(size, seen)
    return seen


SIDES: Mapping[str, Side] = {
    "send_nowait": working(send_nowait, producer),
    "send": working(send, producer),
    "send_many": working(send_many, producer),
    "one-at-a-time": working(one_at_a_time, partial(producer, linger_ms=0)),
    "requests": working(requests, producer),
    "getmany": working(in_lists, consumer),
    "getmany-values": working(in_values, consumer),
    "async-for": working(one_by_one, consumer),
    "arrow": working(to_arrow, partial(consumer, max_records=ARROW_RECORDS)),
}

"""aiokafkawire."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import aiokafkawire
from aiokafkawire import Consumer, Producer, TopicPartition
from aiokafkawire.errors import BufferFull
from benchmarks import processing
from benchmarks.clients import common
from benchmarks.load import (
    ARROW_RECORDS,
    BATCH_BYTES,
    BUFFER_BYTES,
    FETCH_BYTES,
    LINGER_MS,
    MAX_RECORDS,
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
        batch_size_bytes=BATCH_BYTES,
        buffer_memory_bytes=BUFFER_BYTES,
        compression_type=setup.compression,
        **common.producer_options(setup, linger_ms),
    ) as opened:
        yield opened


def raise_failures(deliveries: list[Any]) -> None:
    """Raise the first failed delivery."""
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
    raise_failures(deliveries)
    return count


async def send(producer: Producer, setup: Setup, count: int) -> int:
    topic = setup.topic
    deliveries: list[Any] = []
    add = deliveries.append
    for _ in range(count):
        add(await producer.send(topic, VALUE))
    await producer.flush()
    raise_failures(deliveries)
    return count


async def send_many(producer: Producer, setup: Setup, count: int) -> int:
    """Send columns; `flush` raises if a record failed."""
    values = [VALUE] * MAX_RECORDS
    for _ in range(0, count, MAX_RECORDS):
        await producer.send_many(setup.topic, values)
    await producer.flush()
    return count


@asynccontextmanager
async def consumer(setup: Setup, max_records: int = MAX_RECORDS) -> AsyncIterator[Consumer]:
    async with Consumer(
        bootstrap_servers=setup.bootstrap_servers,
        auto_offset_reset="earliest",
        max_poll_records=max_records,
        max_partition_fetch_bytes=FETCH_BYTES,
        **common.tls_options(setup),
    ) as opened:
        opened.assign(common.partitions(setup, TopicPartition))
        yield opened


async def in_values(
    consumer: Consumer | aiokafkawire.ShareConsumer, setup: Setup, count: int
) -> int:
    """Read values without making records."""
    return await common.in_lists(
        consumer, setup, count, lambda records: sum(len(value) for value in records.values())
    )


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


# By attribute: `benchmarks.compare` runs this file with earlier commits, which lack this client.
@asynccontextmanager
async def share_consumer(setup: Setup) -> AsyncIterator[aiokafkawire.ShareConsumer]:
    async with aiokafkawire.ShareConsumer(
        setup.topic,
        bootstrap_servers=setup.bootstrap_servers,
        group_id=await common.new_share_group(setup),
    ) as opened:
        yield opened


@asynccontextmanager
async def group_consumer(setup: Setup) -> AsyncIterator[Consumer]:
    async with Consumer(
        bootstrap_servers=setup.bootstrap_servers,
        group_id=uuid.uuid4().hex,
        enable_auto_commit=False,
    ) as opened:
        opened.assign(common.partitions(setup, TopicPartition)[:1])
        yield opened


async def commit(consumer: Consumer, setup: Setup, count: int) -> int:
    """Commit one offset, `count` times; each commit waits for its response."""
    (partition,) = consumer.assignment()
    for offset in range(count):
        await consumer.commit({partition: offset})
    return count


SIDES: Mapping[str, Side] = {
    "send_nowait": working(send_nowait, producer),
    "send": working(send, producer),
    "send_many": working(send_many, producer),
    "one-at-a-time": working(common.one_at_a_time, partial(producer, linger_ms=0)),
    "requests": working(common.requests, producer),
    "getmany": working(common.in_lists, consumer),
    "getmany-values": working(in_values, consumer),
    "async-for": working(common.one_by_one, consumer),
    "share-getmany": working(common.in_lists, share_consumer),
    "share-getmany-values": working(in_values, share_consumer),
    "share-async-for": working(common.one_by_one, share_consumer),
    "commit": working(commit, group_consumer),
    "arrow": working(to_arrow, partial(consumer, max_records=ARROW_RECORDS)),
    **processing.SIDES,
}

"""aiokafka, with its compiled extension."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from functools import partial
from importlib.metadata import version
from typing import Any

import aiokafka
from aiokafka.record import _crecords, default_records, memory_records

from benchmarks.clients import common
from benchmarks.load import (
    BATCH_BYTES,
    FETCH_BYTES,
    LINGER_MS,
    VALUE,
    Incomplete,
    Setup,
    Side,
    working,
)


def about() -> str:
    """Return the version; raise `Incomplete` if the compiled extension is not used."""
    for chosen, compiled in (
        (default_records.DefaultRecordBatch, _crecords.DefaultRecordBatch),
        (default_records.DefaultRecordBatchBuilder, _crecords.DefaultRecordBatchBuilder),
        (memory_records.MemoryRecords, _crecords.MemoryRecords),
    ):
        if chosen is not compiled:
            raise Incomplete(f"aiokafka runs without its compiled extension: {chosen}")
    return f"{version('aiokafka')}, compiled extension"


@asynccontextmanager
async def producer(setup: Setup, linger_ms: int = LINGER_MS) -> AsyncIterator[Any]:
    opened = aiokafka.AIOKafkaProducer(
        max_batch_size=BATCH_BYTES,
        compression_type=None if setup.compression == "none" else setup.compression,
        **common.producer_options(setup, linger_ms),
    )
    await opened.start()
    try:
        yield opened
    finally:
        await opened.stop()


async def send(producer: Any, setup: Setup, count: int) -> int:
    topic = setup.topic
    futures: list[Any] = []
    add = futures.append
    for _ in range(count):
        add(await producer.send(topic, VALUE))
    await producer.flush()
    for future in futures:
        future.result()
    return count


@asynccontextmanager
async def consumer(setup: Setup) -> AsyncIterator[Any]:
    opened = aiokafka.AIOKafkaConsumer(
        bootstrap_servers=setup.bootstrap_servers,
        auto_offset_reset="earliest",
        check_crcs=True,
        max_partition_fetch_bytes=FETCH_BYTES,
        **common.tls_options(setup),
    )
    await opened.start()
    try:
        opened.assign(common.partitions(setup, aiokafka.TopicPartition))
        yield opened
    finally:
        await opened.stop()


SIDES: Mapping[str, Side] = {
    "send": working(send, producer),
    "one-at-a-time": working(common.one_at_a_time, partial(producer, linger_ms=0)),
    "requests": working(common.requests, producer),
    "getmany": working(common.in_lists, consumer),
    "async-for": working(common.one_by_one, consumer),
}

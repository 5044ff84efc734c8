"""kafka-python."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import kafka

from benchmarks.clients import common
from benchmarks.load import (
    BATCH_BYTES,
    FETCH_BYTES,
    LINGER_MS,
    MAX_RECORDS,
    POLL_MS,
    VALUE,
    Setup,
    Side,
    check,
    nothing_came,
    working,
)


def about() -> str:
    return str(kafka.__version__)


@asynccontextmanager
async def producer(setup: Setup, linger_ms: int = LINGER_MS) -> AsyncIterator[Any]:
    opened = kafka.KafkaProducer(
        batch_size=BATCH_BYTES,
        compression_type=None if setup.compression == "none" else setup.compression,
        **common.producer_options(setup, linger_ms),
    )
    try:
        yield opened
    finally:
        opened.close()


async def send(producer: Any, setup: Setup, count: int) -> int:
    topic = setup.topic
    futures = [producer.send(topic, VALUE) for _ in range(count)]
    producer.flush()
    for future in futures:
        future.get(POLL_MS / 1000)
    return count


async def one_at_a_time(producer: Any, setup: Setup, count: int) -> int:
    now, add = time.perf_counter, setup.latencies_s.append
    for _ in range(count):
        began = now()
        producer.send(setup.topic, VALUE).get(POLL_MS / 1000)
        add(now() - began)
    return count


@asynccontextmanager
async def consumer(setup: Setup) -> AsyncIterator[Any]:
    opened = kafka.KafkaConsumer(
        bootstrap_servers=setup.bootstrap_servers,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        max_partition_fetch_bytes=FETCH_BYTES,
    )
    opened.assign(common.partitions(setup, kafka.TopicPartition))
    try:
        yield opened
    finally:
        opened.close()


async def in_lists(consumer: Any, setup: Setup, count: int) -> int:
    seen = size = 0
    while seen < count:
        found = consumer.poll(timeout_ms=POLL_MS, max_records=MAX_RECORDS)
        if not found:
            raise nothing_came(seen, count)
        for records in found.values():
            size += common.bytes_of_records(records)
            seen += len(records)
    check(size, seen)
    return seen


SIDES: Mapping[str, Side] = {
    "send": working(send, producer),
    "one-at-a-time": working(one_at_a_time, partial(producer, linger_ms=0)),
    "poll": working(in_lists, consumer),
}

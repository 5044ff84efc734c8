"""One client doing one thing, in a process of its own; prints what it took as one line of JSON.

    python -m benchmarks.side CLIENT ACTION BOOTSTRAP TOPIC MESSAGES [--core N] [--profile]

A warm-up comes first and is not measured: connections, metadata and caches are then there.
"""

from __future__ import annotations

import argparse
import asyncio
import cProfile
import json
import os
import pstats
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from typing import Any

from benchmarks import transacting
from benchmarks.load import (
    BATCH_BYTES,
    LINGER_MS,
    MAX_RECORDS,
    PARTITIONS,
    VALUE,
    WARM_UP,
    Incomplete,
)

SEND_MANY = 500
"""Values in one call of `send_many`."""
POLL_MS = 10_000
PROFILE_LINES = 35

Work = Callable[[int], Awaitable[int]]
"""Takes the least number of messages, gives how many it were: getmany may give more at the end."""


def bytes_of_records(records: Iterable[Any]) -> int:
    """What the values of some records weigh: each record is looked at, as an application would."""
    size = 0
    for record in records:
        size += len(record.value)
    return size


def bytes_of_values(records: Any) -> int:
    """The same of values without records."""
    size = 0
    for value in records.values():
        size += len(value)
    return size


def reading(consumer: Any, bytes_of: Callable[[Any], int]) -> Work:
    """Read with `getmany`, which both clients have."""

    async def work(count: int) -> int:
        seen = size = 0
        while seen < count:
            found = await consumer.getmany(timeout_ms=POLL_MS, max_records=MAX_RECORDS)
            if not found:
                raise Incomplete(f"no message within {POLL_MS} ms, after {seen} of {count}")
            for records in found.values():
                size += bytes_of(records)
                seen += len(records)
        check(size, seen)
        return seen

    return work


# --- aiokafkawire ---------------------------------------------------------------------------


def assert_uncompiled() -> None:
    from aiokafkawire.records import kernel  # noqa: PLC0415 - only the measured client is loaded

    if kernel.COMPILED:
        raise Incomplete("the interpreted kernel was to be measured: AIOKAFKAWIRE_PURE_PYTHON=1")


@asynccontextmanager
async def _our_producer(bootstrap_servers: str) -> AsyncIterator[Any]:
    from aiokafkawire import Producer  # noqa: PLC0415

    assert_uncompiled()
    async with Producer(
        bootstrap_servers=bootstrap_servers,
        acks="all",
        enable_idempotence=True,
        linger_ms=LINGER_MS,
        batch_size_bytes=BATCH_BYTES,
    ) as producer:
        yield producer


@asynccontextmanager
async def our_produce(bootstrap_servers: str, topic: str) -> AsyncIterator[Work]:
    async with _our_producer(bootstrap_servers) as producer:

        async def work(count: int) -> int:
            for _ in range(count):
                await producer.send(topic, VALUE)
            await producer.flush()
            return count

        yield work


@asynccontextmanager
async def our_produce_many(bootstrap_servers: str, topic: str) -> AsyncIterator[Work]:
    values = [VALUE] * SEND_MANY
    async with _our_producer(bootstrap_servers) as producer:

        async def work(count: int) -> int:
            for _ in range(0, count, SEND_MANY):
                await producer.send_many(topic, values)
            await producer.flush()
            return count

        yield work


@asynccontextmanager
async def _our_consumer(bootstrap_servers: str, topic: str) -> AsyncIterator[Any]:
    from aiokafkawire import Consumer, TopicPartition  # noqa: PLC0415

    assert_uncompiled()
    async with Consumer(
        bootstrap_servers=bootstrap_servers, auto_offset_reset="earliest"
    ) as consumer:
        consumer.assign(*(TopicPartition(topic, number) for number in range(PARTITIONS)))
        yield consumer


@asynccontextmanager
async def our_consume(bootstrap_servers: str, topic: str) -> AsyncIterator[Work]:
    async with _our_consumer(bootstrap_servers, topic) as consumer:
        yield reading(consumer, bytes_of_records)


@asynccontextmanager
async def our_consume_values(bootstrap_servers: str, topic: str) -> AsyncIterator[Work]:
    async with _our_consumer(bootstrap_servers, topic) as consumer:
        yield reading(consumer, bytes_of_values)


# --- aiokafka -------------------------------------------------------------------------------


def assert_compiled() -> None:
    """aiokafka falls back to slow Python silently: that would be no comparison."""
    from aiokafka.record import _crecords, default_records, memory_records  # noqa: PLC0415

    for chosen, compiled in (
        (default_records.DefaultRecordBatch, _crecords.DefaultRecordBatch),
        (default_records.DefaultRecordBatchBuilder, _crecords.DefaultRecordBatchBuilder),
        (memory_records.MemoryRecords, _crecords.MemoryRecords),
    ):
        if chosen is not compiled:
            raise Incomplete(f"aiokafka runs without its compiled extension: {chosen}")


@asynccontextmanager
async def aiokafka_produce(bootstrap_servers: str, topic: str) -> AsyncIterator[Work]:
    import aiokafka  # noqa: PLC0415

    assert_compiled()
    producer = aiokafka.AIOKafkaProducer(
        bootstrap_servers=bootstrap_servers,
        acks="all",
        enable_idempotence=True,
        linger_ms=LINGER_MS,
        max_batch_size=BATCH_BYTES,
    )
    await producer.start()
    try:

        async def work(count: int) -> int:
            for _ in range(count):
                await producer.send(topic, VALUE)
            await producer.flush()
            return count

        yield work
    finally:
        await producer.stop()


@asynccontextmanager
async def aiokafka_consume(bootstrap_servers: str, topic: str) -> AsyncIterator[Work]:
    import aiokafka  # noqa: PLC0415

    assert_compiled()
    consumer = aiokafka.AIOKafkaConsumer(
        bootstrap_servers=bootstrap_servers, auto_offset_reset="earliest", check_crcs=True
    )
    await consumer.start()
    try:
        consumer.assign([aiokafka.TopicPartition(topic, number) for number in range(PARTITIONS)])
        yield reading(consumer, bytes_of_records)
    finally:
        await consumer.stop()


# --- measuring ------------------------------------------------------------------------------

SIDES: dict[tuple[str, str], Callable[[str, str], Any]] = {
    ("aiokafka", "produce"): aiokafka_produce,
    ("aiokafka", "consume"): aiokafka_consume,
    ("aiokafkawire", "produce"): our_produce,
    ("aiokafkawire", "consume"): our_consume,
    ("aiokafkawire", "produce-many"): our_produce_many,
    ("aiokafkawire", "consume-values"): our_consume_values,
    **transacting.SIDES,
}


def check(size: int, count: int) -> None:
    if size != count * len(VALUE):
        raise Incomplete(f"{count} values have {size} bytes, not {count * len(VALUE)}")


async def measure(options: argparse.Namespace) -> dict[str, float]:
    async with SIDES[options.client, options.action](options.bootstrap, options.topic) as work:
        warm_up = await work(int(options.messages * WARM_UP))
        profile = cProfile.Profile() if options.profile else None
        if profile is not None:
            profile.enable()
        began, cpu_began = time.perf_counter(), time.process_time()
        messages = await work(options.messages - warm_up)
        seconds, cpu_seconds = time.perf_counter() - began, time.process_time() - cpu_began
        if profile is not None:
            profile.disable()
            pstats.Stats(profile, stream=sys.stderr).sort_stats("tottime").print_stats(
                PROFILE_LINES
            )
    return {"messages": messages, "seconds": seconds, "cpu_seconds": cpu_seconds}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("client", choices=sorted({client for client, _ in SIDES}))
    parser.add_argument("action", choices=sorted({action for _, action in SIDES}))
    parser.add_argument("bootstrap")
    parser.add_argument("topic")
    parser.add_argument("messages", type=int)
    parser.add_argument("--core", type=int)
    parser.add_argument("--profile", action="store_true")
    options = parser.parse_args()
    if options.core is not None:
        os.sched_setaffinity(0, {options.core})
    print(json.dumps(asyncio.run(measure(options))), flush=True)


if __name__ == "__main__":
    main()

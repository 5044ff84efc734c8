"""Work of several clients with the same API."""

from __future__ import annotations

import asyncio
import ssl
import time
import uuid
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, TypeVar

from benchmarks.load import (
    MAX_RECORDS,
    PARTITIONS,
    POLL_MS,
    REQUESTS_PER_SECOND,
    VALUE,
    Incomplete,
    Setup,
    check,
    nothing_came,
)

T = TypeVar("T")

TICK_S = 0.001
"""Requests due within this time start together: event loops round shorter sleeps differently."""


def tls_options(setup: Setup) -> dict[str, Any]:
    """Return options of TLS that aiokafka and aiokafkawire name alike."""
    if setup.authority is None:
        return {}
    context = ssl.create_default_context(cafile=setup.authority)
    return {"security_protocol": "SSL", "ssl_context": context}


def producer_options(setup: Setup, linger_ms: int) -> dict[str, Any]:
    """Return options that aiokafka, kafka-python and aiokafkawire name alike."""
    return {
        "bootstrap_servers": setup.bootstrap_servers,
        "acks": "all",
        "enable_idempotence": True,
        "linger_ms": linger_ms,
        **tls_options(setup),
    }


def partitions(setup: Setup, topic_partition: Callable[[str, int], T]) -> list[T]:
    """Return all partitions of the topic in the client's type."""
    return [topic_partition(setup.topic, number) for number in range(PARTITIONS)]


async def new_share_group(setup: Setup) -> str:
    """Return the name of a share group that reads the topic from its start."""
    # Imported here, so that other clients' processes have it only for this.
    from aiokafkawire.admin import Admin, ConfigResource, ConfigResourceType  # noqa: PLC0415

    name = uuid.uuid4().hex
    group = ConfigResource(ConfigResourceType.GROUP, name)
    async with Admin(bootstrap_servers=setup.bootstrap_servers) as admin:
        await admin.incremental_alter_configs({group: {"share.auto.offset.reset": "earliest"}})
    return name


def bytes_of_records(records: Iterable[Any]) -> int:
    """Return the size of the values; touches each record, as an application would."""
    size = 0
    for record in records:
        size += len(record.value)
    return size


async def in_lists(
    consumer: Any, setup: Setup, count: int, bytes_of: Callable[[Any], int] = bytes_of_records
) -> int:
    """Read with `getmany` of aiokafkawire or aiokafka."""
    seen = size = 0
    while seen < count:
        found = await consumer.getmany(timeout_ms=POLL_MS, max_records=MAX_RECORDS)
        if not found:
            raise nothing_came(seen, count)
        for records in found.values():
            size += bytes_of(records)
            seen += len(records)
    check(size, seen)
    return seen


async def one_by_one(consumer: Any, setup: Setup, count: int) -> int:
    """Read with `async for`."""
    seen = size = 0
    async for record in consumer:
        size += len(record.value)
        seen += 1
        if seen == count:
            break
    check(size, seen)
    return seen


async def one_at_a_time(producer: Any, setup: Setup, count: int) -> int:
    """Send each message after the previous acknowledgement, with `send_and_wait`."""
    topic, send = setup.topic, producer.send_and_wait
    now, add = time.perf_counter, setup.latencies_s.append
    for _ in range(count):
        began = now()
        await send(topic, VALUE)
        add(now() - began)
    return count


async def requests(producer: Any, setup: Setup, count: int) -> int:
    """Call `run_requests` with `send_and_wait`."""
    return await run_requests(producer.send_and_wait, setup, count)


async def run_requests(
    send: Callable[[str, bytes], Awaitable[object]], setup: Setup, count: int
) -> int:
    """Start `REQUESTS_PER_SECOND` tasks, as a web application does; each waits for its message.

    Tasks start when they are due, even if earlier ones are still running.
    """
    topic, now, add = setup.topic, time.perf_counter, setup.latencies_s.append

    async def request() -> None:
        began = now()
        await send(topic, VALUE)
        add(now() - began)

    tasks: set[asyncio.Task[None]] = set()
    failed: list[BaseException] = []

    def ended(task: asyncio.Task[None]) -> None:
        tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            failed.append(error)

    start = now()
    begun = 0
    while begun < count:
        due = min(count, int((now() - start) * REQUESTS_PER_SECOND) + 1)
        for _ in range(due - begun):
            task = asyncio.create_task(request())
            tasks.add(task)
            task.add_done_callback(ended)
        begun = due
        await asyncio.sleep(max(TICK_S, start + begun / REQUESTS_PER_SECOND - now()))
    while tasks:
        await asyncio.wait(tasks)
    if failed:
        raise Incomplete(f"{len(failed)} of {count} requests failed: {failed[0]!r}")
    return count

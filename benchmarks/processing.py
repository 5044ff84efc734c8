"""Sides that process records with a `Worker`, and what they are compared with."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import aiokafkawire
from benchmarks.load import FETCH_BYTES, SLOW_HANDLER_S, SLOW_HANDLERS, Setup, Side, Work

KEYS = 200
"""Keys of a partition: with four partitions, enough for all handlers that run at once."""
COUNT_INTERVAL_S = 0.001
"""What the worker processes beyond the count in this time is part of the next one."""


@asynccontextmanager
async def worker(
    setup: Setup, handler: Callable[[Any], Awaitable[None]], order_by: Any
) -> AsyncIterator[Work]:
    """Open a worker whose work is to wait until its handler has processed records."""
    # By attribute: `benchmarks.compare` runs this file with earlier commits, which lack workers.
    opened = aiokafkawire.Worker(
        bootstrap_servers=setup.bootstrap_servers,
        group_id=uuid.uuid4().hex,
        concurrency=SLOW_HANDLERS,
        create_topics=False,
        consumer_options={"max_partition_fetch_bytes": FETCH_BYTES},
    )
    opened.on(setup.topic, order_by=order_by)(handler)
    target = 0

    async def work(count: int) -> int:
        nonlocal target
        target += count
        while opened.metrics()["records_processed_total"] < target:  # noqa: ASYNC110 - not in the handler
            await asyncio.sleep(COUNT_INTERVAL_S)
        return count

    async with opened:
        yield work


async def touch(record: Any) -> None:
    """Read the value, and do nothing with it."""
    _ = record.value


async def wait(_: Any) -> None:
    """Wait, as for a database."""
    await asyncio.sleep(SLOW_HANDLER_S)


def key(record: aiokafkawire.Record) -> int:
    return record.offset % KEYS


@asynccontextmanager
async def tasks(_: Setup) -> AsyncIterator[Work]:
    """Run tasks that only wait, without Kafka: what an event loop can reach."""

    async def work(count: int) -> int:
        async def repeat(times: int) -> None:
            for _ in range(times):
                await wait(None)

        times = -(-count // SLOW_HANDLERS)
        await asyncio.gather(*(repeat(times) for _ in range(SLOW_HANDLERS)))
        return times * SLOW_HANDLERS

    yield work


SIDES: Mapping[str, Side] = {
    "worker-partition": partial(worker, handler=touch, order_by="partition"),
    "worker-key": partial(worker, handler=touch, order_by="key"),
    "worker-slow": partial(worker, handler=wait, order_by=key),
    "tasks": tasks,
}

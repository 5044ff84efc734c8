"""A worker's memory stays within its limits, with one hot key and with many keys."""

from __future__ import annotations

import gc
import tracemalloc
from typing import Any

import anyio
import pytest

from aiokafkawire.broker import Broker
from aiokafkawire.producer import Producer
from aiokafkawire.worker import Worker
from tests.worker.helpers import until

RECORDS = 2_000
LIMIT = 100
POLLED = 40
VALUE_BYTES = 50
WITHIN_S = 60.0

KEYS = 150_000
WARM_UP = 50_000
MAX_GROWTH_BYTES = 1_000_000
"""Ten bytes per key; the smallest object takes 16."""


@pytest.mark.parametrize(
    ("option", "gauge", "limit", "added"),
    [
        ("max_buffered_records", "buffered_records", LIMIT, POLLED),
        (
            "max_buffered_bytes",
            "buffered_bytes",
            LIMIT * VALUE_BYTES,
            POLLED * (VALUE_BYTES + len(b"hot")),
        ),
    ],
)
async def test_a_hot_key_does_not_fill_the_memory(
    option: str, gauge: str, limit: int, added: int
) -> None:
    """At most one poll is added beyond the limit, and the order is kept."""
    async with Broker() as broker:
        await broker.create_topic("orders", partitions=1)
        async with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
            values = [b"%0*d" % (VALUE_BYTES, number) for number in range(RECORDS)]
            await producer.send_many("orders", values, keys=[b"hot"] * RECORDS)
            await producer.flush()
        worker = Worker(
            bootstrap_servers=broker.bootstrap_servers,
            group_id="billing",
            consumer_options={"max_poll_records": POLLED},
            **{option: limit},  # type: ignore[arg-type]
        )
        seen: list[bytes] = []
        buffered: list[float] = []
        may_go_on, has_seen_all = anyio.Event(), anyio.Event()

        @worker.on("orders", order_by="key")
        async def bill(record: Any) -> None:
            seen.append(record.value)
            buffered.append(worker.metrics()[gauge])
            if len(seen) == 1:
                await may_go_on.wait()
            if len(seen) == RECORDS:
                has_seen_all.set()

        async with worker:
            with anyio.fail_after(WITHIN_S):
                await until(lambda: worker.metrics()["paused_partitions"] == 1)
                may_go_on.set()
                await has_seen_all.wait()
    assert seen == values
    assert max(buffered) < limit + added


@pytest.mark.slow
@pytest.mark.parametrize("anyio_backend", ["asyncio"], indirect=True)
async def test_many_keys_do_not_fill_the_memory() -> None:
    """Nothing is kept of a key whose records are finished; every 100th handler waits."""
    async with Broker() as broker:
        await broker.create_topic("orders", partitions=1)
        async with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
            keys = [b"%d" % number for number in range(KEYS)]
            await producer.send_many("orders", [b"order"] * KEYS, keys=keys)
            await producer.flush()
        worker = Worker(
            bootstrap_servers=broker.bootstrap_servers,
            group_id="billing",
            max_buffered_records=RECORDS,
        )
        processed = after_warm_up = growth = 0
        has_seen_all = anyio.Event()

        @worker.on("orders", order_by="key")
        async def bill(record: Any) -> None:
            nonlocal processed, after_warm_up, growth
            processed += 1
            if processed % 100 == 0:
                await anyio.lowlevel.checkpoint()
            if processed == WARM_UP:
                gc.collect()
                after_warm_up = tracemalloc.get_traced_memory()[0]
            elif processed == KEYS:
                gc.collect()
                growth = tracemalloc.get_traced_memory()[0] - after_warm_up
                has_seen_all.set()

        tracemalloc.start()
        try:
            async with worker:
                with anyio.fail_after(WITHIN_S):
                    await has_seen_all.wait()
        finally:
            tracemalloc.stop()
    assert growth < MAX_GROWTH_BYTES

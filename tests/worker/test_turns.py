"""Partitions take turns."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from aiokafkawire.broker import Broker
from aiokafkawire.producer import Producer
from aiokafkawire.worker import Worker
from tests.worker.helpers import until

RECORDS = 200
WITHIN_S = 60.0


@pytest.mark.parametrize(
    "options", [{}, {"processing_guarantee": "exactly_once_v2"}], ids=["at_least_once", "exactly"]
)
@pytest.mark.parametrize("order_by", ["partition", "key"])
async def test_records_of_a_partition_do_not_wait_for_all_of_another(
    order_by: Any, options: dict[str, Any]
) -> None:
    """The handler is slow, and has one task."""
    async with Broker() as broker:
        await broker.create_topic("orders", partitions=2)
        async with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
            await producer.send_many("orders", [b""] * RECORDS, partition=0)
            await producer.flush()
            worker = Worker(
                bootstrap_servers=broker.bootstrap_servers,
                group_id="billing",
                concurrency=1,
                **options,
            )
            processed: list[int] = []
            has_begun, has_taken_turns = anyio.Event(), anyio.Event()

            def has_both() -> bool:
                return worker.metrics()["buffered_records"] > RECORDS

            @worker.on("orders", order_by=order_by)
            async def bill(record: Any) -> None:
                if record.partition == 1:
                    has_taken_turns.set()
                if not has_begun.is_set():
                    has_begun.set()
                    await until(has_both)
                await anyio.sleep(0.02)
                processed.append(record.partition)

            async with worker:
                with anyio.fail_after(WITHIN_S):
                    await has_begun.wait()
                    await producer.send_and_wait("orders", b"", partition=1)
                    await has_taken_turns.wait()
    assert len(processed) < RECORDS

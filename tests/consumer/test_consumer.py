from __future__ import annotations

import anyio

from aiokafkawire.broker import Broker
from aiokafkawire.types import TopicPartition

from .helpers import TIMEOUT_S, consumer, numbers, produce, read

P0 = TopicPartition("orders", 0)


async def test_a_group_member_reads_everything() -> None:
    async with Broker() as broker:
        await broker.create_topic("orders", 3)
        for partition in range(3):
            await produce(broker, "orders", partition, numbers(0, 50))
        async with consumer(broker, "orders", group_id="g") as reader:
            records = await read(reader, 150)
            assert reader.assignment() == {TopicPartition("orders", n) for n in range(3)}
    for partition in range(3):
        mine = [r for r in records if r.partition == partition]
        assert [r.value for r in mine] == numbers(0, 50)
        assert [r.offset for r in mine] == list(range(50))


async def test_without_a_group_all_partitions_are_read() -> None:
    async with Broker() as broker:
        await broker.create_topic("orders", 2)
        await produce(broker, "orders", 0, numbers(0, 5))
        await produce(broker, "orders", 1, numbers(0, 5))
        async with consumer(broker, "orders") as reader:
            with anyio.fail_after(TIMEOUT_S):
                records = [await anext(aiter(reader)) for _ in range(10)]
    assert len(records) == 10

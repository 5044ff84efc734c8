"""A cooperative group of this client and librdkafka, with either as the leader."""

from __future__ import annotations

import threading
from typing import Any

import anyio
import pytest

from aiokafkawire.broker import Broker
from tests.consumer.helpers import TIMEOUT_S, consumer, numbers, produce

from .test_member import COOPERATIVE, Reader

confluent_kafka = pytest.importorskip("confluent_kafka", reason="confluent-kafka is not installed")

PARTITIONS = 4


class RdkafkaConsumer:
    """librdkafka's consumer in a thread, with its records and partitions."""

    def __init__(self, servers: str) -> None:
        self.seen: list[tuple[int, int]] = []
        self.owned: set[int] = set()
        self._stop = threading.Event()
        self._consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": servers,
                "group.id": "g",
                "partition.assignment.strategy": "cooperative-sticky",
                "auto.offset.reset": "earliest",
                "heartbeat.interval.ms": 100,
                "fetch.wait.max.ms": 50,
            }
        )

    def run(self) -> None:
        self._consumer.subscribe(["orders"], on_assign=self._assign, on_revoke=self._revoke)
        while not self._stop.is_set():
            message = self._consumer.poll(0.05)
            if message is not None and message.error() is None:
                self.seen.append((message.partition(), message.offset()))
        self._consumer.close()

    def stop(self) -> None:
        self._stop.set()

    def _assign(self, consumer: Any, partitions: Any) -> None:
        self.owned |= {each.partition for each in partitions}
        consumer.incremental_assign(partitions)

    def _revoke(self, consumer: Any, partitions: Any) -> None:
        self.owned -= {each.partition for each in partitions}
        consumer.incremental_unassign(partitions)


async def until(condition: Any) -> None:
    with anyio.fail_after(TIMEOUT_S):
        # The condition changes in another thread.
        while not condition():  # noqa: ASYNC110
            await anyio.sleep(0.01)


@pytest.mark.slow
@pytest.mark.parametrize("leads", ["this", "the other"])
async def test_each_record_is_read_once_by_a_group_with_librdkafka(leads: str) -> None:
    async with Broker() as broker, anyio.create_task_group() as tasks:
        await broker.create_topic("orders", PARTITIONS)
        other = RdkafkaConsumer(broker.bootstrap_servers)
        async with consumer(broker, **COOPERATIVE) as mine:
            reader = Reader(mine)

            def start_mine() -> None:
                mine.subscribe(["orders"])
                tasks.start_soon(reader.run)

            def start_other() -> None:
                tasks.start_soon(anyio.to_thread.run_sync, other.run)

            start_mine() if leads == "this" else start_other()
            await until(lambda: reader.owned + len(other.owned) == PARTITIONS)
            for partition in range(PARTITIONS):
                await produce(broker, "orders", partition, numbers(0, 50))
            start_other() if leads == "this" else start_mine()
            await until(lambda: reader.owned == len(other.owned) == PARTITIONS / 2)
            assert {tp.partition for tp in mine.assignment()}.isdisjoint(other.owned)
            for partition in range(PARTITIONS):
                await produce(broker, "orders", partition, numbers(50, 100))
            every = PARTITIONS * 100
            await until(lambda: len({*reader.seen, *other.seen}) == every)
            await reader.stop()
        await until(lambda: len(other.owned) == PARTITIONS)
        other.stop()
    assert len(reader.seen) + len(other.seen) == every

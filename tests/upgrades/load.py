"""Clients that work while their cluster is changed: the sent and the consumed records."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio

from aiokafkawire.consumer import Consumer
from aiokafkawire.producer import Producer
from aiokafkawire.records import Record
from aiokafkawire.types import TopicPartition

TOPIC = "orders"
PARTITIONS = 3
AT_ONCE = 10
"""Records in flight at the same time."""
MORE = 2 * AT_ONCE
"""Records delivered and consumed between two restarts."""

IMPATIENT: dict[str, Any] = {
    "retry_backoff_ms": 5,
    "retry_backoff_max_ms": 50,
    "reconnect_backoff_ms": 5,
    "reconnect_backoff_max_ms": 50,
}

SETUP: dict[str, Any] = {"socket_connection_setup_timeout_ms": 2_000}
"""Timeout for 0.9, which is recognized by its silence after a quarter of this."""

READER: dict[str, Any] = {"auto_offset_reset": "earliest", "fetch_max_wait_ms": 20}
MEMBER: dict[str, Any] = {
    "group_id": "workers",
    "enable_auto_commit": False,
    "session_timeout_ms": 5_000,
    "heartbeat_interval_ms": 50,
}


class Load:
    """Sent, delivered and consumed records."""

    def __init__(self, producer: Producer, consumer: Consumer) -> None:
        self.delivered: list[bytes] = []
        self.read: list[Record] = []
        self._stopping = self._stopped = False
        self._producer = producer
        self._consumer = consumer
        self._moved = anyio.Event()

    async def produce(self) -> None:
        number = 0
        while not self._stopping:
            values = [b"%06d" % (number + index) for index in range(AT_ONCE)]
            deliveries = [
                await self._producer.send(TOPIC, value, partition=int(value) % PARTITIONS)
                for value in values
            ]
            for delivery in deliveries:
                await delivery
            number += AT_ONCE
            self.delivered += values
            self._notify()
        self._stopped = True
        self._notify()

    async def consume(self) -> None:
        while True:
            for records in (await self._consumer.getmany(timeout_ms=50)).values():
                self.read += records
            if self._consumer.config.group_id is not None:
                await self._consumer.commit()
            self._notify()

    def _notify(self) -> None:
        self._moved.set()
        self._moved = anyio.Event()

    async def more(self) -> None:
        """Wait until records arrive that were sent after this call."""
        sent, read = len(self.delivered) + MORE, len(self.read) + MORE
        while len(self.delivered) < sent or len(self.read) < read:
            await self._moved.wait()

    async def finish(self) -> list[bytes]:
        """Stop sending, read the rest, and return the topic's contents in the order of offsets."""
        self._stopping = True
        partitions = [TopicPartition(TOPIC, number) for number in range(PARTITIONS)]
        while not self._stopped:
            await self._moved.wait()
        ends = list((await self._consumer.end_offsets(*partitions)).values())
        while len(self.read) < sum(ends):
            await self._moved.wait()
        found = sorted(self.read, key=lambda record: (record.partition, record.offset))
        places = [(record.partition, record.offset) for record in found]
        assert places == [(p, offset) for p, end in enumerate(ends) for offset in range(end)]
        return [record.value for record in found if record.value is not None]


@asynccontextmanager
async def at_work(
    bootstrap_servers: str, options: dict[str, Any], *, grouped: bool = True, **more: Any
) -> AsyncIterator[Load]:
    """Start a producer (with the options `more`) and a consumer, a group member if `grouped`."""
    options = options | {"bootstrap_servers": bootstrap_servers}
    async with (
        Producer(**options, **more) as producer,
        Consumer(**options, **READER, **(MEMBER if grouped else {})) as consumer,
        anyio.create_task_group() as tasks,
    ):
        if grouped:
            consumer.subscribe(TOPIC)
        else:
            consumer.assign([TopicPartition(TOPIC, number) for number in range(PARTITIONS)])
        load = Load(producer, consumer)
        tasks.start_soon(load.consume)
        tasks.start_soon(load.produce)
        yield load
        tasks.cancel_scope.cancel()

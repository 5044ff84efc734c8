"""Producers and members of groups live through upgrades, node by node, while they work."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest

from aiokafkawire.broker import ApiKey, Broker
from aiokafkawire.consumer import Consumer
from aiokafkawire.producer import Producer
from aiokafkawire.records import Record
from aiokafkawire.types import TopicPartition

from .test_mixed_clusters import HASTY, SETUP

WITHIN_S = 60.0
TOPIC = "orders"
NODES = 3
PARTITIONS = 3
AT_ONCE = 10
"""Records that are on their way together."""

READER: dict[str, Any] = {"auto_offset_reset": "earliest", "fetch_max_wait_ms": 20}
MEMBER: dict[str, Any] = {
    "group_id": "workers",
    "enable_auto_commit": False,
    "session_timeout_ms": 5_000,
    "heartbeat_interval_ms": 50,
}

MORE = 2 * AT_ONCE
"""Records that are delivered, and read, between two restarts."""


class Load:
    """What was sent and delivered, and what was read."""

    def __init__(self, broker: Broker, producer: Producer, consumer: Consumer) -> None:
        self.broker = broker
        self.delivered: list[bytes] = []
        self.read: list[Record] = []
        self.stopping = False
        self._producer = producer
        self._consumer = consumer
        self._moved = anyio.Event()

    async def produce(self) -> None:
        number = 0
        while not self.stopping:
            values = [b"%06d" % (number + index) for index in range(AT_ONCE)]
            deliveries = [
                await self._producer.send(TOPIC, value, partition=int(value) % PARTITIONS)
                for value in values
            ]
            for delivery in deliveries:
                await delivery
            number += AT_ONCE
            self.delivered += values
            self._tell()

    async def consume(self) -> None:
        while True:
            for records in (await self._consumer.getmany(timeout_ms=50)).values():
                self.read += records
            if self._consumer.config.group_id is not None:
                await self._consumer.commit()
            self._tell()

    def _tell(self) -> None:
        self._moved.set()
        self._moved = anyio.Event()

    async def more(self) -> None:
        """Wait until records have come through that were not sent before."""
        sent, read = len(self.delivered) + MORE, len(self.read) + MORE
        while len(self.delivered) < sent or len(self.read) < read:
            await self._moved.wait()

    async def finish(self) -> list[bytes]:
        """Send no more, read the rest; what the topic holds, in the order of offsets."""
        self.stopping = True
        ends = [self.broker.end_offset(TOPIC, number) for number in range(PARTITIONS)]
        while len(self.read) < sum(ends):
            await self._moved.wait()
            ends = [self.broker.end_offset(TOPIC, number) for number in range(PARTITIONS)]
        found = sorted(self.read, key=lambda record: (record.partition, record.offset))
        places = [(record.partition, record.offset) for record in found]
        assert places == [(p, offset) for p, end in enumerate(ends) for offset in range(end)]
        return [record.value for record in found if record.value is not None]


@asynccontextmanager
async def under_load(release: str, *, grouped: bool = True, **more: Any) -> AsyncIterator[Load]:
    """A cluster of a release, with a producer and a consumer, or member of a group, at work."""
    options = HASTY | (SETUP if release.startswith("0.9") else {})
    async with Broker(
        nodes=NODES,
        as_of=release,
        default_replication_factor=NODES,
        group_min_session_timeout_ms=500,
    ) as broker:
        await broker.create_topic(TOPIC, partitions=PARTITIONS)
        options["bootstrap_servers"] = broker.bootstrap_servers
        async with (
            Producer(**options, **more) as producer,
            Consumer(**options, **READER, **(MEMBER if grouped else {})) as consumer,
            anyio.create_task_group() as tasks,
        ):
            if grouped:
                consumer.subscribe(TOPIC)
            else:
                consumer.assign([TopicPartition(TOPIC, number) for number in range(PARTITIONS)])
            load = Load(broker, producer, consumer)
            tasks.start_soon(load.consume)
            tasks.start_soon(load.produce)
            with anyio.fail_after(WITHIN_S):
                yield load
            tasks.cancel_scope.cancel()


async def upgrade(load: Load, *releases: str) -> None:
    """Restart every node as each of the releases, one after the other."""
    for release in releases:
        for node in range(1, NODES + 1):
            await load.broker.restart(node, as_of=release)
            await load.more()


def versions(broker: Broker, api: ApiKey) -> list[int]:
    """The versions of an API in which requests came, in the order of their first use."""
    return list(dict.fromkeys(seen.version for seen in broker.requests.of(api)))


async def test_from_0_11_on_nothing_is_lost_and_nothing_comes_twice() -> None:
    async with under_load("0.11", enable_idempotence=True) as load:
        await load.more()
        await upgrade(load, "2.8", "4.3")
        stored = await load.finish()
        assert sorted(stored) == load.delivered
        assert stored == sorted(stored, key=lambda value: (int(value) % PARTITIONS, value))
        produced = versions(load.broker, ApiKey.PRODUCE)
        assert produced == sorted(produced)
        assert {3, 9} < set(produced)


async def test_before_there_were_groups() -> None:
    async with under_load("0.8.1", grouped=False, acks=1) as load:
        await load.more()
        await upgrade(load, "0.8.2", "0.10")
        stored = await load.finish()
        assert set(stored) == set(load.delivered)
        assert versions(load.broker, ApiKey.FETCH) == [0, 3]


@pytest.mark.slow
async def test_from_0_9_on_nothing_is_lost(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "aiokafkawire.producer"):
        async with under_load("0.9") as load:
            await load.more()
            await upgrade(load, "0.10", "2.8", "4.3")
            stored = await load.finish()
            assert set(stored) == set(load.delivered)
            assert {1, 2, 9} < set(versions(load.broker, ApiKey.PRODUCE))
    (line,) = [message for message in caplog.messages if "idempotence" in message]
    assert "going on without idempotence" in line


async def test_a_member_gets_on_from_one_kind_of_offsets_to_the_next() -> None:
    """Topic ids, leader epochs and positions validated by them come in the middle of its life."""
    async with under_load("2.1") as load:
        await load.more()
        await upgrade(load, "2.4", "3.9")
        stored = await load.finish()
        assert sorted(stored) == load.delivered
        for api in (ApiKey.FETCH, ApiKey.OFFSET_COMMIT):
            spoken = versions(load.broker, api)
            assert len(spoken) >= 2, api

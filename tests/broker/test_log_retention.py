"""Retention by age and size."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import anyio
import pytest

from aiokafkawire.broker import Broker
from aiokafkawire.wire import ErrorCode

from .config_client import CLUSTER, TOPIC, alter, set_config
from .raw_client import batch, connected, only, produce_request

NOW_MS = int(time.time() * 1000)


@pytest.fixture
async def broker() -> AsyncIterator[Broker]:
    async with Broker(log_retention_check_interval_ms=20, segment_bytes=100) as broker:
        yield broker


async def write(broker: Broker, topic: str, *, timestamp_ms: int = NOW_MS) -> None:
    async with connected(broker, broker.leader(topic, 0)) as client:
        records = batch(b"v" * 80, timestamp_ms=timestamp_ms)
        assert only(await client.call(produce_request(topic, 0, records), 9)).error_code == 0


def start_offset(broker: Broker, topic: str) -> int:
    return broker._running.cluster.topics[topic].partitions[0].log.start_offset


async def wait_until(holds: Callable[[], bool]) -> None:
    with anyio.fail_after(30):
        while True:
            if holds():
                return
            await anyio.sleep(0.005)


async def wait_for_start(broker: Broker, topic: str, offset: int) -> None:
    await wait_until(lambda: start_offset(broker, topic) == offset)


async def test_old_segments_are_deleted_once_a_client_asks(broker: Broker) -> None:
    await broker.create_topic("t")
    for timestamp in (1_000, 2_000, NOW_MS):
        await write(broker, "t", timestamp_ms=timestamp)
    await anyio.sleep(0.1)
    assert start_offset(broker, "t") == 0
    await set_config(broker, TOPIC, "t", "retention.ms", "3600000")
    await wait_for_start(broker, "t", 2)


async def test_retention_of_a_new_topic_and_of_the_last_segment(broker: Broker) -> None:
    await broker.create_topic("t", configs={"retention.ms": "50"})
    await write(broker, "t", timestamp_ms=NOW_MS - 1_000)
    await wait_for_start(broker, "t", 1)
    await write(broker, "t", timestamp_ms=NOW_MS - 1_000)
    assert broker.end_offset("t", 0) == 2


async def test_retention_of_all_brokers(broker: Broker) -> None:
    await broker.create_topic("t")
    await write(broker, "t", timestamp_ms=1_000)
    await set_config(broker, CLUSTER, "", "log.retention.ms", "60000")
    await wait_for_start(broker, "t", 1)


async def test_a_lower_size_limit_deletes_old_segments(broker: Broker) -> None:
    await broker.create_topic("t")
    for _ in range(4):
        await write(broker, "t")
    size = broker._running.cluster.topics["t"].partitions[0].log.size_bytes
    await set_config(broker, TOPIC, "t", "retention.bytes", str(size // 2))
    await wait_for_start(broker, "t", 2)


async def test_a_compacted_topic_keeps_its_records(broker: Broker) -> None:
    await broker.create_topic("t", configs={"cleanup.policy": "compact", "retention.ms": "1"})
    await broker.create_topic("u", configs={"retention.ms": "1"})
    for topic in ("t", "u"):
        await write(broker, topic, timestamp_ms=1_000)
    await wait_for_start(broker, "u", 1)
    assert start_offset(broker, "t") == 0


async def test_replicas_delete_too() -> None:
    async with Broker(nodes=2, replicate=True, log_retention_check_interval_ms=20) as broker:
        await broker.create_topic("t", replication_factor=2, configs={"retention.ms": "60000"})
        await write(broker, "t", timestamp_ms=1_000)
        replication = broker._running.replication
        assert replication is not None
        partition = broker._running.cluster.topics["t"].partitions[0]

        def starts() -> list[int]:
            return [each.log.start_offset for each in replication.replicas(partition)]

        await wait_until(lambda: starts() == [1, 1])


async def test_the_log_start_survives_a_restart(tmp_path: Path) -> None:
    async with Broker(data_dir=tmp_path, log_retention_check_interval_ms=20) as broker:
        await broker.create_topic("t", configs={"retention.ms": "60000"})
        await write(broker, "t", timestamp_ms=1_000)
        await wait_for_start(broker, "t", 1)
        await alter(broker, TOPIC, "t", ("max.message.bytes", 0, "7"))
        await set_config(broker, CLUSTER, "", "log.retention.ms", "-1")
    async with Broker(data_dir=tmp_path) as broker:
        assert start_offset(broker, "t") == 1
        async with connected(broker) as client:
            produced = only(await client.call(produce_request("t", 0, batch(b"v")), 9))
        assert produced.error_code == ErrorCode.MESSAGE_TOO_LARGE
        configs = broker._running.cluster.dynamic_configs
        assert configs.broker_value("log.retention.ms", 1) == "-1"

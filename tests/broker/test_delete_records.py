"""DeleteRecords."""

from __future__ import annotations

from pathlib import Path

import pytest

from aiokafkawire.broker import Acl, Broker
from aiokafkawire.wire import ErrorCode
from aiokafkawire.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from aiokafkawire.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic

from .raw_client import batch, connected, only, produce_request

E = ErrorCode
HIGH_WATERMARK = -1


async def write(broker: Broker, topic: str, count: int) -> None:
    async with connected(broker, broker.leader(topic, 0)) as client:
        for _ in range(count):
            produced = only(await client.call(produce_request(topic, 0, batch(b"v")), 9))
            assert produced.error_code == E.NONE


async def delete(
    broker: Broker, topic: str, offset: int, *, partition: int = 0, node: int | None = None
) -> tuple[ErrorCode, int]:
    """Return the error code and the low watermark."""
    requested = DeleteRecordsPartition(partition_index=partition, offset=offset)
    request = DeleteRecordsRequest(
        topics=[DeleteRecordsTopic(name=topic, partitions=[requested])], timeout_ms=1_000
    )
    async with connected(broker, node) as client:
        result = only(await client.call(request, 2))
    return ErrorCode(result.error_code), result.low_watermark


async def fetch(broker: Broker, topic: str, offset: int) -> tuple[ErrorCode, int]:
    """Return the error code and the log start offset."""
    partition = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1_000)
    request = FetchRequest(
        max_wait_ms=0, min_bytes=0, topics=[FetchTopic(topic=topic, partitions=[partition])]
    )
    async with connected(broker, broker.leader(topic, 0)) as client:
        found = only(await client.call(request, 11))
    return ErrorCode(found.error_code), found.log_start_offset


async def test_the_log_start_offset_moves_and_never_back() -> None:
    async with Broker() as broker:
        await broker.create_topic("t")
        await write(broker, "t", 5)
        assert await delete(broker, "t", 2) == (E.NONE, 2)
        assert await delete(broker, "t", 1) == (E.NONE, 2)
        assert (await fetch(broker, "t", 1))[0] is E.OFFSET_OUT_OF_RANGE
        assert await fetch(broker, "t", 2) == (E.NONE, 2)
        assert await delete(broker, "t", HIGH_WATERMARK) == (E.NONE, 5)
        assert await fetch(broker, "t", 5) == (E.NONE, 5)
        await write(broker, "t", 1)
        assert broker.end_offset("t", 0) == 6


@pytest.mark.parametrize(
    ("topic", "partition", "offset", "code"),
    [
        ("t", 0, 6, E.OFFSET_OUT_OF_RANGE),
        ("t", 0, -2, E.OFFSET_OUT_OF_RANGE),
        ("t", 9, 0, E.UNKNOWN_TOPIC_OR_PARTITION),
        ("nowhere", 0, 0, E.UNKNOWN_TOPIC_OR_PARTITION),
        ("compacted", 0, 0, E.POLICY_VIOLATION),
    ],
)
async def test_errors_are_those_of_kafka(
    topic: str, partition: int, offset: int, code: ErrorCode
) -> None:
    async with Broker() as broker:
        await broker.create_topic("t")
        await broker.create_topic("compacted", configs={"cleanup.policy": "compact"})
        await write(broker, "t", 5)
        assert await delete(broker, topic, offset, partition=partition) == (code, -1)


async def test_only_the_leader_deletes() -> None:
    async with Broker(nodes=2) as broker:
        await broker.create_topic("t")
        other = 3 - broker.leader("t", 0)
        assert (await delete(broker, "t", 0, node=other))[0] is E.NOT_LEADER_OR_FOLLOWER


async def test_deleting_needs_permission() -> None:
    async with Broker(acls=[Acl("User:*", "Describe", topic="*")]) as broker:
        await broker.create_topic("t")
        assert (await delete(broker, "t", 0))[0] is E.TOPIC_AUTHORIZATION_FAILED


async def test_records_are_deleted_on_every_replica() -> None:
    async with Broker(nodes=2, replicate=True) as broker:
        await broker.create_topic("t", replication_factor=2)
        await write(broker, "t", 3)
        leader = broker.leader("t", 0)
        assert await delete(broker, "t", 2, node=leader) == (E.NONE, 2)
        await broker.kill(leader)
        assert await fetch(broker, "t", 2) == (E.NONE, 2)


async def test_the_log_start_offset_survives_a_restart(tmp_path: Path) -> None:
    async with Broker(data_dir=tmp_path) as broker:
        await broker.create_topic("t")
        await write(broker, "t", 3)
        assert await delete(broker, "t", 2) == (E.NONE, 2)
    async with Broker(data_dir=tmp_path) as broker:
        assert await fetch(broker, "t", 2) == (E.NONE, 2)

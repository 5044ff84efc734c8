"""ListOffsets over real sockets."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from aiokafkawire.broker import Broker
from aiokafkawire.wire import ErrorCode
from aiokafkawire.wire.messages import list_offsets

from .raw_client import batch, connected, only, produce_request

E = ErrorCode


@pytest.fixture
async def broker() -> AsyncIterator[Broker]:
    """Three batches of one record at 100, 50 and 300 ms; the last in leader epoch 1."""
    async with Broker(nodes=2, segment_bytes=100) as broker:
        await broker.create_topic("t")
        for time in (100, 50, 300):
            if time == 300:
                broker.move_leader("t", 0, 3 - broker.leader("t", 0))
            async with connected(broker, broker.leader("t", 0)) as client:
                records = batch(b"v", timestamp_ms=time)
                assert only(await client.call(produce_request("t", 0, records), 9)).error_code == 0
        yield broker


async def listed(
    broker: Broker,
    timestamp: int,
    version: int = 9,
    **fields: Any,
) -> Any:
    asked = list_offsets.ListOffsetsPartition(partition_index=0, timestamp=timestamp, **fields)
    request = list_offsets.ListOffsetsRequest(
        replica_id=-1, topics=[list_offsets.ListOffsetsTopic(name="t", partitions=[asked])]
    )
    async with connected(broker, broker.leader("t", 0)) as client:
        return only(await client.call(request, version))


@pytest.mark.parametrize(
    ("timestamp", "offset", "found_ms", "epoch"),
    [
        (-1, 3, -1, 1),
        (-2, 0, -1, 0),
        (-3, 2, 300, 1),
        (-4, 0, -1, 0),
        (-5, -1, -1, -1),
        (0, 0, 100, 0),
        (100, 0, 100, 0),
        (101, 2, 300, 1),
        (301, -1, -1, -1),
    ],
)
async def test_an_offset_is_found(
    broker: Broker, timestamp: int, offset: int, found_ms: int, epoch: int
) -> None:
    answer = await listed(broker, timestamp)
    assert answer.error_code == E.NONE
    assert (answer.offset, answer.timestamp, answer.leader_epoch) == (offset, found_ms, epoch)


@pytest.mark.parametrize(
    ("timestamp", "since"), [(-1, 1), (-2, 1), (-3, 7), (-4, 8), (-5, 9), (-6, 11)]
)
async def test_special_timestamps_need_their_version(
    broker: Broker, timestamp: int, since: int
) -> None:
    assert (await listed(broker, timestamp, since)).error_code == E.NONE
    if since > 1:
        assert (await listed(broker, timestamp, since - 1)).error_code == E.UNSUPPORTED_VERSION
    assert (await listed(broker, -7, 11)).error_code == E.UNSUPPORTED_VERSION


async def test_version_0_lists_segments(broker: Broker) -> None:
    async def old(timestamp: int, count: int) -> list[int]:
        offsets: list[int] = (
            await listed(broker, timestamp, 0, max_num_offsets=count)
        ).old_style_offsets
        return offsets

    assert await old(-1, 1) == [3]
    assert await old(-1, 9) == [3, 2, 1, 0]
    assert await old(-2, 9) == [0]
    assert await old(100, 9) == [1, 0]
    assert await old(10, 9) == []


async def test_the_start_moves(broker: Broker) -> None:
    broker.delete_records("t", 0, 2)
    answer = await listed(broker, -2)
    assert (answer.offset, answer.leader_epoch) == (2, 1)


async def test_an_older_leader_epoch_is_fenced(broker: Broker) -> None:
    fenced = await listed(broker, -1, current_leader_epoch=0)
    assert fenced.error_code == E.FENCED_LEADER_EPOCH

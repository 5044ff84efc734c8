"""Leader epochs: increments, end offsets, and truncated logs."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from aiokafkawire.broker import Broker
from aiokafkawire.errors import BrokerError
from aiokafkawire.wire import ErrorCode
from aiokafkawire.wire.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)

from .raw_client import batch, connected, only, produce_request

E = ErrorCode


@pytest.fixture
async def broker() -> AsyncIterator[Broker]:
    async with Broker(nodes=2) as broker:
        await broker.create_topic("t")
        yield broker


async def write(broker: Broker, *values: bytes, **fields: Any) -> None:
    """Produce one batch to t-0."""
    async with connected(broker, broker.leader("t", 0)) as client:
        answer = only(await client.call(produce_request("t", 0, batch(*values, **fields)), 9))
        assert answer.error_code == E.NONE


async def end_of(
    broker: Broker, epoch: int, *, node: int | None = None, current: int = -1, partition: int = 0
) -> tuple[int, int, int]:
    """Return error, epoch and end offset of a node's response for an epoch of t."""
    asked = OffsetForLeaderPartition(
        partition=partition, current_leader_epoch=current, leader_epoch=epoch
    )
    request = OffsetForLeaderEpochRequest(
        replica_id=-1, topics=[OffsetForLeaderTopic(topic="t", partitions=[asked])]
    )
    async with connected(broker, node or broker.leader("t", 0)) as client:
        found = only(await client.call(request, 4))
    assert found.partition == partition
    return found.error_code, found.leader_epoch, found.end_offset


async def test_each_epoch_ends_where_the_next_begins(broker: Broker) -> None:
    other = 3 - broker.leader("t", 0)
    await write(broker, b"a", b"b")
    broker.move_leader("t", 0, other)
    broker.move_leader("t", 0, 3 - other)  # epoch 2: no record was written in epoch 1
    await write(broker, b"c")
    broker.move_leader("t", 0, other)
    assert broker.leader_epoch("t", 0) == 3
    assert await end_of(broker, 0) == (E.NONE, 0, 2)
    assert await end_of(broker, 1) == (E.NONE, 0, 2)
    assert await end_of(broker, 2) == (E.NONE, 2, 3)
    assert await end_of(broker, 3) == (E.NONE, 3, 3)
    assert await end_of(broker, 4) == (E.NONE, -1, -1)


async def test_end_offsets_are_not_returned_to_other_replicas(broker: Broker) -> None:
    leader = broker.leader("t", 0)
    broker.move_leader("t", 0, 3 - leader)
    assert await end_of(broker, 0, current=0) == (E.FENCED_LEADER_EPOCH, -1, -1)
    assert await end_of(broker, 0, current=2) == (E.UNKNOWN_LEADER_EPOCH, -1, -1)
    assert await end_of(broker, 0, current=1) == (E.NONE, 0, 0)
    assert (await end_of(broker, 0, node=leader))[0] == E.NOT_LEADER_OR_FOLLOWER
    # An old epoch at a former leader: the error is about the epoch.
    assert (await end_of(broker, 0, node=leader, current=0))[0] == E.FENCED_LEADER_EPOCH
    assert (await end_of(broker, 0, partition=1))[0] == E.UNKNOWN_TOPIC_OR_PARTITION


async def test_a_killed_leader_ends_its_epoch(broker: Broker) -> None:
    leader = broker.leader("t", 0)
    await broker.kill(leader)
    assert (broker.leader("t", 0), broker.leader_epoch("t", 0)) == (3 - leader, 1)
    await broker.restart(leader)
    assert (broker.leader("t", 0), broker.leader_epoch("t", 0)) == (3 - leader, 1)


async def test_a_truncated_log_goes_on_in_a_new_epoch(broker: Broker) -> None:
    for value in (b"a", b"b", b"c"):
        await write(broker, value)
    broker.truncate("t", 0, 1)
    assert (broker.end_offset("t", 0), broker.leader_epoch("t", 0)) == (1, 1)
    assert await end_of(broker, 0) == (E.NONE, 0, 1)
    await write(broker, b"B")
    assert await end_of(broker, 0) == (E.NONE, 0, 1)
    assert await end_of(broker, 1) == (E.NONE, 1, 2)


async def test_what_is_cut_off_takes_its_whole_batch_with_it(broker: Broker) -> None:
    await write(broker, b"a")
    await write(broker, b"b", b"c", b"d")
    broker.truncate("t", 0, 2)
    assert broker.end_offset("t", 0) == 1
    broker.truncate("t", 0, 0)
    assert broker.end_offset("t", 0) == 0
    with pytest.raises(BrokerError, match="OFFSET_OUT_OF_RANGE"):
        broker.truncate("t", 0, 1)


async def test_a_producer_goes_on_after_what_is_left_of_it(broker: Broker) -> None:
    who = {"producer_id": 7, "producer_epoch": 0}
    await write(broker, b"a", base_sequence=0, **who)
    await write(broker, b"b", base_sequence=1, **who)
    broker.truncate("t", 0, 1)
    await write(broker, b"b", base_sequence=1, **who)
    assert broker.end_offset("t", 0) == 2

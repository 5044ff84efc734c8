"""Reading from followers, and the replica in the reader's own rack (KIP-392)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import anyio
import pytest

from aiokafkawire.broker import Broker
from aiokafkawire.wire import ErrorCode
from aiokafkawire.wire.messages import list_offsets
from aiokafkawire.wire.messages.fetch import (
    FetchPartition,
    FetchReplicaState,
    FetchRequest,
    FetchTopic,
)

from .raw_client import batch, connected, only, produce_request

E = ErrorCode
LEADER, FOLLOWER, STRANGER = 1, 2, 3


@pytest.fixture
async def broker() -> AsyncIterator[Broker]:
    async with Broker(nodes=3, racks=["east", "west", "north"]) as broker:
        await broker.create_topic("t", replication_factor=2)
        state = broker._running
        state.cluster.topics["t"].partitions[0].replicas[:] = [LEADER, FOLLOWER]
        state.cluster.topics["t"].partitions[0].isr[:] = [LEADER, FOLLOWER]
        broker.move_leader("t", 0, FOLLOWER)
        broker.move_leader("t", 0, LEADER)
        async with connected(broker, LEADER) as client:
            await client.call(produce_request("t", 0, batch(b"v")), 9)
        yield broker


async def fetch(
    broker: Broker,
    node: int,
    rack: str = "",
    *,
    version: int = 12,
    epoch: int = -1,
    offset: int = 0,
    max_wait_ms: int = 0,
    **fields: Any,
) -> Any:
    asked = FetchPartition(
        partition=0,
        fetch_offset=offset,
        partition_max_bytes=1_000_000,
        current_leader_epoch=epoch,
    )
    request = FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=1,
        rack_id=rack,
        topics=[FetchTopic(topic="t", partitions=[asked])],
        **fields,
    )
    async with connected(broker, node) as client:
        with anyio.fail_after(20):
            return only(await client.call(request, version))


async def test_the_leader_names_the_replica_next_to_the_reader(broker: Broker) -> None:
    there = await fetch(broker, LEADER, "west", offset=1, max_wait_ms=60_000)
    assert (there.error_code, there.preferred_read_replica) == (E.NONE, FOLLOWER)
    assert (there.records, there.high_watermark) == (b"", 1)
    here = await fetch(broker, FOLLOWER, "west")
    assert here.preferred_read_replica == -1
    assert len(here.records) > 0


@pytest.mark.parametrize(
    ("rack", "fields"),
    [
        ("east", {}),
        ("north", {}),
        ("nowhere", {}),
        ("", {}),
        ("west", {"version": 10}),
        ("west", {"replica_id": -2}),
    ],
    ids=str,
)
async def test_else_the_leader_answers_itself(
    broker: Broker, rack: str, fields: dict[str, Any]
) -> None:
    answer = await fetch(broker, LEADER, rack, **fields)
    assert (answer.error_code, answer.preferred_read_replica) == (E.NONE, -1)
    assert len(answer.records) > 0


async def test_a_replica_that_is_down_is_not_named(broker: Broker) -> None:
    await broker.kill(FOLLOWER)
    assert (await fetch(broker, LEADER, "west")).preferred_read_replica == -1
    await broker.restart(FOLLOWER)
    assert (await fetch(broker, LEADER, "west")).preferred_read_replica == FOLLOWER


async def test_which_replicas_can_be_read(broker: Broker) -> None:
    assert (await fetch(broker, FOLLOWER)).error_code == E.NONE
    # A client from before KIP-392 would not expect a follower.
    assert (await fetch(broker, FOLLOWER, version=10)).error_code == E.NOT_LEADER_OR_FOLLOWER
    assert (await fetch(broker, STRANGER)).error_code == E.NOT_LEADER_OR_FOLLOWER
    old = await fetch(broker, FOLLOWER, epoch=0)
    assert old.error_code == E.FENCED_LEADER_EPOCH


@pytest.mark.parametrize("version", [0, 3, 11, 15, 18])
async def test_a_debug_consumer_may_read_anywhere(broker: Broker, version: int) -> None:
    """Up to version 14 the replica id is a field of its own, then one of ReplicaState."""
    by_state = version >= 15
    replica: dict[str, Any] = (
        {"replica_state": FetchReplicaState(replica_id=-2)} if by_state else {"replica_id": -2}
    )
    topic_id = broker._running.cluster.topics["t"].topic_id
    asked = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1_000_000)
    request = FetchRequest(
        max_wait_ms=0,
        min_bytes=1,
        topics=[FetchTopic(topic="t", topic_id=topic_id, partitions=[asked])],
        **replica,
    )
    for node, code in ((LEADER, E.NONE), (FOLLOWER, E.NONE), (STRANGER, E.NOT_LEADER_OR_FOLLOWER)):
        async with connected(broker, node) as client:
            answer = only(await client.call(request, version))
        assert answer.error_code == code, node
        assert bool(answer.records) is (code == E.NONE)


@pytest.mark.parametrize("version", [0, 1, 11])
async def test_a_debug_consumer_may_list_offsets_anywhere(broker: Broker, version: int) -> None:
    asked = list_offsets.ListOffsetsPartition(partition_index=0, timestamp=-1)
    request = list_offsets.ListOffsetsRequest(
        replica_id=-2, topics=[list_offsets.ListOffsetsTopic(name="t", partitions=[asked])]
    )
    for node in (LEADER, FOLLOWER):
        async with connected(broker, node) as client:
            answer = only(await client.call(request, version))
        assert answer.error_code == E.NONE
        assert (answer.old_style_offsets or [answer.offset])[0] == 1


async def test_without_racks_consumers_read_from_the_leader() -> None:
    async with Broker(nodes=2) as broker:
        await broker.create_topic("t")
        answer = await fetch(broker, broker.leader("t", 0), "east")
        assert (answer.error_code, answer.preferred_read_replica) == (E.NONE, -1)

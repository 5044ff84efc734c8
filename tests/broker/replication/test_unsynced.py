"""Data lost and kept after a loss of power."""

from __future__ import annotations

import pytest

from aiokafkawire.broker import Broker, Drop, SeenRequest
from aiokafkawire.types import TopicPartition
from aiokafkawire.wire import ApiKey, ErrorCode

from ..raw_client import batch, connected, only, produce_request

E = ErrorCode
RELEASES = ["0.11", "2.4", "2.8", None]
"""Releases that truncate by OffsetForLeaderEpoch, before and since KIP-279, or by the fetch."""


async def produce(broker: Broker, value: bytes, acks: int = -1) -> ErrorCode:
    """Return the error code of one record sent to the leader."""
    request = produce_request("t", 0, batch(value), acks=acks)
    async with connected(broker, broker.leader("t", 0)) as client:
        return ErrorCode(only(await client.call(request, 3)).error_code)


def ends(broker: Broker) -> list[int]:
    return [broker.end_offset("t", 0, node=node) for node in broker.nodes]


@pytest.mark.parametrize("as_of", RELEASES)
async def test_records_of_the_whole_isr_survive_a_power_loss(as_of: str | None) -> None:
    async with Broker(
        3, as_of=as_of, replicate=True, min_insync_replicas=2, replica_fetch_wait_max_ms=20
    ) as broker:
        await broker.create_topic("t")
        for turn in range(3):
            assert await produce(broker, b"%d" % turn) is E.NONE
            leader = broker.leader("t", 0)
            assert broker.alone_in_sync(leader) == ()
            await broker.kill(leader, lose_unsynced=True)
            await broker.restart(leader)
            assert broker.leader("t", 0) != leader
            await broker.wait_for_isr("t", 0, 1, 2, 3)
        assert ends(broker) == [3, 3, 3]


@pytest.mark.parametrize("as_of", RELEASES)
async def test_unreplicated_records_are_lost_with_power(as_of: str | None) -> None:
    async with Broker(3, as_of=as_of, replicate=True, replica_fetch_wait_max_ms=20) as broker:
        await broker.create_topic("t")
        assert await produce(broker, b"kept") is E.NONE
        leader = broker.leader("t", 0)

        def silence(seen: SeenRequest) -> Drop | None:
            return Drop() if seen.client_id.startswith("broker-") else None

        rule = broker.on(ApiKey.FETCH, silence)
        while rule.hits < 2:
            # The next request of each follower gets no response.
            fetches = len(broker.requests.of(ApiKey.FETCH))
            await broker.wait_for_request(ApiKey.FETCH, count=fetches + 1)
        assert await produce(broker, b"lost", acks=1) is E.NONE
        rule.remove()
        await broker.kill(leader, lose_unsynced=True)
        await broker.restart(leader)
        await broker.wait_for_isr("t", 0, 1, 2, 3)
        assert await produce(broker, b"other") is E.NONE
        assert ends(broker) == [2, 2, 2]


@pytest.mark.parametrize("as_of", RELEASES)
async def test_records_of_a_single_replica_are_lost_with_it(as_of: str | None) -> None:
    async with Broker(as_of=as_of, replicate=True, flush_messages=2) as broker:
        await broker.create_topic("t")
        for value in (b"a", b"b", b"c"):
            assert await produce(broker, value) is E.NONE
        assert broker.alone_in_sync(1) == (TopicPartition("t", 0),)
        await broker.kill(1, lose_unsynced=True)
        await broker.restart(1)
        assert broker.end_offset("t", 0) == 2
        assert await produce(broker, b"d") is E.NONE


async def test_a_process_that_dies_loses_nothing() -> None:
    async with Broker(replicate=True) as broker:
        await broker.create_topic("t")
        assert await produce(broker, b"a") is E.NONE
        await broker.kill(1)
        await broker.restart(1)
        await broker.kill(1, lose_unsynced=True)
        await broker.restart(1)
        assert broker.end_offset("t", 0) == 1, "the start in between synced it"


async def test_the_replica_with_all_acknowledged_records_becomes_leader() -> None:
    async with Broker(
        2,
        replicate=True,
        min_insync_replicas=2,
        replica_fetch_wait_max_ms=20,
    ) as broker:
        await broker.create_topic("t")
        leader = broker.leader("t", 0)
        other = 3 - leader
        assert await produce(broker, b"a") is E.NONE
        await broker.shut_down(other)
        assert broker.isr("t", 0) == (leader,)
        assert broker.alone_in_sync(leader) == (TopicPartition("t", 0),), "nobody else is up"
        await broker.kill(leader, lose_unsynced=True)
        await broker.restart(leader)
        assert broker.leader("t", 0) == -1, "it may have lost something"
        await broker.restart(other)
        assert broker.leader("t", 0) == other
        await broker.wait_for_isr("t", 0, 1, 2)
        assert ends(broker) == [1, 1]


async def test_one_log_that_all_nodes_share_cannot_be_lost() -> None:
    async with Broker(2) as broker:
        await broker.create_topic("t")
        assert broker.alone_in_sync(1) == ()
        with pytest.raises(ValueError, match="share one log"):
            await broker.kill(1, lose_unsynced=True)

"""Reassignments and elections of nodes that replicate."""

from __future__ import annotations

import anyio
import pytest

from aiokafkawire import Consumer, Producer
from aiokafkawire.broker import Broker, Drop, SeenRequest
from aiokafkawire.wire import ApiKey, ErrorCode

from ..test_elect_leaders import UNCLEAN, elect
from ..test_reassignments import alter, pending

E = ErrorCode
RELEASES = ["2.6", None]


async def moved(broker: Broker, *replicas: int) -> None:
    """Wait until a partition is on exactly these nodes."""
    await broker.wait_for_isr("t", 0, *replicas)
    replication = broker._running.replication
    assert replication is not None
    partition = broker._running.cluster.topics["t"].partitions[0]
    assert await replication.wait_until(lambda: partition.replicas == [*replicas], 10)
    assert await replication.wait_until_up_to_date(10)


def has_replica(broker: Broker, node: int) -> bool:
    replication = broker._running.replication
    assert replication is not None
    return ("t", 0) in replication.managers[node].replicas


@pytest.mark.slow
@pytest.mark.parametrize("as_of", RELEASES)
async def test_a_partition_moves_with_its_records(as_of: str | None) -> None:
    async with Broker(nodes=4, replicate=True, as_of=as_of, replica_fetch_wait_max_ms=50) as broker:
        servers = broker.bootstrap_servers
        broker._running.cluster.create_topic("t", assignments={0: [1, 2]})
        async with Producer(bootstrap_servers=servers) as producer:
            for number in range(10):
                await producer.send_and_wait("t", b"%d" % number)
            assert await alter(broker, [3, 4], version=0) == (E.NONE, None)
            await producer.send_and_wait("t", b"10")
            await moved(broker, 3, 4)
            await producer.send_and_wait("t", b"11")
        assert broker.leader("t", 0) in {3, 4}
        assert await pending(broker) == {}
        assert [has_replica(broker, node) for node in (1, 2, 3, 4)] == [False, False, True, True]
        async with Consumer("t", bootstrap_servers=servers, auto_offset_reset="earliest") as reader:
            with anyio.fail_after(30):
                values = [(await reader.getone()).value for _ in range(12)]
        assert values == [b"%d" % number for number in range(12)]


@pytest.mark.parametrize("as_of", RELEASES)
async def test_a_reassignment_waits_for_the_isr_and_can_be_cancelled(as_of: str | None) -> None:
    async with Broker(nodes=3, replicate=True, as_of=as_of, replica_fetch_wait_max_ms=50) as broker:
        broker._running.cluster.create_topic("t", assignments={0: [1, 2]})
        partition = broker._running.cluster.topics["t"].partitions[0]

        def drop(seen: SeenRequest) -> Drop | None:
            return Drop() if seen.client_id == "broker-3" else None

        rule = broker.on(ApiKey.FETCH, drop)
        assert await alter(broker, [1, 3], version=0) == (E.NONE, None)
        assert await pending(broker) == {("t", 0): ([1, 3, 2], [3], [2])}
        assert (partition.isr, has_replica(broker, 3)) == ([1, 2], True)
        assert await alter(broker, None, version=0) == (E.NONE, None)
        assert (partition.replicas, partition.isr, partition.leader) == ([1, 2], [1, 2], 1)
        assert await pending(broker) == {}
        assert not has_replica(broker, 3)
        rule.remove()


async def test_fewer_replicas_apply_at_once() -> None:
    async with Broker(nodes=3, replicate=True) as broker:
        broker._running.cluster.create_topic("t", assignments={0: [1, 2, 3]})
        assert await alter(broker, [2, 3]) == (E.NONE, None)
        assert await pending(broker) == {}
        assert broker.leader("t", 0) == 2
        assert not has_replica(broker, 1)


async def test_elections() -> None:
    async with Broker(nodes=3, replicate=True, as_of="2.8", replica_fetch_wait_max_ms=50) as broker:
        broker._running.cluster.create_topic("t", assignments={0: [2, 3]})
        await broker.wait_for_isr("t", 0, 2, 3)
        broker.move_leader("t", 0, 3)
        assert await elect(broker, {"t": [0]}) == (E.NONE, {("t", 0): (E.NONE, None)})
        assert broker.leader("t", 0) == 2
        await broker.kill(3)
        await broker.kill(2)
        await broker.restart(3)
        assert broker.leader("t", 0) == -1
        assert await elect(broker, {"t": [0]}) == (
            E.NONE,
            {
                ("t", 0): (
                    E.PREFERRED_LEADER_NOT_AVAILABLE,
                    "The preferred leader was not available.",
                )
            },
        )
        assert await elect(broker, None, UNCLEAN) == (E.NONE, {("t", 0): (E.NONE, None)})
        assert broker.leader("t", 0) == 3


async def test_partitions_of_a_dead_node_wait_as_on_kafka_4_3() -> None:
    async with Broker(nodes=3, replicate=True, as_of="4.3", replica_fetch_wait_max_ms=50) as broker:
        cluster = broker._running.cluster
        for name, replicas in (("t", [3, 1]), ("u", [3])):
            cluster.create_topic(name, assignments={0: replicas})
        await broker.wait_for_isr("t", 0, 1, 3)
        await broker.kill(3)
        unavailable = (
            E.PREFERRED_LEADER_NOT_AVAILABLE,
            "The preferred leader was not available.",
        )
        assert await elect(broker, None) == (
            E.NONE,
            {("t", 0): unavailable, ("u", 0): unavailable},
        )
        text = "Eligible topic partition leaders are not available."
        assert await elect(broker, None, UNCLEAN) == (
            E.NONE,
            {("u", 0): (E.ELIGIBLE_LEADERS_NOT_AVAILABLE, text)},
        )
        assert await alter(broker, [1], topic="u") == (E.NONE, None)
        assert await pending(broker) == {("u", 0): ([1, 3], [1], [3])}
        assert await alter(broker, None, topic="u") == (
            E.INVALID_REPLICA_ASSIGNMENT,
            "Unable to revert partition assignment for u:0 because it would require an unclean"
            " leader election.",
        )
        # The dead replica stays one, but only the new one must catch up.
        assert await alter(broker, [1, 3, 2]) == (E.NONE, None)
        await broker.wait_for_isr("t", 0, 1, 2)
        assert list(await pending(broker)) == [("u", 0)]
        assert cluster.topics["t"].partitions[0].replicas == [1, 3, 2]

"""Nodes that hang for longer than the controller's session timeout, in virtual time."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import pytest

from aiokafkawire import Producer
from aiokafkawire.broker import Broker
from aiokafkawire.runtime import with_runtime
from aiokafkawire.testing.simulation import World

HERE, CLIENT = "10.0.0.1", "10.0.1.1"
SESSION_S = 9.0

BOTH = pytest.mark.parametrize("replicate", [False, True])


def live_through(scenario: Callable[[World, Broker], Awaitable[None]], **options: Any) -> None:
    """Run a scenario in a cluster of three with the topic `t`."""
    world = World(1, backend="asyncio")

    async def main() -> None:
        runtime = world.runtime(HERE)
        async with Broker(
            3, host=HERE, runtime=runtime, min_insync_replicas=2, **options
        ) as broker:
            await broker.create_topic("t", replication_factor=3)
            await scenario(world, broker)

    world.run(main)


@BOTH
def test_a_paused_node_loses_leadership_and_groups_after_the_session_timeout(
    replicate: bool,
) -> None:
    async def scenario(world: World, broker: Broker) -> None:
        leader, epoch = broker.leader("t", 0), broker.leader_epoch("t", 0)
        group = next(g for g in map(str, range(99)) if broker.coordinator(g) == leader)
        broker.pause(leader)
        await anyio.sleep(SESSION_S - 0.1)
        assert broker.leader("t", 0) == leader
        assert broker.coordinator(group) == leader
        await anyio.sleep(0.2)
        assert broker.leader("t", 0) not in {leader, -1}
        assert broker.leader_epoch("t", 0) > epoch
        assert broker.coordinator(group) not in {leader, -1}
        assert leader not in broker.live_nodes
        broker.resume(leader)
        assert leader in broker.live_nodes
        assert broker.leader("t", 0) != leader, "it stays where it went"
        await broker.wait_for_isr("t", 0, 1, 2, 3, timeout_s=60)

    live_through(scenario, replicate=replicate)


@BOTH
def test_a_short_pause_changes_nothing(replicate: bool) -> None:
    async def scenario(world: World, broker: Broker) -> None:
        leader = broker.leader("t", 0)
        for _ in range(3):
            broker.pause(leader)
            broker.pause(leader)
            await anyio.sleep(SESSION_S * 0.6)
            broker.resume(leader)
            broker.pause(leader)
            broker.resume(leader)
        await anyio.sleep(SESSION_S * 2)
        assert broker.leader("t", 0) == leader

    live_through(scenario, replicate=replicate)


@BOTH
def test_no_session_expires_while_all_nodes_are_paused(replicate: bool) -> None:
    async def scenario(world: World, broker: Broker) -> None:
        for node in broker.nodes:
            broker.pause(node)
        await anyio.sleep(SESSION_S * 5)
        assert len(broker.live_nodes) == 3
        broker.resume(1)
        await anyio.sleep(SESSION_S * 2)
        assert list(broker.live_nodes) == [1]
        for node in broker.nodes:
            broker.resume(node)
        assert broker.live_nodes == (1, 2, 3)
        await broker.wait_for_isr("t", 0, 1, 2, 3, timeout_s=60)

    live_through(scenario, replicate=replicate)


@BOTH
def test_a_node_whose_session_expired_can_be_killed(replicate: bool) -> None:
    async def scenario(world: World, broker: Broker) -> None:
        leader = broker.leader("t", 0)
        broker.pause(leader)
        await anyio.sleep(SESSION_S * 2)
        await broker.kill(leader)
        broker.resume(leader)
        assert leader not in broker.live_nodes
        await broker.restart(leader)
        assert broker.live_nodes == (1, 2, 3)
        await broker.wait_for_isr("t", 0, 1, 2, 3, timeout_s=60)

    live_through(scenario, replicate=replicate)


@pytest.mark.parametrize(
    ("as_of", "session_s"), [("2.4", 6.0), ("2.8", 18.0), ("3.9", 9.0), (None, 9.0)]
)
def test_each_release_has_its_own_session_timeout(as_of: str | None, session_s: float) -> None:
    async def scenario(world: World, broker: Broker) -> None:
        broker.pause(1)
        await anyio.sleep(session_s - 0.1)
        assert 1 in broker.live_nodes
        await anyio.sleep(0.2)
        assert 1 not in broker.live_nodes

    live_through(scenario, as_of=as_of)


def test_a_paused_controller_is_replaced() -> None:
    async def scenario(world: World, broker: Broker) -> None:
        first = broker.controller_id
        broker.pause(first)
        await anyio.sleep(SESSION_S * 2)
        second = broker.controller_id
        assert second != first
        broker.resume(first)
        await broker.create_topic("u", replication_factor=3)
        await broker.wait_for_isr("u", 0, 1, 2, 3, timeout_s=60)
        assert broker.controller_id == second

    live_through(scenario, replicate=True)


def test_what_was_acknowledged_outlives_a_leader_that_hangs() -> None:
    async def scenario(world: World, broker: Broker) -> None:
        async with with_runtime(
            Producer(bootstrap_servers=broker.bootstrap_servers, request_timeout_ms=2_000),
            world.runtime(CLIENT),
        ) as producer:
            for turn in range(6):
                leader = broker.leader("t", 0)
                delivery = await producer.send("t", b"%d" % turn)
                broker.pause(leader)
                await delivery
                broker.resume(leader)
                await broker.wait_for_isr("t", 0, 1, 2, 3, timeout_s=60)
        ends = {broker.end_offset("t", 0, node=node) for node in broker.nodes}
        assert ends == {6}

    live_through(scenario, replicate=True)


def test_logs_and_high_watermarks_are_flushed_periodically() -> None:
    async def scenario(world: World, broker: Broker) -> None:
        async with with_runtime(
            Producer(bootstrap_servers=broker.bootstrap_servers), world.runtime(CLIENT)
        ) as producer:
            await producer.send_and_wait("t", b"early")
            await anyio.sleep(3.0)
            replication = broker._running.replication
            assert replication is not None
            logs = [manager.replicas["t", 0].log for manager in replication.managers.values()]
            assert {log.recovery_point for log in logs} == {1}
            await producer.send_and_wait("t", b"late")
            assert {log.recovery_point for log in logs} == {1}
            follower = 1 + broker.leader("t", 0) % 3
            await anyio.sleep(0.6)
            await broker.kill(follower)
            await broker.restart(follower)
            assert replication.managers[follower].replicas["t", 0].high_watermark == 2

    live_through(
        scenario,
        replicate=True,
        flush_interval_ms=2_000,
        high_watermark_checkpoint_interval_ms=50,
        replica_fetch_wait_max_ms=500,
    )

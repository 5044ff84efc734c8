"""Each call of the admin client in a simulated network with faults, in virtual time."""

from __future__ import annotations

import random

import anyio
import pytest

from aiokafkawire import Admin
from aiokafkawire.admin import NewTopic, OffsetSpec
from aiokafkawire.broker import Broker
from aiokafkawire.errors import KafkaError
from aiokafkawire.runtime import with_runtime
from aiokafkawire.testing.simulation import World
from aiokafkawire.testing.simulation.world import Backend
from tests.admin.calls import CALLS, Arguments

pytestmark = pytest.mark.slow

HERE, CLIENT = "10.0.0.1", "10.0.1.1"
NODES = 3

TIMEOUT_S = 5.0
LATE_S = 0.1
"""Lateness that timers may add to a deadline."""

SEEDS = 20


class Chaos:
    """Faults of the network and the nodes, by seed."""

    def __init__(self, world: World, broker: Broker, seed: int) -> None:
        self._world = world
        self._broker = broker
        self._rng = random.Random(seed)

    async def run(self) -> None:
        while True:
            await anyio.sleep(self._rng.uniform(0.05, 2.0))
            node_id = self._rng.randint(1, NODES)
            address = str(self._broker.nodes[node_id])
            match self._rng.randrange(6):
                case 0:
                    self._world.network.sever(CLIENT, address)
                case 1:
                    self._world.network.reset(CLIENT, address)
                case 2 | 3:
                    self._world.network.heal_all()
                case 4:
                    self._broker.move_coordinator("group of orders", node_id)
                case 5:
                    self._broker.move_leader("orders", 0, node_id)


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
@pytest.mark.parametrize("seed", range(SEEDS))
def test_calls_under_faults(seed: int, backend: Backend) -> None:
    world = World(seed, backend=backend)
    names = list(CALLS)
    random.Random(seed).shuffle(names)

    async def administrate(admin: Admin) -> int:
        """Make each call; return the number of those that succeeded."""
        succeeded = 0
        for name in names:
            began_at = world.now()
            try:
                await CALLS[name](admin, Arguments("orders"))
            except KafkaError:
                pass
            else:
                succeeded += 1
            assert world.now() - began_at <= TIMEOUT_S + LATE_S, name
        return succeeded

    async def main() -> None:
        async with Broker(NODES, host=HERE, runtime=world.runtime(HERE)) as broker:
            await broker.create_topic("orders", replication_factor=NODES)
            admin = with_runtime(
                Admin(
                    bootstrap_servers=broker.bootstrap_servers,
                    default_api_timeout_ms=int(TIMEOUT_S * 1_000),
                    request_timeout_ms=1_000,
                    close_timeout_ms=1_000,
                ),
                world.runtime(CLIENT),
            )
            async with admin:
                async with anyio.create_task_group() as group:
                    group.start_soon(Chaos(world, broker, seed).run)
                    assert await administrate(admin)
                    group.cancel_scope.cancel()
                world.network.heal_all()
                await verify(admin)

    async def verify(admin: Admin) -> None:
        """After the faults, the client works, and a repeated call changes nothing."""
        topics = [NewTopic(f"topic-{number}", 3, 3) for number in range(5)]
        await admin.ensure_topics(topics)
        again = await admin.ensure_topics(topics)
        assert not any(topic.is_changed for topic in again.values())
        partitions = {(topic.name, 0): OffsetSpec.LATEST for topic in topics}
        listed = await admin.list_offsets(partitions)
        assert [each.offset for each in listed.values()] == [0] * 5

    world.run(main, limit_s=2_000)

"""`ping` with lost packets: a host that ignores SYNs, and interrupted connections."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import anyio
import pytest

from aiokafkawire.broker import Broker
from aiokafkawire.consumer import Consumer
from aiokafkawire.errors import KafkaError, NoBrokerAvailable
from aiokafkawire.producer import Producer
from aiokafkawire.runtime import with_runtime
from aiokafkawire.testing.simulation import NetworkOptions, World
from aiokafkawire.testing.simulation.world import Backend

HERE, CLIENT = "10.0.0.1", "10.0.1.1"
BAD = 2
TIMEOUT_MS = 1_000

Client = Producer | Consumer
Scenario = Callable[[World, Broker, Client], Awaitable[None]]
CLIENTS = pytest.mark.parametrize("client_class", [Producer, Consumer])
BACKENDS = pytest.mark.parametrize("backend", ["asyncio", "trio"])


def live_through(backend: Backend, client_class: type[Client], scenario: Scenario) -> None:
    """Run a scenario with three nodes; each leads a partition of `t`."""
    world = World(5, backend=backend, network=NetworkOptions(fragmented=0.0, partial_writes=0.0))

    async def main() -> None:
        async with Broker(3, host=HERE, runtime=world.runtime(HERE)) as broker:
            await broker.create_topic("t", partitions=3, replication_factor=3)
            for partition in range(3):
                broker.move_leader("t", partition, partition + 1)
            broker.move_coordinator("billing", BAD)
            async with with_runtime(
                client_class(
                    bootstrap_servers=broker.bootstrap_servers,
                    close_timeout_ms=1_000,
                    reconnect_backoff_ms=60_000,
                    reconnect_backoff_max_ms=60_000,
                ),
                world.runtime(CLIENT),
            ) as client:
                await scenario(world, broker, client)

    world.run(main, limit_s=300)


async def refused(world: World, client: Client, **target: str) -> KafkaError:
    """Return the error of a ping, which must be raised within its timeout."""
    began_at = world.now()
    with pytest.raises(KafkaError) as caught:
        await client.ping(TIMEOUT_MS, **target)
    assert world.now() - began_at <= TIMEOUT_MS / 1_000 + 0.05
    return caught.value


@BACKENDS
@CLIENTS
def test_one_node_of_three_vanishes(backend: Backend, client_class: type[Client]) -> None:
    async def scenario(world: World, broker: Broker, client: Client) -> None:
        await client.ping(topic="t")
        bad = str(broker.nodes[BAD])
        world.network.sever(CLIENT, bad)
        for _ in range(5):
            began_at = world.now()
            assert (await client.ping(TIMEOUT_MS)).brokers
            assert world.now() - began_at < 0.5
        for target in ({"topic": "t"}, {"group": "billing"}):
            assert str((await refused(world, client, **target)).broker).startswith(f"{BAD} at ")
        world.network.reset(CLIENT, bad)
        for target in ({"topic": "t"}, {"group": "billing"}):
            assert str((await refused(world, client, **target)).broker).startswith(f"{BAD} at ")
        world.network.heal_all()
        assert len((await client.ping(TIMEOUT_MS, topic="t", group="billing")).brokers) == 3

    live_through(backend, client_class, scenario)


@BACKENDS
@CLIENTS
def test_all_nodes_vanish_and_return(backend: Backend, client_class: type[Client]) -> None:
    async def scenario(world: World, broker: Broker, client: Client) -> None:
        assert await client.ping(TIMEOUT_MS)
        world.network.lose_power(HERE)
        world.network.reset(CLIENT, HERE)
        for _ in range(10):
            assert isinstance(await refused(world, client), NoBrokerAvailable)
            await anyio.sleep(5)
        world.network.restore(HERE)
        # At once: attempts of the client that are under way, and its backoff, are not waited for.
        began_at = world.now()
        assert await client.ping(TIMEOUT_MS)
        assert world.now() - began_at < 0.5

    live_through(backend, client_class, scenario)


@BACKENDS
def test_a_name_that_is_not_resolved(backend: Backend) -> None:
    world = World(5, backend=backend)

    async def main() -> None:
        world.network.name("kafka", HERE)
        world.network.hang_name("kafka")
        async with with_runtime(
            Producer(bootstrap_servers="kafka:9092", connect_on_start=False), world.runtime(CLIENT)
        ) as client:
            assert "kafka:9092" in str(await refused(world, client))

    world.run(main, limit_s=300)

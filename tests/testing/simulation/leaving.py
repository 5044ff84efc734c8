"""Clients that are left at any moment of a bad day; says how long each took.

As a command it tries seeds: `python -m tests.testing.simulation.leaving 0 100 asyncio`.
"""

from __future__ import annotations

import sys
from typing import Any

import anyio

from aiokafkawire.broker import Broker
from aiokafkawire.consumer import Consumer
from aiokafkawire.errors import DeliveriesFailed, KafkaError
from aiokafkawire.producer import Producer
from aiokafkawire.testing.simulation import NetworkOptions, World

BROKER, CLIENT, TOPIC = "10.0.0.1", "10.0.1.1", "orders"
SOON_S = 1.0
CLOSE_TIMEOUT_S = 20.0


class Leaving:
    """One run: clients start, something happens at some time, and at another they stop."""

    def __init__(self, world: World, broker: Broker) -> None:
        self.world = world
        self.broker = broker
        self.chance = world.rng("leaving")
        self.trouble = self.chance.choice([None, "severed", "vanished", "killed", "paused"])
        self.took: dict[str, float] = {}
        self.options: dict[str, Any] = {
            "bootstrap_servers": broker.bootstrap_servers,
            "_runtime": world.runtime(CLIENT),
            "close_timeout_ms": int(CLOSE_TIMEOUT_S * 1_000),
        }

    async def run(self) -> None:
        group = self.options | {"group_id": "billing", "auto_offset_reset": "earliest"}
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self.make_trouble)
            tasks.start_soon(self.live, "idle producer", Producer(**self.options), SOON_S)
            sending = Producer(**self.options, linger_ms=60_000, delivery_timeout_ms=120_000)
            tasks.start_soon(self.live, "sending producer", sending, CLOSE_TIMEOUT_S + SOON_S)
            for number in range(2):
                member = Consumer(TOPIC, **group, enable_auto_commit=False)
                tasks.start_soon(self.live, f"member {number}", member, SOON_S)
            committing = Consumer(TOPIC, **group)
            tasks.start_soon(self.live, "committing", committing, CLOSE_TIMEOUT_S + SOON_S)
        if self.trouble is None:
            group_left = self.broker._running.groups.get("billing")
            assert not getattr(group_left, "members", ()), "a member left a ghost"

    async def live(self, name: str, client: Any, at_most_s: float) -> None:
        await anyio.sleep(self.chance.uniform(0, 0.5))
        try:
            with anyio.move_on_after(self.chance.uniform(0, 5)):
                await client.start()
                await self.use(name, client)
        except KafkaError as error:
            self.world.trace.note(f"{name}: {error}")
        began = self.world.now()
        try:
            await client.stop()
        except DeliveriesFailed as error:
            self.world.trace.note(f"{name}: {error}")
        took = self.world.now() - began
        self.took[name] = took
        if self.broker.options.as_of is not None and isinstance(client, Consumer):
            at_most_s = CLOSE_TIMEOUT_S + SOON_S
        assert took <= at_most_s, f"{name} took {took:.3f} s to stop"

    async def use(self, name: str, client: Any) -> None:
        if name == "idle producer":
            await anyio.sleep_forever()
        elif isinstance(client, Producer):
            await client.send(TOPIC, b"v")
            await anyio.sleep_forever()
        else:
            while True:
                await client.getmany(timeout_ms=100)

    async def make_trouble(self) -> None:
        await anyio.sleep(self.chance.uniform(0, 4))
        if self.trouble == "severed":
            self.world.network.sever(CLIENT, BROKER)
        elif self.trouble == "vanished":
            self.world.network.lose_power(BROKER)
        elif self.trouble == "killed":
            for node in self.broker.nodes:
                await self.broker.kill(node)
        elif self.trouble == "paused":
            for node in self.broker.nodes:
                self.broker.pause(node)


def leave(seed: int, backend: Any, **options: Any) -> dict[str, float]:
    """Run one seed: how long each client took. Options are the broker's."""
    world = World(seed, backend=backend, network=NetworkOptions(max_delay_s=0.02))

    async def main() -> dict[str, float]:
        async with Broker(
            nodes=3, host=BROKER, runtime=world.runtime(BROKER), default_partitions=3, **options
        ) as broker:
            leaving = Leaving(world, broker)
            await leaving.run()
            return leaving.took

    return world.run(main)


if __name__ == "__main__":
    for number in range(int(sys.argv[1]), int(sys.argv[2])):
        times = leave(number, sys.argv[3])
        print(f"seed {number}: " + ", ".join(f"{who} {took:.2f}" for who, took in times.items()))

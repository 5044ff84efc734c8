"""A producer and a group while nodes die, hang and lead by turns, and the network is cut.

As a command it tries seeds: `python -m tests.testing.simulation.bad_days 0 50 asyncio`.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from typing import Any

import anyio

from aiokafkawire.broker import Broker
from aiokafkawire.consumer import Consumer
from aiokafkawire.errors import KafkaError
from aiokafkawire.producer import Delivery, Producer
from aiokafkawire.testing.simulation import NetworkOptions, World

BROKER, PRODUCER, MEMBERS = "10.0.0.1", "10.0.1.1", ("10.0.2.1", "10.0.2.2")
TOPIC, PARTITIONS, RECORDS, TROUBLES = "orders", 3, 150, 12
PATIENCE_S = 1_500

HASTY: dict[str, Any] = {"request_timeout_ms": 2_000}
MEMBER: dict[str, Any] = HASTY | {
    "group_id": "billing",
    "auto_offset_reset": "earliest",
    "session_timeout_ms": 3_000,
    "heartbeat_interval_ms": 300,
    "auto_commit_interval_ms": 500,
}


class BadDays:
    """One run. In the end: nothing acknowledged is lost, nothing is there twice or out of order,
    and all that is there was consumed."""

    def __init__(self, world: World, broker: Broker, strategy: str) -> None:
        self.world = world
        self.broker = broker
        self.servers = broker.bootstrap_servers
        self.strategy = strategy
        self.chance: random.Random = world.rng("bad days")
        self.acknowledged: list[int] = []
        self.seen: set[tuple[int, int]] = set()
        self.over = False

    async def run(self) -> None:
        with anyio.fail_after(PATIENCE_S):
            async with anyio.create_task_group() as group:
                for host in MEMBERS:
                    group.start_soon(self.consume, host)
                async with anyio.create_task_group() as mess:
                    mess.start_soon(self.produce)
                    mess.start_soon(self.make_trouble)
                ends = [self.broker.end_offset(TOPIC, n) for n in range(PARTITIONS)]
                wanted = {(n, offset) for n in range(PARTITIONS) for offset in range(ends[n])}
                while not wanted <= self.seen:  # noqa: ASYNC110 - virtual time costs nothing
                    await anyio.sleep(1)
                self.over = True
            self.judge(await self.stored(ends))

    async def produce(self) -> None:
        on_the_way: list[tuple[int, Delivery]] = []
        async with Producer(
            bootstrap_servers=self.servers,
            _runtime=self.world.runtime(PRODUCER),
            delivery_timeout_ms=30_000,
            **HASTY,
        ) as producer:
            for number in range(RECORDS):
                value = b"%05d" % number
                delivery = await producer.send(TOPIC, value, partition=number % PARTITIONS)
                on_the_way.append((number, delivery))
                await anyio.sleep(self.chance.uniform(0, 0.2))
            for number, delivery in on_the_way:
                try:
                    await delivery
                except KafkaError:
                    continue  # it may be there, or not
                self.acknowledged.append(number)

    async def consume(self, host: str) -> None:
        async with Consumer(
            TOPIC,
            bootstrap_servers=self.servers,
            _runtime=self.world.runtime(host),
            partition_assignment_strategy=[self.strategy],
            **MEMBER,
        ) as consumer:
            while not self.over:
                for records in (await consumer.getmany(timeout_ms=300)).values():
                    self.seen.update((record.partition, record.offset) for record in records)

    async def make_trouble(self) -> None:
        troubles = [self.kill, self.sever, self.reset, self.hang, self.move, self.confuse]
        for _ in range(TROUBLES):
            await anyio.sleep(self.chance.uniform(0.2, 2))
            await self.chance.choice(troubles)()

    async def kill(self) -> None:
        node = self.chance.randint(1, 3)
        await self.broker.kill(node)
        await anyio.sleep(self.chance.uniform(0.1, 3))
        await self.broker.restart(node)

    async def sever(self) -> None:
        host = self.chance.choice([PRODUCER, *MEMBERS])
        ends = self.chance.choice([(host, BROKER), (BROKER, host)])
        self.world.network.sever(*ends, one_way=self.chance.random() < 0.5)
        await anyio.sleep(self.chance.uniform(0.1, 5))
        self.world.network.heal(host, BROKER)

    async def reset(self) -> None:
        network, host = self.world.network, self.chance.choice([PRODUCER, *MEMBERS])
        breaks: list[Callable[[], None]] = [
            lambda: network.reset(host, BROKER),
            lambda: network.reset_mid_write(host, BROKER),
            lambda: network.reset_mid_write(BROKER, host),
            lambda: network.half_open(BROKER, host),
            lambda: network.half_open(BROKER, host, silent=True),
        ]
        self.chance.choice(breaks)()

    async def confuse(self) -> None:
        """What lasts a while, and hurts less."""
        network, host = self.world.network, self.chance.choice([PRODUCER, *MEMBERS])
        slow = NetworkOptions(
            max_delay_s=0.2, slow_packets=0.05, bandwidth_bytes_per_s=20_000, single_bytes=0.3
        )
        confusions: list[Callable[[], None]] = [
            lambda: network.set_link(host, BROKER, slow),
            lambda: network.refuse_connects(BROKER, by=host),
            lambda: network.hang_connects(BROKER, by=host),
            lambda: self.world.clock_of(host).jump(self.chance.uniform(-3_600, 3_600)),
        ]
        self.chance.choice(confusions)()
        await anyio.sleep(self.chance.uniform(0.1, 5))
        network.set_link(host, BROKER, None)
        network.allow_connects(BROKER)

    async def hang(self) -> None:
        node = self.chance.randint(1, 3)
        self.broker.pause(node)
        await anyio.sleep(self.chance.uniform(0.1, 5))
        self.broker.resume(node)

    async def move(self) -> None:
        if TOPIC in self.broker.topics:
            node = self.chance.choice(self.broker.live_nodes)
            self.broker.move_leader(TOPIC, self.chance.randrange(PARTITIONS), node)

    async def stored(self, ends: list[int]) -> dict[int, list[int]]:
        found: dict[int, list[int]] = {n: [] for n in range(PARTITIONS)}
        async with Consumer(
            bootstrap_servers=self.servers,
            _runtime=self.world.runtime("10.0.3.1"),
            auto_offset_reset="earliest",
        ) as consumer:
            consumer.assign(*((TOPIC, n) for n in range(PARTITIONS)))
            while sum(map(len, found.values())) < sum(ends):
                for tp, records in (await consumer.getmany(timeout_ms=1_000)).items():
                    found[tp.partition] += [int(value or b"") for value in records.values()]
        return found

    def judge(self, stored: dict[int, list[int]]) -> None:
        for partition, numbers in stored.items():
            assert numbers == sorted(set(numbers)), f"out of order, or twice, in {partition}"
        everything = {number for numbers in stored.values() for number in numbers}
        lost = set(self.acknowledged) - everything
        assert not lost, f"acknowledged and lost: {sorted(lost)}"


def live_through(seed: int, backend: Any, strategy: str) -> World:
    """Run one seed; raises what went wrong."""
    world = World(seed, backend=backend, network=NetworkOptions(max_delay_s=0.02))

    async def main() -> None:
        async with Broker(
            nodes=3,
            host=BROKER,
            runtime=world.runtime(BROKER),
            default_partitions=PARTITIONS,
            default_replication_factor=3,
            group_min_session_timeout_ms=100,
        ) as broker:
            await BadDays(world, broker, strategy).run()

    world.run(main)
    return world


if __name__ == "__main__":
    for number in range(int(sys.argv[1]), int(sys.argv[2])):
        for name in ("range", "cooperative-sticky"):
            lived = live_through(number, sys.argv[3], name)
            print(f"{sys.argv[3]} {name} seed {number}: {lived.now():.0f} s, {lived.trace.digest}")

"""Programs that tests run in a simulated world; also as a command, to compare two processes."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable
from typing import Any

import anyio

from aiokafkawire.broker import Broker
from aiokafkawire.consumer import Consumer
from aiokafkawire.producer import Producer
from aiokafkawire.runtime import with_runtime
from aiokafkawire.testing.simulation import NetworkOptions, World

BROKER = "10.0.0.1"
MEMBER: dict[str, Any] = {
    "group_id": "billing",
    "auto_offset_reset": "earliest",
    "session_timeout_ms": 10_000,
}


def broker(world: World, **options: Any) -> Broker:
    return Broker(nodes=3, host=BROKER, runtime=world.runtime(BROKER), **options)


async def produce_and_consume(world: World) -> list[bytes]:
    values = [b"%05d" % number for number in range(300)]
    async with broker(world, default_partitions=1) as servers:
        address = servers.bootstrap_servers
        async with with_runtime(
            Producer(bootstrap_servers=address, compression_type="gzip"), world.runtime("10.0.1.1")
        ) as producer:
            for value in values:
                await producer.send("orders", value, key=value)
                if int(value) % 50 == 0:
                    await anyio.sleep(0.1)
        async with with_runtime(
            Consumer("orders", bootstrap_servers=address, auto_offset_reset="earliest"),
            world.runtime("10.0.1.2"),
        ) as consumer:
            read = [await consumer.getone() for _ in values]
    return [record.value or b"" for record in read]


async def rebalance(world: World) -> dict[str, int]:
    """Three members; one leaves, one dies; every record is read. How many each one read.

    Every fault of a network happens in this one.
    """
    seen: set[tuple[int, int]] = set()
    counts: dict[str, int] = {}
    async with broker(world, default_partitions=6) as servers:
        address = servers.bootstrap_servers

        async def work(host: str, until: int) -> None:
            consumer = with_runtime(
                Consumer("orders", bootstrap_servers=address, **MEMBER), world.runtime(host)
            )
            async with consumer:
                while len(seen) < until:
                    for records in (await consumer.getmany(timeout_ms=200)).values():
                        for record in records:
                            seen.add((record.partition, record.offset))
                            counts[host] = counts.get(host, 0) + 1

        def trouble(number: int) -> None:
            """Inject a fault into the network while a record is sent."""
            net, producer, member = world.network, "10.0.1.9", "10.0.2.1"
            slow = NetworkOptions(slow_packets=0.1, bandwidth_bytes_per_s=50_000, single_bytes=0.5)
            troubles: dict[int, Callable[[], None]] = {
                20: lambda: net.reset_mid_write(producer, BROKER),
                40: lambda: net.half_open(BROKER, member),
                50: lambda: net.set_link(member, BROKER, slow),
                60: lambda: world.clock.jump(-3_600),
                90: lambda: net.sever(BROKER, "10.0.2.2", one_way=True),
                100: lambda: net.refuse_connects(BROKER, by=producer, times=2),
                110: lambda: net.hang_connects(BROKER, by=member, times=1),
                130: net.heal_all,
                140: lambda: net.reset_mid_write(BROKER, member),
                150: lambda: net.half_open(BROKER, "10.0.2.2", silent=True),
                170: lambda: net.reset(producer, BROKER),
            }
            troubles.get(number, lambda: None)()

        async def produce() -> None:
            async with with_runtime(
                Producer(bootstrap_servers=address), world.runtime("10.0.1.9")
            ) as producer:
                await producer.partitions_for("orders")
                for number in range(240):
                    await producer.send("orders", b"%d" % number, partition=number % 6)
                    await anyio.sleep(0.05)
                    if number == 80:
                        await servers.kill(2)
                    if number == 120:
                        world.network.crash("10.0.2.3")
                    if number == 160:
                        await servers.restart(2)
                    trouble(number)

        async with anyio.create_task_group() as group:
            group.start_soon(produce)
            group.start_soon(work, "10.0.2.1", 240)
            group.start_soon(work, "10.0.2.2", 240)
            await anyio.sleep(2)
            group.start_soon(work, "10.0.2.3", 160)
    return counts


async def scatter(world: World) -> list[str]:
    """Tasks that are cancelled all at once, within scopes of their own: who hears when."""
    received: list[str] = []

    async def wait(name: str) -> None:
        try:
            with anyio.CancelScope(deadline=world.now() + 60):
                await anyio.sleep_forever()
        finally:
            world.trace.note(f"{name} hears")
            received.append(name)

    async with anyio.create_task_group() as group:
        for number in range(40):
            group.start_soon(wait, f"task {number}")
        await anyio.sleep(1)
        group.cancel_scope.cancel()
    return received


PROGRAMS: dict[str, Callable[[World], Awaitable[Any]]] = {
    "produce_and_consume": produce_and_consume,
    "rebalance": rebalance,
    "scatter": scatter,
}


def run(name: str, seed: int, backend: Any) -> tuple[World, Any]:
    world = World(seed, backend=backend)
    return world, world.run(lambda: PROGRAMS[name](world))


if __name__ == "__main__":
    for program in sys.argv[3:]:
        ran, output = run(program, int(sys.argv[1]), sys.argv[2])
        print(ran.trace.count, ran.trace.digest, output)

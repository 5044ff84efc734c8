"""The client and the broker's 0.7 port in a simulated network."""

from __future__ import annotations

from typing import Literal

import anyio
import pytest

from aiokafkawire.broker import Broker
from aiokafkawire.errors import RequestTimedOut
from aiokafkawire.kafka07 import Client
from aiokafkawire.runtime import with_runtime
from aiokafkawire.testing.simulation import NetworkOptions, World

BROKER, CLIENT = "10.0.0.1", "10.0.1.1"
HOUR_S = 3_600.0


def run(seed: int, backend: Literal["asyncio", "trio"]) -> tuple[World, list[bytes]]:
    """Produce and read while the network is partitioned three times."""
    world = World(seed, backend=backend, network=NetworkOptions())
    read: list[bytes] = []

    async def main() -> None:
        async with (
            Broker(host=BROKER, runtime=world.runtime(BROKER), kafka07_port=0) as broker,
            with_runtime(
                Client(broker.kafka07_server, request_timeout_ms=1_000, fetch_size_bytes=64),
                world.runtime(CLIENT),
            ) as client,
        ):
            for number in range(20):
                await client.produce("t", [b"%d" % number, bytes(number)], 0)
            await client.flush()
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(cut)
                async for message in client.messages("t", 0, 0):
                    read.append(message.payload)
                    if len(read) == 40:
                        break
            began = world.now()
            world.network.sever(BROKER, CLIENT)
            with pytest.raises(RequestTimedOut):
                await client.end_offset("t", 0)
            assert world.now() - began < 1.5
            world.network.heal(BROKER, CLIENT)
            assert await client.end_offset("t", 0) > 0

    async def cut() -> None:
        for _ in range(3):
            world.network.sever(BROKER, CLIENT)
            await anyio.sleep(2)
            world.network.heal(BROKER, CLIENT)
            await anyio.sleep(1)

    world.run(main)
    return world, read


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_reading_survives_network_partitions(backend: Literal["asyncio", "trio"]) -> None:
    world, read = run(3, backend)
    assert read[::2] == [b"%d" % number for number in range(20)]
    assert run(3, backend)[0].trace.digest == world.trace.digest

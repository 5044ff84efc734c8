"""Nodes that replicate while they die, hang and lead by turns: nothing acknowledged is lost.

As a command it tries seeds: `python -m tests.broker.replication.bad_days 0 50 asyncio`.
"""

from __future__ import annotations

import sys
from typing import Any

import anyio

from aiokafkawire.broker import Broker
from aiokafkawire.records.batch import iter_batches
from aiokafkawire.testing.simulation import NetworkOptions, World
from tests.testing.simulation.bad_days import BROKER, PARTITIONS, TOPIC, BadDays

NODES = (1, 2, 3)
CATCH_UP_S = 60.0
SESSION_S = 6.0
LOSES_POWER = 0.6
"""How often a node that dies loses what it did not sync."""


class ReplicatingBadDays(BadDays):
    """One run, at the end of which all nodes have the same records too."""

    async def make_trouble(self) -> None:
        await super().make_trouble()
        for partition in range(PARTITIONS):
            await self.broker.wait_for_isr(TOPIC, partition, *NODES, timeout_s=CATCH_UP_S)

    async def move(self) -> None:
        if TOPIC in self.broker.topics:
            partition = self.chance.randrange(PARTITIONS)
            able = [n for n in self.broker.isr(TOPIC, partition) if n in self.broker.live_nodes]
            if able:
                self.broker.move_leader(TOPIC, partition, self.chance.choice(able))

    async def kill(self) -> None:
        """Or take its power away, if others in sync have everything."""
        node = self.chance.randint(1, 3)
        able = node in self.broker.live_nodes and not self.broker.alone_in_sync(node)
        await self.broker.kill(node, lose_unsynced=able and self.chance.random() < LOSES_POWER)
        await anyio.sleep(self.chance.uniform(0.1, 3))
        await self.broker.restart(node)

    async def hang(self) -> None:
        """For longer than others wait for a node, at times; a coordinator moves then as well."""
        node = self.chance.randint(1, 3)
        self.broker.pause(node)
        await anyio.sleep(self.chance.choice([self.chance.uniform(0.1, 5), SESSION_S * 1.5]))
        if node not in self.broker.live_nodes:
            self.broker.move_coordinator("billing", self.broker.live_nodes[-1])
        self.broker.resume(node)

    async def reset(self) -> None:
        """Of all connections, those between nodes too."""
        await super().reset()
        self.world.network.reset(BROKER, BROKER)

    def judge(self, stored: dict[int, list[int]]) -> None:
        super().judge(stored)
        for partition in range(PARTITIONS):
            logs = [self.log(node, partition) for node in NODES]
            assert logs[0] == logs[1] == logs[2], f"partition {partition} is not the same"

    def log(self, node: int, partition: int) -> list[tuple[int, int]]:
        """What a node has on its disk: where each batch begins, and its checksum."""
        replication = self.broker._running.replication
        assert replication is not None
        log = replication.managers[node].replicas[TOPIC, partition].log
        return [(view.base_offset, view.crc) for view in iter_batches(log.read(0, 2**30))]


def live_through(seed: int, backend: Any, as_of: str | None) -> World:
    """Run one seed; raises what went wrong."""
    world = World(seed, backend=backend, network=NetworkOptions(max_delay_s=0.02))

    async def main() -> None:
        async with Broker(
            nodes=3,
            host=BROKER,
            runtime=world.runtime(BROKER),
            as_of=as_of,
            replicate=True,
            min_insync_replicas=2,
            replica_lag_time_max_ms=3_000,
            default_partitions=PARTITIONS,
            default_replication_factor=3,
            group_min_session_timeout_ms=100,
            broker_session_timeout_ms=int(SESSION_S * 1_000),
            coordinator_load_ms=50,
            flush_interval_ms=4_000,
        ) as broker:
            await ReplicatingBadDays(world, broker, "range").run()

    world.run(main)
    return world


if __name__ == "__main__":
    for number in range(int(sys.argv[1]), int(sys.argv[2])):
        for name in ("0.11", "2.8", None):
            lived = live_through(number, sys.argv[3], name)
            print(f"{sys.argv[3]} {name} seed {number}: {lived.now():.0f} s, {lived.trace.digest}")

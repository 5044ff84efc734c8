"""Nodes that replicate while they die, hang and lead by turns: nothing acknowledged is lost.

As a command it tries seeds: `python -m tests.broker.replication.bad_days 0 50 asyncio`.
"""

from __future__ import annotations

import sys
from typing import Any

from aiokafkawire.broker import Broker
from aiokafkawire.records.batch import iter_batches
from aiokafkawire.testing.simulation import NetworkOptions, World
from tests.testing.simulation.bad_days import BROKER, PARTITIONS, TOPIC, BadDays

NODES = (1, 2, 3)
CATCH_UP_S = 60.0


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


def live_through(seed: int, backend: Any, as_of: str) -> World:
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
        ) as broker:
            await ReplicatingBadDays(world, broker, "range").run()

    world.run(main)
    return world


if __name__ == "__main__":
    for number in range(int(sys.argv[1]), int(sys.argv[2])):
        for name in ("0.11", "2.8"):
            lived = live_through(number, sys.argv[3], name)
            print(f"{sys.argv[3]} {name} seed {number}: {lived.now():.0f} s, {lived.trace.digest}")

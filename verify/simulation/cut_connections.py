"""Cut the connections of share consumers, and look for locks that are left.

`python -m verify.simulation.cut_connections 100000 SEED`: members of a share group read while their
connections are reset again and again. A lock of a member without a session must end within 60
virtual seconds, and nothing may be left after the members have closed.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from functools import partial

import anyio

from aiokafkawire.broker import Broker
from aiokafkawire.broker.configs import ConfigResourceType
from aiokafkawire.producer import Producer
from aiokafkawire.runtime import with_runtime
from aiokafkawire.share import ShareConsumer
from aiokafkawire.testing.simulation import World
from verify.invariants.share_observer import locked_records
from verify.simulation.plan import BROKER_HOST
from verify.simulation.scenarios.group_workers import CLIENT, host_of

GROUP, TOPIC = "work", "jobs"
MEMBERS = 8
PARTITIONS = 4
CUT_EACH_S = 0.25
SEND_EACH_S, RECORDS = 0.5, 10
SAMPLE_EACH_S = 0.5
LOCK_MS = 5_000
LEAKED_AFTER_S = 60.0
VIRTUAL_S_PER_CUT = 1.0
"""Limit of the run; a cut breaks several connections at once."""


class CutConnections:
    """One run: `connections` were cut, `records` delivered, `leaked` are the locks that are left.

    `longest_s` is the longest time that a lock outlived the session of its member.
    """

    def __init__(self, world: World) -> None:
        self.connections = 0
        self.records = 0
        self.longest_s = 0.0
        self.leaked: list[str] = []
        self._world = world
        self._rng = world.rng("cuts")
        self._broker = Broker(
            nodes=3,
            host=BROKER_HOST,
            runtime=world.runtime(BROKER_HOST),
            group_share_record_lock_duration_ms=LOCK_MS,
            group_share_session_timeout_ms=5_000,
            group_share_heartbeat_interval_ms=500,
            group_share_delivery_count_limit=10,
        )

    async def run(self, count: int) -> None:
        """Cut this number of connections, and look for locks that are left."""
        async with self._broker:
            configs = {"share.auto.offset.reset": "earliest"}
            cluster = self._broker._running.cluster
            cluster.alter_configs(ConfigResourceType.GROUP, GROUP, configs)
            await self._broker.create_topic(TOPIC, partitions=PARTITIONS)
            async with anyio.create_task_group() as tasks:
                for work in (self._send, self._watch):
                    tasks.start_soon(work)
                for number in range(MEMBERS):
                    tasks.start_soon(self._read, number)
                await self._cut(count)
                tasks.cancel_scope.cancel()
            await anyio.sleep(LEAKED_AFTER_S)
            self._check_end()

    async def _cut(self, count: int) -> None:
        network = self._world.network
        cuts: tuple[Callable[[str, str], None], ...] = (
            *(network.reset,) * 6,
            network.reset_mid_write,
            network.half_open,
        )
        while self.connections < count:
            await anyio.sleep(self._rng.uniform(0, 2 * CUT_EACH_S))
            host = host_of(self._rng.randrange(MEMBERS))
            self.connections += sum(1 for _ in network._between(host, BROKER_HOST))
            self._rng.choice(cuts)(host, BROKER_HOST)

    async def _read(self, number: int) -> None:
        consumer = ShareConsumer(
            TOPIC,
            bootstrap_servers=self._broker.bootstrap_servers,
            group_id=GROUP,
            client_id=f"member-{number}",
            max_poll_records=20,
            **CLIENT,
        )
        with_runtime(consumer, self._world.runtime(host_of(number)))
        async with consumer:
            async for _ in consumer:
                self.records += 1
                await anyio.sleep(self._rng.uniform(0, 0.2))

    async def _send(self) -> None:
        servers = self._broker.bootstrap_servers
        producer = Producer(bootstrap_servers=servers, client_id="sender")
        with_runtime(producer, self._world.runtime("10.0.1.1"))
        async with producer:
            while True:
                for number in range(RECORDS):
                    await producer.send(TOPIC, b"job", partition=number % PARTITIONS)
                await anyio.sleep(SEND_EACH_S)

    async def _watch(self) -> None:
        """Note locks of members without a session, and how long they stay."""
        since: dict[tuple[object, ...], float] = {}
        while True:
            await anyio.sleep(SAMPLE_EACH_S)
            now = self._world.now()
            orphans = {
                (each.key, each.first, each.last, each.member_id, each.deadline)
                for each in locked_records(self._broker)
                if not each.has_session
            }
            since = {orphan: since.get(orphan, now) for orphan in orphans}
            for orphan, began in since.items():
                self.longest_s = max(self.longest_s, now - began)
                if now - began > LEAKED_AFTER_S:
                    self.leaked.append(f"{orphan}, for {now - began:.1f} s")

    def _check_end(self) -> None:
        """Check that nothing is left of the members, which have closed."""
        manager = self._broker._running.share_partitions
        self.leaked += [str(each) for each in locked_records(self._broker)]
        for node_id in self._broker.nodes:
            sessions = manager.sessions(node_id)
            if sessions._sessions or sessions._keys:
                self.leaked.append(f"sessions of node {node_id}: {sessions._keys}")
        if manager._deadlines.next() != math.inf:
            self.leaked.append("a deadline of a lock")


def cut_connections(count: int, seed: int) -> CutConnections:
    """Run a simulation with this number of cut connections."""
    world = World(seed)
    run = CutConnections(world)
    world.run(partial(run.run, count), limit_s=count * VIRTUAL_S_PER_CUT + 1_000)
    run.leaked += world.left_behind()
    return run


def main(count: int, seed: int) -> int:
    """Print the result; return 1 if anything is left."""
    run = cut_connections(count, seed)
    print(f"{run.connections:,} connections cut, {run.records:,} records delivered")
    print(f"locks outlived their session for at most {run.longest_s:.1f} s")
    print(f"{len(run.leaked)} leaked", *run.leaked[:10], sep="\n")
    return int(bool(run.leaked))


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 0))

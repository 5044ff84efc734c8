"""Run an embedded broker with many nodes in its own process, apart from the clients' CPU.

    python -m benchmarks.scaling.cluster NODES TOPIC:PARTITIONS...

Prints the bootstrap servers when it is ready. Each partition has one record; partitions of topics
named "big..." have 320 of 100 KiB, and those of "empty..." none. The first partition of each topic
named "trickle..." gets TRICKLE_PER_SECOND more per second. The process ends with its standard
input.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import anyio
from anyio import to_thread

from aiokafkawire import Broker, Producer
from benchmarks.bench import cores

TRICKLE_PER_SECOND = 20
STOP_TIMEOUT_SECONDS = 20.0
VALUE = b"x" * 100
BIG_VALUE = b"x" * 100 * 1024
BIG_RECORDS = 320
"""Records of one partition of a big topic: 31 MiB."""


async def fill(producer: Producer, topics: Mapping[str, int]) -> None:
    for topic, count in topics.items():
        if topic.startswith("empty"):
            continue
        for partition in range(count):
            for _ in range(BIG_RECORDS if topic.startswith("big") else 1):
                value = BIG_VALUE if topic.startswith("big") else VALUE
                await producer.send(topic, value, partition=partition)
    await producer.flush()


async def trickle(producer: Producer, topics: list[str]) -> None:
    while topics:
        for topic in topics:
            await producer.send(topic, VALUE, partition=0)
        await anyio.sleep(1 / TRICKLE_PER_SECOND)


async def serve(nodes: int, topics: Mapping[str, int]) -> None:
    async with Broker(
        nodes=nodes, group_initial_rebalance_delay_ms=1_000, max_connections=20_000
    ) as broker:
        for name, partitions in topics.items():
            await broker.create_topic(name, partitions=partitions)
        async with (
            Producer(bootstrap_servers=broker.bootstrap_servers) as producer,
            anyio.create_task_group() as tasks,
        ):
            await fill(producer, topics)
            tasks.start_soon(
                trickle, producer, [name for name in topics if name.startswith("trickle")]
            )
            print(broker.bootstrap_servers, flush=True)
            await to_thread.run_sync(sys.stdin.read)
            tasks.cancel_scope.cancel()


@dataclass(frozen=True, slots=True)
class RunningCluster:
    bootstrap_servers: str
    pid: int


@contextmanager
def running(nodes: int, topics: Mapping[str, int]) -> Iterator[RunningCluster]:
    """Run a cluster on the broker's core until the block ends."""
    command = [sys.executable, "-m", "benchmarks.scaling.cluster", str(nodes)]
    command += [f"{name}:{count}" for name, count in topics.items()]
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
    )
    broker_core, _ = cores()
    if broker_core is not None:
        os.sched_setaffinity(process.pid, {broker_core})
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        servers = process.stdout.readline().strip()
        if not servers:
            raise RuntimeError(f"the cluster ended: {process.wait(STOP_TIMEOUT_SECONDS)}")
        yield RunningCluster(servers, process.pid)
    finally:
        process.stdin.close()
        try:
            process.wait(STOP_TIMEOUT_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()


def main() -> None:
    nodes, topics = int(sys.argv[1]), dict(entry.split(":") for entry in sys.argv[2:])
    anyio.run(serve, nodes, {name: int(count) for name, count in topics.items()})


if __name__ == "__main__":
    main()

"""Longest event loop steps of one group member with very many partitions.

    python -m benchmarks.scaling.stalls                       # 30,000 partitions: about a minute
    python -m benchmarks.scaling.stalls --partitions 100000
    python -m benchmarks.scaling.stalls --profile join        # where one phase spends its time

The member joins a group alone on an embedded broker in another process. A ticker beside it sleeps
for 1 ms again and again; a step is the time from one tick to the next, without that millisecond.
"CPU" is what the event loop's thread itself used in one step, to which other programs on the
machine add nothing. "collector" is the longest run of Python's garbage collector in the phase.
Exits with 1 if a step uses more CPU than the limit (--limit-ms).
"""

from __future__ import annotations

import argparse
import asyncio
import cProfile
import gc
import os
import pstats
import sys
import time
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import anyio

from aiokafkawire import Consumer, TopicPartition
from aiokafkawire.runtime import NEVER, checkpoint
from benchmarks.bench import cores
from benchmarks.scaling import cluster
from benchmarks.side import PROFILE_LINES
from benchmarks.ticker import TICK_S, Gap, LongestCollection, tick

PER_TOPIC = 1_000
FILLED_PARTITIONS = 300
"""Partitions with a record, in their own topic."""
FILLED = "filled"
EMPTY_PREFIX = "empty"
PER_NODE = 9_000
"""Partitions per broker: the embedded one keeps fetch sessions of up to 10,000."""
IDLE_S = 5.0
AUTO_COMMIT_MS = 1_000
TIMEOUT_S = 300.0
SLICE = 1_000
"""Partitions that the benchmark itself checks in one step."""


class Phase(NamedTuple):
    """Total seconds, and the longest step, CPU of a step and garbage collection, in seconds."""

    name: str
    seconds: float
    longest: float
    cpu: float
    collecting: float


class Recorder:
    """Measures phases with a ticker."""

    def __init__(self, profiled: str | None) -> None:
        self.phases: list[Phase] = []
        self._profiled = profiled
        self._gaps: list[Gap] = []
        self._collections = LongestCollection()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        gc.callbacks.append(self._collections)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(tick, self._gaps)
            yield
            tasks.cancel_scope.cancel()
        gc.callbacks.remove(self._collections)

    @asynccontextmanager
    async def phase(self, name: str) -> AsyncIterator[None]:
        await anyio.sleep(2 * TICK_S)
        self._gaps.clear()
        self._collections.longest = 0.0
        profile = cProfile.Profile() if name == self._profiled else None
        if profile is not None:
            profile.enable()
        began = time.perf_counter()
        yield
        seconds = time.perf_counter() - began
        if profile is not None:
            profile.disable()
            stats = pstats.Stats(profile, stream=sys.stderr)
            stats.sort_stats("tottime").print_stats(PROFILE_LINES)
        await anyio.sleep(2 * TICK_S)
        longest = max(gap.seconds for gap in self._gaps) - TICK_S
        cpu = max(gap.cpu_seconds for gap in self._gaps)
        self.phases.append(Phase(name, seconds, longest, cpu, self._collections.longest))


def rss_kib() -> int:
    """Resident memory at present."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") // 1024


def topics_of(partitions: int) -> dict[str, int]:
    """The topics: one with records, the others empty."""
    topics = {FILLED: min(FILLED_PARTITIONS, partitions)}
    left = partitions - topics[FILLED]
    while left:
        count = min(PER_TOPIC, left)
        topics[f"{EMPTY_PREFIX}{len(topics):04}"] = count
        left -= count
    return topics


async def wait_for_positions(consumer: Consumer) -> None:
    """Wait until each partition has a position, checking a part of them per step."""
    owned = consumer._running.assignment.values()
    for at in range(0, len(owned), SLICE):
        while any(partition.position is None for partition in owned[at : at + SLICE]):
            await consumer._running.notifier.wait(NEVER)
        await checkpoint()


async def measure(
    bootstrap_servers: str, topics: dict[str, int], profiled: str | None
) -> tuple[list[Phase], float]:
    """Return all phases, and the memory in KiB per partition."""
    total = sum(topics.values())
    recorder = Recorder(profiled)
    memory = rss_kib()
    consumer = Consumer(
        *topics,
        bootstrap_servers=bootstrap_servers,
        group_id=f"stalls-{uuid.uuid4().hex}",
        auto_offset_reset="earliest",
        auto_commit_interval_ms=AUTO_COMMIT_MS,
        max_poll_records=FILLED_PARTITIONS,
        default_api_timeout_ms=int(TIMEOUT_S * 1000),
    )
    async with recorder.running(), asyncio.timeout(TIMEOUT_S):
        async with recorder.phase("join"):
            await consumer.start()
            running: Any = consumer._running
            while len(running.assignment) < total:
                await consumer.getmany(timeout_ms=100, max_records=1)
        async with recorder.phase("positions"):
            await wait_for_positions(consumer)
        seen = 0
        async with recorder.phase("read"):
            while seen < topics[FILLED] - 1:
                found = await consumer.getmany(timeout_ms=5_000)
                seen += sum(map(len, found.values()))
        async with recorder.phase("idle"):
            await consumer.getmany(timeout_ms=IDLE_S * 1_000)
        memory = rss_kib() - memory
        offsets = {TopicPartition(name, n): 0 for name in topics for n in range(topics[name])}
        async with recorder.phase("commit of all"):
            await consumer.commit(offsets)
        async with recorder.phase("commit()"):
            await consumer.commit()
        async with recorder.phase("auto-commit of all"):
            # From now on each position differs from the committed offset.
            for tp in offsets:
                partition = running.assignment.get(tp)
                partition.committed_offset = None
            await anyio.sleep(AUTO_COMMIT_MS / 1_000)
            while running.group.offsets.pending_offsets(offsets):
                await consumer.getmany(timeout_ms=500)
        async with recorder.phase("stop"):
            await consumer.stop()
    return recorder.phases, memory / total


def table(phases: list[Phase], partitions: int, kib: float) -> list[str]:
    """Return the figures as a table."""
    lines = [
        f"{partitions:,} partitions, {kib:.1f} KiB each\n",
        "| phase | seconds | longest step, ms | its CPU, ms | collector, ms |",
        "|---|---|---|---|---|",
    ]
    lines += [
        f"| {phase.name} | {phase.seconds:.1f} | {phase.longest * 1e3:.0f} |"
        f" {phase.cpu * 1e3:.0f} | {phase.collecting * 1e3:.0f} |"
        for phase in phases
    ]
    return lines


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--partitions", type=int, default=30_000)
    parser.add_argument("--limit-ms", type=float, default=50.0)
    parser.add_argument("--profile", metavar="PHASE")
    options = parser.parse_args()
    topics = topics_of(options.partitions)
    nodes = options.partitions // PER_NODE + 1
    with cluster.running(nodes, topics) as running:
        _, core = cores()
        if core is not None:
            os.sched_setaffinity(0, {core})
        phases, kib = asyncio.run(measure(running.bootstrap_servers, topics, options.profile))
    print("\n".join(table(phases, options.partitions, kib)))
    return 0 if max(phase.cpu for phase in phases) * 1e3 <= options.limit_ms else 1


if __name__ == "__main__":
    sys.exit(main())

"""Measure one consumer of many partitions, in its own process: the CPU of each of its actions.

    python -m benchmarks.scaling.client BOOTSTRAP PREFIX PARTITIONS [--core N] [--profile ACTION]

Prints CPU in ms as one line of JSON. The topics PREFIX-0, PREFIX-1 … have ten partitions each with
one record in each; the first partition of "tricklePREFIX" gets records continuously.
"""

from __future__ import annotations

import argparse
import asyncio
import cProfile
import json
import os
import pstats
import statistics
import sys
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from aiokafkawire import Consumer
from aiokafkawire.types import TopicPartition
from benchmarks.scaling.assigning import PER_TOPIC
from benchmarks.scaling.curve import gc_disabled
from benchmarks.side import PROFILE_LINES, peak_mib

REPEATS = 5
POLLS = 60
QUIET_S = 1.0
"""After this time no fetch is in flight."""
STEP_TIMEOUT_S = 60.0


def names(prefix: str, partitions: int) -> list[str]:
    """Return the topics of a size, with one record in each partition."""
    return [f"{prefix}-{number}" for number in range(partitions // PER_TOPIC)]


def trickle_topic(prefix: str) -> str:
    """Return the topic of a size that gets records continuously."""
    return f"trickle{prefix}"


class Meter:
    """Measures the CPU time of blocks, in ms by name."""

    def __init__(self, profiled: str | None) -> None:
        self.found: dict[str, float] = {}
        self._profiled = profiled

    @asynccontextmanager
    async def of(self, name: str, times: int = 1) -> AsyncIterator[None]:
        profile = cProfile.Profile() if name == self._profiled else None
        if profile is not None:
            profile.enable()
        began = time.process_time()
        yield
        self.found[name] = (time.process_time() - began) / times * 1000
        if profile is not None:
            profile.disable()
            pstats.Stats(profile, stream=sys.stderr).sort_stats("tottime").print_stats(
                PROFILE_LINES
            )

    async def median(self, name: str, action: Callable[[], Awaitable[object]]) -> None:
        found = []
        for _ in range(REPEATS):
            with gc_disabled():
                async with self.of(name):
                    await action()
            found.append(self.found[name])
        self.found[name] = statistics.median(found)


async def measure(options: argparse.Namespace) -> dict[str, float]:
    meter = Meter(options.profile)
    topics = names(options.prefix, options.partitions)
    consumer = Consumer(
        *topics,
        bootstrap_servers=options.bootstrap,
        group_id=f"scale-{uuid.uuid4().hex}",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        max_poll_records=10_000,
    )
    async with consumer, asyncio.timeout(STEP_TIMEOUT_S * 6):
        cluster: Any = consumer._running.cluster
        seen = 0
        async with meter.of("start, until all first records are read"):
            while seen < options.partitions:
                found = await consumer.getmany(timeout_ms=10_000)
                seen += sum(map(len, found.values()))
        consumer.pause(*consumer.assignment())
        await asyncio.sleep(QUIET_S)
        await meter.median("metadata refresh", cluster._metadata_updater._refresh)
        async with meter.of("metadata refresh, with the collector of garbage", REPEATS):
            for _ in range(REPEATS):
                await cluster._metadata_updater._refresh()
        offsets = {TopicPartition(name, n): 1 for name in topics for n in range(PER_TOPIC)}
        await meter.median("commit of all", lambda: consumer.commit(offsets))
        await meter.median("commit without news", consumer.commit)
        async with meter.of("a node's leaders move (KIP-951)"):
            move_leaders(cluster)
            await asyncio.sleep(0.01)
        consumer.resume(*consumer.assignment())
        await consumer.getmany(timeout_ms=1_000)
        began = time.monotonic()
        async with meter.of("idle, a second of"):
            await consumer.getmany(timeout_ms=4_000)
        meter.found["idle, a second of"] /= time.monotonic() - began
    await polling(options, meter, topics)
    return meter.found | {"peak RSS": peak_mib()}


def move_leaders(cluster: Any) -> None:
    """Report the next node as the new leader of all partitions of one node."""
    metadata = cluster.metadata
    old, new = sorted(metadata.nodes)[:2]
    for topic in metadata.topics.values():
        for number, partition in topic.partitions.items():
            if partition.leader_id == old:
                tp = TopicPartition(topic.name, number)
                cluster.update_leader(tp, new, partition.leader_epoch + 1)


async def polling(options: argparse.Namespace, meter: Meter, topics: list[str]) -> None:
    """Poll while one partition gets records and all others get none."""
    first = TopicPartition(trickle_topic(options.prefix), 0)
    partitions = [TopicPartition(name, n) for name in topics for n in range(PER_TOPIC)]
    async with (
        Consumer(bootstrap_servers=options.bootstrap, auto_offset_reset="latest") as consumer,
        asyncio.timeout(STEP_TIMEOUT_S),
    ):
        consumer.assign(first, *partitions[1:])
        await consumer.seek_to_end(*consumer.assignment())
        for _ in range(20):  # until every node has a fetch session
            await consumer.getone(timeout_ms=5_000)
        async with meter.of("poll, one partition of all has a record", POLLS):
            for _ in range(POLLS):
                await consumer.getone(timeout_ms=5_000)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("bootstrap")
    parser.add_argument("prefix")
    parser.add_argument("partitions", type=int)
    parser.add_argument("--core", type=int)
    parser.add_argument("--profile", metavar="ACTION")
    options = parser.parse_args()
    if options.core is not None:
        os.sched_setaffinity(0, {options.core})
    print(json.dumps(asyncio.run(measure(options))), flush=True)


if __name__ == "__main__":
    main()

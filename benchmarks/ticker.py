"""Measure how long a consumer at full rate blocks the event loop: the gaps of a ticker.

    python -m benchmarks.ticker                    # 1 MiB messages in zstd, and other heavy loads
    python -m benchmarks.ticker --only zstd-1MiB --loop uvloop

Real Kafka runs on one core, the consumer and its ticker in one event loop on another. The ticker
sleeps for 1 ms repeatedly; a gap is the time from one tick to the next. Next to it are the CPU time
of the event loop's thread in one gap, which other programs do not affect, and the longest run of
Python's garbage collector. Objects that exist before the consumer are frozen, as an application may
do after its start, so that the collector does not visit them. Exits with 1 if a gap is over the
limit.
"""

from __future__ import annotations

import argparse
import gc
import importlib
import os
import random
import sys
import time
from dataclasses import dataclass
from typing import NamedTuple

import anyio

from aiokafkawire import Consumer, Producer, TopicPartition
from benchmarks.bench import BROKER_JAVA_OPTIONS, BROKER_PROPERTIES, cores, pinned
from benchmarks.load import PARTITIONS, POLL_MS, Incomplete
from tests.brokers.kafka import Kafka

TICK_S = 0.001
LIMIT_S = 0.010
MIB = 1024 * 1024
WORDS = 4096
MAX_MESSAGE_BYTES = 64 * MIB


@dataclass(frozen=True, slots=True)
class Load:
    """The contents of the topic; `arrow` reads each batch as an Arrow table."""

    compression: str
    value_bytes: int
    messages: int
    batch_bytes: int = 16 * 1024
    arrow: bool = False


class Gap(NamedTuple):
    """The time from one tick to the next, and the CPU time of the event loop's thread."""

    seconds: float
    cpu_seconds: float


LOADS = {
    "zstd-1MiB": Load("zstd", MIB, 600),
    "gzip-1MiB": Load("gzip", MIB, 200),
    "none-1MiB": Load("none", MIB, 600),
    "zstd-16MiB": Load("zstd", 16 * MIB, 24),
    "zstd-100B-large-batches": Load("zstd", 100, 600_000, batch_bytes=8 * MIB),
    "none-100B-one-record-batches": Load("none", 100, 60_000, batch_bytes=1),
    "arrow-zstd-10KiB": Load("zstd", 10 * 1024, 60_000, batch_bytes=MIB, arrow=True),
}


def values(load: Load) -> list[bytes]:
    """Return values that compress about as well as text."""
    rng = random.Random(1)
    words = [rng.randbytes(rng.randint(2, 9)) for _ in range(WORDS)]
    found = []
    for _ in range(8):
        text = b" ".join(rng.choices(words, k=load.value_bytes // 5 + 1))
        found.append(text[: load.value_bytes])
    return found


async def fill(bootstrap_servers: str, topic: str, load: Load) -> None:
    options = {} if load.compression == "none" else {"compression_type": load.compression}
    some = values(load)
    async with Producer(
        bootstrap_servers=bootstrap_servers,
        batch_size_bytes=load.batch_bytes,
        max_request_size_bytes=MAX_MESSAGE_BYTES,
        buffer_memory_bytes=4 * MAX_MESSAGE_BYTES,
        linger_ms=0 if load.batch_bytes == 1 else 20,
        **options,
    ) as producer:
        for number in range(load.messages):
            await producer.send(topic, some[number % len(some)], partition=number % PARTITIONS)
        await producer.flush()


async def consume(consumer: Consumer, load: Load) -> int:
    """Read all values and return their bytes."""
    seen = size = 0
    if load.arrow:
        # An application imports it before it reads.
        importlib.import_module("aiokafkawire.records.arrow")
    while seen < load.messages:
        if load.arrow:
            with anyio.fail_after(POLL_MS / 1000):
                table = (await anext(consumer.batches())).to_arrow()
            seen += table.num_rows
            size += table.nbytes
            continue
        found = await consumer.getmany(timeout_ms=POLL_MS)
        if not found:
            raise Incomplete(f"no message within {POLL_MS} ms, after {seen} of {load.messages}")
        for records in found.values():
            for record in records:
                size += len(record.value or b"")
            seen += len(records)
    return size


async def tick(gaps: list[Gap]) -> None:
    before, cpu_before = time.perf_counter(), time.thread_time()
    while True:
        await anyio.sleep(TICK_S)
        now, cpu = time.perf_counter(), time.thread_time()
        gaps.append(Gap(now - before, cpu - cpu_before))
        before, cpu_before = now, cpu


class LongestCollection:
    """Tracks the longest run of the garbage collector."""

    def __init__(self) -> None:
        self.longest = self._began = 0.0

    def __call__(self, phase: str, _: object) -> None:
        now = time.perf_counter()
        if phase == "start":
            self._began = now
        else:
            self.longest = max(self.longest, now - self._began)


class Measured(NamedTuple):
    """The gaps during the read, its duration, the bytes, and the longest garbage collection."""

    gaps: list[Gap]
    seconds: float
    size: int
    collecting: float


async def measure(bootstrap_servers: str, topic: str, load: Load) -> Measured:
    gaps: list[Gap] = []
    collections = LongestCollection()
    gc.collect()
    gc.freeze()
    gc.callbacks.append(collections)
    async with Consumer(
        bootstrap_servers=bootstrap_servers, auto_offset_reset="earliest"
    ) as consumer:
        consumer.assign(*(TopicPartition(topic, number) for number in range(PARTITIONS)))
        async with anyio.create_task_group() as group:
            group.start_soon(tick, gaps)
            began = time.perf_counter()
            size = await consume(consumer, load)
            seconds = time.perf_counter() - began
            group.cancel_scope.cancel()
    gc.callbacks.remove(collections)
    gc.unfreeze()
    return Measured(gaps, seconds, size, collections.longest)


def report(name: str, measured: Measured) -> bool:
    gaps, seconds, size, collecting = measured
    largest = max(gap.seconds for gap in gaps)
    own = max(gap.cpu_seconds for gap in gaps)
    late = sum(gap.seconds > LIMIT_S for gap in gaps)
    most = sorted(gap.seconds for gap in gaps)[len(gaps) * 99 // 100]
    outcome = "reached" if largest <= LIMIT_S else "MISSED"
    print(
        f"| {name} | {size / seconds / MIB:,.0f} | {len(gaps):,} | {most * 1e3:.1f}"
        f" | {largest * 1e3:.1f} | {own * 1e3:.1f} | {collecting * 1e3:.1f} | {late} | {outcome} |",
        flush=True,
    )
    return largest <= LIMIT_S


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", choices=sorted(LOADS), nargs="*")
    parser.add_argument("--loop", choices=("asyncio", "uvloop", "trio"), default="asyncio")
    options = parser.parse_args()
    backend = "trio" if options.loop == "trio" else "asyncio"
    backend_options = {"use_uvloop": True} if options.loop == "uvloop" else {}
    broker_core, client_core = cores()
    properties = BROKER_PROPERTIES | {"message.max.bytes": str(MAX_MESSAGE_BYTES)}
    kafka = Kafka(properties=properties, java_options=BROKER_JAVA_OPTIONS)
    reached = True
    try:
        pinned(kafka.start, broker_core)
        if client_core is not None:
            os.sched_setaffinity(0, {client_core})
        print(f"{options.loop}: gaps between the ticks of a {TICK_S * 1e3:.0f} ms ticker, in ms\n")
        print(
            "| load | MiB/s | ticks | 99 of 100 within | largest | its most CPU"
            " | collector | over 10 | |"
        )
        print("|---|---|---|---|---|---|---|---|---|")
        for name in options.only or LOADS:
            load = LOADS[name]
            kafka.create_topic(name, partitions=PARTITIONS)
            servers = kafka.bootstrap_servers
            anyio.run(fill, servers, name, load, backend=backend, backend_options=backend_options)
            measured = anyio.run(
                measure, servers, name, load, backend=backend, backend_options=backend_options
            )
            reached &= report(name, measured)
    finally:
        kafka.close()
    return 0 if reached else 1


if __name__ == "__main__":
    sys.exit(main())

"""Measure many clients or many waiting tasks in one process; print the result as JSON.

    python -m benchmarks.scaling.worker ACTION BOOTSTRAP COUNT [--core N] [--stall PID]

`--stall` names the process of the cluster, for actions that need a broker that does not answer.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import gc
import json
import os
import signal
import statistics
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

from aiokafkawire import Consumer, Producer
from aiokafkawire.cluster.metadata_updater import MetadataUpdater
from aiokafkawire.errors import BufferFull

MIB = 2**20
TOPIC = "one"
BIG_TOPIC = "big"
GROUP_TOPICS = tuple(f"group-{number}" for number in range(100))
"""Topics of ten partitions each."""
AT_ONCE = 50
"""Consumers that start at the same time."""
WATCH_S = 20.0
STALL_S = 5.0
START_TIMEOUT_S = 200.0
JOINS = 5
PAUSE_S = 2.0
"""In this time the other members take over what a member gave up."""
SMALL = b"x" * 20
BUFFER_BYTES = 32 * MIB
FETCH_BYTES = 8 * MIB
PARTITION_FETCH_BYTES = MIB

Found = dict[str, float]


def resident_mib(field: str = "VmRSS:") -> float:
    """Return the resident memory of this process now, or its peak (VmHWM:)."""
    gc.collect()
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith(field))


def reset_peak() -> None:
    Path("/proc/self/clear_refs").write_text("5")


def make_consumer(bootstrap: str, group: str, topics: Sequence[str]) -> Consumer:
    return Consumer(*topics, bootstrap_servers=bootstrap, group_id=group)


@asynccontextmanager
async def started(consumers: Sequence[Consumer]) -> AsyncIterator[None]:
    """Start the consumers in portions; stop all at the end."""
    try:
        for start in range(0, len(consumers), AT_ONCE):
            await asyncio.gather(*(each.start() for each in consumers[start : start + AT_ONCE]))
        yield
    finally:
        for start in range(0, len(consumers), AT_ONCE):
            await asyncio.gather(*(each.stop() for each in consumers[start : start + AT_ONCE]))


def total_requests(consumers: Sequence[Consumer]) -> float:
    return sum(each.metrics()["requests_total"] for each in consumers)


async def idle(bootstrap: str, count: int, cluster: int) -> Found:
    """Measure consumers in their own groups, each waiting in `getone` without records."""
    before = resident_mib()
    began_cpu = time.process_time()
    consumers = [
        make_consumer(bootstrap, f"idle-{uuid.uuid4().hex}", [TOPIC]) for _ in range(count)
    ]
    async with started(consumers):
        waiting = [asyncio.create_task(each.getone()) for each in consumers]
        try:
            async with asyncio.timeout(START_TIMEOUT_S):
                while not all(each.assignment() for each in consumers):  # noqa: ASYNC110
                    await asyncio.sleep(0.2)
            started_cpu = time.process_time() - began_cpu
            await asyncio.sleep(5)
            began, began_cpu, requests = (
                time.monotonic(),
                time.process_time(),
                total_requests(consumers),
            )
            await asyncio.sleep(WATCH_S)
            seconds = time.monotonic() - began
            cpu, requests = time.process_time() - began_cpu, total_requests(consumers) - requests
            resident = resident_mib()
        finally:
            for task in waiting:
                task.cancel()
            await asyncio.wait(waiting)
    return {
        "start, ms of CPU a consumer": started_cpu / count * 1000,
        "RSS, KiB a consumer": (resident - before) / count * 1024,
        "CPU, ms a consumer and minute": cpu / count / seconds * 60_000,
        "requests a second": requests / seconds,
        "core busy, %": cpu / seconds * 100,
    }


async def group(bootstrap: str, count: int, cluster: int) -> Found:
    """Measure members of one group that share 1,000 partitions, until all are assigned."""
    name = f"group-{uuid.uuid4().hex}"
    began = time.process_time()
    consumers = [make_consumer(bootstrap, name, GROUP_TOPICS) for _ in range(count)]

    def owned() -> int:
        return sum(len(each.assignment()) for each in consumers)

    async with started(consumers):
        waiting = [asyncio.create_task(each.getone()) for each in consumers]
        try:
            async with asyncio.timeout(START_TIMEOUT_S):
                while owned() < 10 * len(GROUP_TOPICS):  # noqa: ASYNC110
                    await asyncio.sleep(0.1)
            cpu = time.process_time() - began
        finally:
            for task in waiting:
                task.cancel()
            await asyncio.wait(waiting)
    return {"join": cpu * 1000}


async def join(bootstrap: str, count: int, cluster: int) -> Found:
    """Measure a member that joins a group of the consumer protocol, until it owns partitions.

    It gives its partitions up before it joins again. A new subscription refreshes the metadata of
    its topics, with all their partitions; `client` measures that, and here it does not count.
    """
    from benchmarks.scaling.coordinator import GROUP, NAMES  # noqa: PLC0415 - it imports the broker

    joins = []
    refresh = 0.0
    apply = MetadataUpdater._apply_response

    def timed(*arguments: Any, **options: Any) -> Any:
        nonlocal refresh
        began = time.process_time()
        try:
            return apply(*arguments, **options)
        finally:
            refresh += time.process_time() - began

    MetadataUpdater._apply_response = timed  # type: ignore[method-assign]
    async with Consumer(
        bootstrap_servers=bootstrap, group_id=GROUP, group_protocol="consumer"
    ) as consumer:
        for _ in range(JOINS):
            began, refresh = time.process_time(), 0.0
            consumer.subscribe(NAMES)
            waiting = asyncio.create_task(consumer.getone())
            async with asyncio.timeout(START_TIMEOUT_S):
                while len(consumer.assignment()) < count:  # noqa: ASYNC110
                    await asyncio.sleep(0.05)
            joins.append(time.process_time() - began - refresh)
            waiting.cancel()
            await asyncio.wait([waiting])
            consumer.unsubscribe()
            await asyncio.sleep(PAUSE_S)
            assert not consumer.assignment()
    return {"joins, until it owns": statistics.median(joins) * 1000}


@contextmanager
def stalled(cluster: int) -> Iterator[None]:
    """Stop the cluster's process: connections stay open, but no request is answered."""
    os.kill(cluster, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(cluster, signal.SIGCONT)


async def deliveries(bootstrap: str, count: int, cluster: int) -> Found:
    """Measure a task per delivery while the broker does not answer."""
    async with Producer(
        bootstrap_servers=bootstrap, buffer_memory_bytes=BUFFER_BYTES, linger_ms=5
    ) as producer:
        await producer.send_and_wait(TOPIC, SMALL)
        before = resident_mib()
        with stalled(cluster):
            sent = []
            for number in range(count):
                sent.append(producer.send_nowait(TOPIC, SMALL))
                if number % 1000 == 0:
                    await asyncio.sleep(0)
            held = resident_mib()

            async def wait(delivery: Awaitable[Any]) -> Any:
                return await delivery

            tasks = [asyncio.create_task(wait(delivery)) for delivery in sent]
            await asyncio.sleep(0.5)
            awaited = resident_mib()
        began, began_cpu = time.monotonic(), time.process_time()
        await asyncio.wait(tasks)
        seconds, cpu = time.monotonic() - began, time.process_time() - began_cpu
        offsets = {(known.partition, known.offset) for known in (task.result() for task in tasks)}
        assert len(offsets) == count
    return {
        "RSS of all, MiB": awaited - before,
        "bytes a delivery with its record": (held - before) * MIB / count,
        "bytes more a task that awaits it": (awaited - held) * MIB / count,
        "CPU to wake all, ms": cpu * 1000,
        "time to wake all, ms": seconds * 1000,
    }


async def tasks(bootstrap: str, count: int, cluster: int) -> Found:
    """Measure tasks that only wait for an event: asyncio's share of the cost."""
    before = resident_mib()
    event = asyncio.Event()

    async def wait() -> None:
        await event.wait()

    waiting = [asyncio.create_task(wait()) for _ in range(count)]
    await asyncio.sleep(0)
    taken = resident_mib() - before
    began = time.process_time()
    event.set()
    await asyncio.wait(waiting)
    return {
        "RSS of all, MiB": taken,
        "bytes a task": taken * MIB / count,
        "CPU to wake all, ms": (time.process_time() - began) * 1000,
    }


async def full_buffer(bootstrap: str, count: int, cluster: int) -> Found:
    """Measure a producer's memory with a full buffer and a broker that does not answer."""
    value = bytes(count)
    async with Producer(
        bootstrap_servers=bootstrap, buffer_memory_bytes=BUFFER_BYTES, close_timeout_ms=20_000
    ) as producer:
        await producer.send_and_wait(TOPIC, value)
        before = resident_mib()
        reset_peak()
        with stalled(cluster):
            sent = 0
            with contextlib.suppress(BufferFull):
                while True:
                    producer.send_nowait(TOPIC, value)
                    sent += 1
                    if sent % 500 == 0:
                        await asyncio.sleep(0)
            await asyncio.sleep(STALL_S)
            taken = resident_mib("VmHWM:") - before
        await producer.flush()
    return {"bound, MiB": BUFFER_BYTES / MIB, "peak growth, MiB": taken, "records": sent}


async def stalled_application(bootstrap: str, count: int, cluster: int) -> Found:
    """Measure a consumer's memory while the application stalls after one call."""
    async with Consumer(
        BIG_TOPIC,
        bootstrap_servers=bootstrap,
        auto_offset_reset="earliest",
        fetch_max_bytes=FETCH_BYTES,
        max_partition_fetch_bytes=PARTITION_FETCH_BYTES,
    ) as consumer:
        before = resident_mib()
        reset_peak()
        found = await consumer.getmany(timeout_ms=10_000, max_records=1)
        assert found
        await asyncio.sleep(STALL_S)
        taken = resident_mib("VmHWM:") - before
        nodes = len({consumer._running.cluster.metadata.leader(tp) for tp in consumer.assignment()})
    return {"bound, MiB": fetch_bound(nodes), "peak growth, MiB": taken}


def fetch_bound(nodes: int) -> float:
    """Return the bound: per node one response in use and one prefetched."""
    return 2 * nodes * FETCH_BYTES / MIB


async def slow_application(bootstrap: str, count: int, cluster: int) -> Found:
    """Measure a consumer's memory while the application reads slowly."""
    async with Consumer(
        BIG_TOPIC,
        bootstrap_servers=bootstrap,
        auto_offset_reset="earliest",
        fetch_max_bytes=FETCH_BYTES,
        max_partition_fetch_bytes=PARTITION_FETCH_BYTES,
        max_poll_records=10,
    ) as consumer:
        before = resident_mib()
        reset_peak()
        seen = 0
        while seen < count:
            found = await consumer.getmany(timeout_ms=10_000)
            assert found
            seen += sum(map(len, found.values()))
        taken = resident_mib("VmHWM:") - before
    return {"bound, MiB": fetch_bound(1), "peak growth, MiB": taken, "records": seen}


ACTIONS: Mapping[str, Callable[[str, int, int], Awaitable[Found]]] = {
    "idle": idle,
    "group": group,
    "join": join,
    "deliveries": deliveries,
    "tasks": tasks,
    "full-buffer": full_buffer,
    "stalled-application": stalled_application,
    "slow-application": slow_application,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("action", choices=ACTIONS)
    parser.add_argument("bootstrap")
    parser.add_argument("count", type=int)
    parser.add_argument("--core", type=int)
    parser.add_argument("--stall", type=int, default=0)
    options = parser.parse_args()
    if options.core is not None:
        os.sched_setaffinity(0, {options.core})
    action = ACTIONS[options.action](options.bootstrap, options.count, options.stall)
    print(json.dumps(asyncio.run(action)), flush=True)  # type: ignore[arg-type]


if __name__ == "__main__":
    main()

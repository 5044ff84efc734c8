"""Measure one client performing one action, in its own process; print the result as a line of JSON.

    python -m benchmarks.side CLIENT ACTION BOOTSTRAP TOPIC MESSAGES [--core N] [--profile]

An unmeasured warm-up comes first: it connects and fills metadata and caches.
"""

from __future__ import annotations

import argparse
import asyncio
import cProfile
import importlib
import json
import os
import pstats
import resource
import statistics
import sys
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from benchmarks import transacting
from benchmarks.load import WARM_UP, Setup, Side, Work

CLIENTS = {
    "aiokafkawire": "ours",
    "aiokafka": "aiokafka",
    "confluent-kafka": "confluent",
    "kafka-python": "kafka_python",
    "Java": "java",
}
PROFILE_LINES = 35


def transaction_side(client: str, action: str) -> Side | None:
    side = transacting.SIDES.get((client, action))
    if side is None:
        return None

    @asynccontextmanager
    async def opened(setup: Setup) -> AsyncIterator[Work]:
        async with side(setup.bootstrap_servers, setup.topic) as work:
            yield work

    return opened


def peak_mib() -> float:
    """Return the peak memory of this process; `ru_maxrss` may be that of the parent process."""
    status = Path("/proc/self/status")
    if not status.exists():
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    (line,) = (line for line in status.read_text().splitlines() if line.startswith("VmHWM:"))
    return int(line.split()[1]) / 1024


def cpu_seconds_of(pid: int | None) -> float | None:
    """Return the CPU time of another process, or None if the system does not report it."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def measure(
    side: Side, setup: Setup, messages: int, *, profiled: bool, broker: int | None
) -> dict[str, Any]:
    async with side(setup) as work:
        warm_up = await work(int(messages * WARM_UP))
        setup.latencies_s.clear()
        profile = cProfile.Profile() if profiled else None
        if profile is not None:
            profile.enable()
        broker_began = cpu_seconds_of(broker)
        began, cpu_began = time.perf_counter(), time.process_time()
        done = await work(messages - warm_up)
        seconds, cpu_seconds = time.perf_counter() - began, time.process_time() - cpu_began
        broker_ended = cpu_seconds_of(broker)
        if profile is not None:
            profile.disable()
            pstats.Stats(profile, stream=sys.stderr).sort_stats("tottime").print_stats(
                PROFILE_LINES
            )
    found = {"messages": done, "seconds": seconds, "cpu_seconds": cpu_seconds}
    found |= {"rss_mib": peak_mib(), "busy": cpu_seconds / seconds}
    if broker_began is not None and broker_ended is not None:
        found["broker_busy"] = (broker_ended - broker_began) / seconds
    if setup.latencies_s:
        cuts = statistics.quantiles(setup.latencies_s, n=100)
        found |= {"p50_ms": cuts[49] * 1000, "p99_ms": cuts[98] * 1000}
    return found


def choose_runner(loop: str) -> Callable[[Coroutine[Any, Any, Any]], Any]:
    if loop == "uvloop":
        import uvloop  # noqa: PLC0415 - not on every system

        return uvloop.run
    return asyncio.run


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("client", choices=CLIENTS)
    parser.add_argument("action")
    parser.add_argument("bootstrap")
    parser.add_argument("topic")
    parser.add_argument("messages", type=int)
    parser.add_argument("--core", type=int)
    parser.add_argument(
        "--broker", type=int, metavar="PID", help="process of the broker, to report its CPU"
    )
    parser.add_argument("--compression", default="none")
    parser.add_argument("--authority", metavar="FILE", help="connect with TLS and trust this")
    parser.add_argument("--loop", choices=("asyncio", "uvloop"), default="asyncio")
    parser.add_argument("--profile", action="store_true")
    options = parser.parse_args()
    if options.core is not None:
        os.sched_setaffinity(0, {options.core})
    setup = Setup(options.bootstrap, options.topic, options.compression, options.authority)
    client = importlib.import_module(f"benchmarks.clients.{CLIENTS[options.client]}")
    if options.client == "Java":
        found = client.measure(setup, options.action, options.messages)
    else:
        side = transaction_side(options.client, options.action) or client.SIDES[options.action]
        working = measure(
            side, setup, options.messages, profiled=options.profile, broker=options.broker
        )
        found = choose_runner(options.loop)(working)
    print(json.dumps(found | {"about": client.about()}), flush=True)


if __name__ == "__main__":
    main()

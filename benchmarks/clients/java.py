"""Kafka's performance tools: they print the rate; CPU and memory are those of the process."""

from __future__ import annotations

import asyncio
import re
import resource
import subprocess
from collections.abc import Callable, Mapping
from functools import cache

from benchmarks.clients import common
from benchmarks.load import (
    BATCH_BYTES,
    BUFFER_BYTES,
    FETCH_BYTES,
    LINGER_MS,
    VALUE,
    WARM_UP,
    Incomplete,
    Setup,
)
from tests.brokers.kafka import DEFAULT_VERSION
from tests.brokers.releases import RELEASES, fetch, java_for

TIMEOUT_SECONDS = 120.0
_RATE = re.compile(r"([\d.]+) records/sec")


def about() -> str:
    return f"kafka-clients {DEFAULT_VERSION}, CPU with the JVM's start"


def produce(setup: Setup, count: int) -> tuple[float, float]:
    """Return messages and seconds. The tool warms up with a small first part."""
    settings = {
        "acks": "all",
        "enable.idempotence": "true",
        "linger.ms": LINGER_MS,
        "batch.size": BATCH_BYTES,
        "buffer.memory": BUFFER_BYTES,
        "compression.type": setup.compression,
    }
    output = _run(
        "org.apache.kafka.tools.ProducerPerformance",
        *("--bootstrap-server", setup.bootstrap_servers, "--topic", setup.topic),
        *("--num-records", str(count), "--record-size", str(len(VALUE)), "--throughput", "-1"),
        *("--warmup-records", str(int(count * WARM_UP))),
        *("--command-property", *(f"{name}={value}" for name, value in settings.items())),
    )
    rates = _RATE.findall(output)
    if not rates:
        raise Incomplete(f"the tool printed no rate: {output}")
    return count, count / float(rates[-1])


def consume(setup: Setup, count: int) -> tuple[float, float]:
    """Return messages and the seconds of fetching, without joining the group."""
    output = _run(
        "org.apache.kafka.tools.ConsumerPerformance",
        *("--bootstrap-server", setup.bootstrap_servers, "--topic", setup.topic),
        *("--num-records", str(count), "--fetch-size", str(FETCH_BYTES), "--hide-header"),
    )
    fields = printed(output, 10)
    messages, rate = float(fields[4]), float(fields[9])
    return messages, messages / rate


def share(setup: Setup, count: int) -> tuple[float, float]:
    """Return messages and the seconds of a member of a share group."""
    output = _run(
        "org.apache.kafka.tools.ShareConsumerPerformance",
        *("--bootstrap-server", setup.bootstrap_servers, "--topic", setup.topic),
        *("--group", asyncio.run(common.new_share_group(setup))),
        *("--num-records", str(count), "--hide-header"),
        # Of the whole run, not only between records.
        *("--timeout", str(round(TIMEOUT_SECONDS * 1000))),
    )
    fields = printed(output, 7)
    messages, rate = float(fields[5]), float(fields[4])
    return messages, messages / rate


def printed(output: str, count: int) -> list[str]:
    fields = [field.strip() for field in output.strip().splitlines()[-1].split(",")]
    if len(fields) != count:
        raise Incomplete(f"the tool printed no rate: {output}")
    return fields


@cache
def _java() -> tuple[str, ...]:
    release = RELEASES[DEFAULT_VERSION]
    quiet = "-Dorg.slf4j.simpleLogger.defaultLogLevel=error"
    return str(java_for(release)), "-Xmx512m", quiet, "-cp", f"{fetch(release)}/*"


def _run(tool: str, *arguments: str) -> str:
    done = subprocess.run(
        (*_java(), tool, *arguments),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
        timeout=TIMEOUT_SECONDS,
        check=True,
    )
    return done.stdout


def measure(setup: Setup, action: str, count: int) -> dict[str, float]:
    _java()
    before = cpu_seconds()
    messages, seconds = ACTIONS[action](setup, count)
    return {
        "messages": messages,
        "seconds": seconds,
        "cpu_seconds": cpu_seconds() - before,
        "rss_mib": resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024,
    }


def cpu_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


ACTIONS: Mapping[str, Callable[[Setup, int], tuple[float, float]]] = {
    "produce": produce,
    "consume": consume,
    "share": share,
}

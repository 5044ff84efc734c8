"""aiokafkawire beside aiokafka against real Kafka, in interleaved pairs.

    python -m benchmarks.compare                        # what `make bench` runs
    python -m benchmarks.compare --pairs 1 --only consume
    python -m benchmarks.compare --profile aiokafkawire produce

The broker is pinned to one core and the client to another. Each measurement is a process of its
own; the two of a pair run one right after the other, and every other pair in the opposite order.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import confluent_kafka

from benchmarks.load import BATCH_BYTES, LINGER_MS, MAX_RECORDS, PARTITIONS, VALUE
from tests.brokers.kafka import Kafka

THEIRS, OURS = "aiokafka", "aiokafkawire"
MESSAGES = {"produce": 400_000, "consume": 2_000_000}
AIMS = {"produce": 0.7, "consume": 1.0}
"""The least share of aiokafka's messages a second that our client is to reach, uncompiled."""

SIDE_TIMEOUT_SECONDS = 120.0
FILL_TIMEOUT_SECONDS = 60.0
BROKER_PROPERTIES = {"log.segment.bytes": "268435456"}


@dataclass(frozen=True, slots=True)
class Result:
    per_second: float
    cpu_us_per_message: float


class Bench:
    """A running broker, the cores, and the topic that consumers read."""

    def __init__(self, kafka: Kafka, core: int | None) -> None:
        self._kafka = kafka
        self._core = core
        self._filled: dict[int, str] = {}

    @property
    def bootstrap_servers(self) -> str:
        return self._kafka.bootstrap_servers

    def run(self, client: str, action: str, messages: int, profile: bool = False) -> Result:
        reads = action.startswith("consume")
        topic = self._topic_with(messages) if reads else self.new_topic()
        result = self.measure(client, action, topic, messages, profile=profile)
        if not reads and (stored := self._stored(topic)) != messages:
            raise RuntimeError(f"{client} was to write {messages} messages; there are {stored}")
        return result

    def measure(
        self, client: str, action: str, topic: str, messages: int, *, profile: bool = False
    ) -> Result:
        """Let one side do its work, in a process of its own."""
        command = [sys.executable, "-m", "benchmarks.side", client, action]
        command += [self.bootstrap_servers, topic, str(messages)]
        if self._core is not None:
            command += ["--core", str(self._core)]
        if profile:
            command.append("--profile")
        environment = os.environ | {"AIOKAFKAWIRE_PURE_PYTHON": "1"}
        output = subprocess.run(
            command,
            check=True,
            stdout=subprocess.PIPE,
            timeout=SIDE_TIMEOUT_SECONDS,
            env=environment,
        ).stdout
        measured = json.loads(output)
        return Result(
            measured["messages"] / measured["seconds"],
            measured["cpu_seconds"] / measured["messages"] * 1e6,
        )

    def new_topic(self) -> str:
        name = f"bench-{uuid.uuid4().hex[:12]}"
        self.create(name)
        return name

    def create(self, topic: str) -> None:
        self._kafka.create_topic(topic, partitions=PARTITIONS)

    def new_topic_with(self, messages: int) -> str:
        topic = self.new_topic()
        fill(self.bootstrap_servers, topic, messages)
        return topic

    def _topic_with(self, messages: int) -> str:
        """One for all that only read."""
        if messages not in self._filled:
            self._filled[messages] = self.new_topic_with(messages)
        return self._filled[messages]

    def _stored(self, topic: str) -> int:
        consumer = confluent_kafka.Consumer(
            {"bootstrap.servers": self.bootstrap_servers, "group.id": "count"}
        )
        try:
            ends = (
                consumer.get_watermark_offsets(
                    confluent_kafka.TopicPartition(topic, partition), timeout=10
                )
                for partition in range(PARTITIONS)
            )
            return sum(high - low for low, high in ends)
        finally:
            consumer.close()


def fill(bootstrap_servers: str, topic: str, messages: int) -> None:
    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": bootstrap_servers,
            "linger.ms": LINGER_MS,
            "batch.size": BATCH_BYTES,
            "enable.idempotence": True,
            "queue.buffering.max.messages": messages,
        }
    )
    for number in range(messages):
        producer.produce(topic, VALUE, partition=number % PARTITIONS)
    if producer.flush(FILL_TIMEOUT_SECONDS):
        raise RuntimeError(f"{topic} was not filled in {FILL_TIMEOUT_SECONDS:.0f} s")


def pair(bench: Bench, action: str, number: int) -> dict[str, Result]:
    order = (THEIRS, OURS) if number % 2 == 0 else (OURS, THEIRS)
    return {client: bench.run(client, action, MESSAGES[action]) for client in order}


def spread(values: Sequence[float], layout: str) -> str:
    """The median, and the least and the greatest."""
    low, middle, high = min(values), statistics.median(values), max(values)
    return f"{middle:{layout}} ({low:{layout}} to {high:{layout}})"


def rows(name: str, results: Iterable[Result]) -> str:
    results = list(results)
    speed = spread([result.per_second for result in results], ",.0f")
    cpu = spread([result.cpu_us_per_message for result in results], ".2f")
    return f"| {name} | {speed} | {cpu} |"


def table(found: dict[str, list[dict[str, Result]]], extra: dict[str, list[Result]]) -> list[str]:
    lines = ["| | messages/s | CPU us/message |", "|---|---|---|"]
    for action, pairs in found.items():
        lines += [
            rows(f"{action}, {client}", (one[client] for one in pairs)) for client in (THEIRS, OURS)
        ]
    lines += [rows(f"{action}, {OURS}", results) for action, results in extra.items()]
    lines.append("")
    for action, pairs in found.items():
        ratios = [one[OURS].per_second / one[THEIRS].per_second for one in pairs]
        middle = statistics.median(ratios)
        verdict = "reached" if middle >= AIMS[action] else "MISSED"
        lines.append(
            f"{action}: {spread(ratios, '.2f')} of aiokafka's messages a second; "
            f"aim {AIMS[action]:.1f}: {verdict}"
        )
        cpu = [one[OURS].cpu_us_per_message / one[THEIRS].cpu_us_per_message for one in pairs]
        lines.append(f"{action}: {spread(cpu, '.2f')} of its CPU per message")
    return lines


def pinned(start: Callable[[], object], core: int | None) -> None:
    """Start processes on a core; this process itself goes back to where it was."""
    if core is None:
        start()
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {core})
    try:
        start()
    finally:
        os.sched_setaffinity(0, before)


def cores() -> tuple[int | None, int | None]:
    """One for the broker and one for the client; none where there are not two to tell apart."""
    if not hasattr(os, "sched_getaffinity"):
        return None, None
    allowed = sorted(os.sched_getaffinity(0))
    return (allowed[0], allowed[1]) if len(allowed) > 1 else (None, None)


def compare(bench: Bench, actions: Sequence[str], pairs: int) -> list[str]:
    found: dict[str, list[dict[str, Result]]] = {action: [] for action in actions}
    extra: dict[str, list[Result]] = {}
    for number in range(pairs):
        for action in actions:
            one = pair(bench, action, number)
            found[action].append(one)
            shown = ", ".join(f"{who} {one[who].per_second:,.0f}/s" for who in (THEIRS, OURS))
            print(f"{action} {number + 1}/{pairs}: {shown}", file=sys.stderr, flush=True)
    if "produce" in actions:
        extra["send_many"] = [bench.run(OURS, "produce-many", MESSAGES["produce"])]
    if "consume" in actions:
        extra["getmany, Records.values()"] = [
            bench.run(OURS, "consume-values", MESSAGES["consume"])
        ]
    return table(found, extra)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--only", choices=sorted(AIMS), help="one of the two comparisons")
    parser.add_argument("--profile", nargs=2, metavar=("CLIENT", "ACTION"))
    options = parser.parse_args()
    broker_core, client_core = cores()
    began = time.monotonic()
    kafka = Kafka(properties=BROKER_PROPERTIES)
    try:
        pinned(kafka.start, broker_core)
        bench = Bench(kafka, client_core)
        if options.profile:
            client, action = options.profile
            messages = MESSAGES["produce" if action.startswith("produce") else "consume"]
            bench.run(client, action, messages, profile=True)
            return 0
        lines = compare(bench, [options.only] if options.only else list(AIMS), options.pairs)
    finally:
        kafka.close()
    pinning = "not pinned" if client_core is None else "a core each for broker and client"
    print(
        f"Kafka {kafka.release.version}, {len(VALUE)}-byte values, {PARTITIONS} partitions, "
        f"acks=all, idempotent, linger {LINGER_MS} ms, batches of {BATCH_BYTES // 1024} KiB; "
        f"getmany of {MAX_RECORDS}; "
        f"{pinning}; aiokafka compiled, aiokafkawire not\n"
    )
    print("\n".join(lines))
    print(f"\n{options.pairs} pairs in {time.monotonic() - began:.0f} s")
    return 1 if any("MISSED" in line for line in lines) else 0


if __name__ == "__main__":
    sys.exit(main())

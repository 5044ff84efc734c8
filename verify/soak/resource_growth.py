"""Half an hour of steady work on three real nodes: resource usage may not grow.

python -m verify.soak.resource_growth [--minutes 30]        # `make soak`

A producer, group workers that commit manually or automatically, and transactional workers, each in
a process of its own, report memory, file descriptors and tasks every few seconds. After a warm-up,
memory may not grow by more than 5 %. Now and then a connection to another node is opened (metadata
is requested from the least busy node) or closed when idle; so the last third may not have more
descriptors or tasks than before.
"""

from __future__ import annotations

import argparse
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tests.brokers.kafka import Kafka, Unavailable
from verify.soak import confluent_reader
from verify.soak.faults.load import COPIES, ORDERS, PARTITIONS, Application, Applications, jobs
from verify.soak.faults.run_folder import folder
from verify.soak.reporters import until
from verify.soak.tables import table

NODES = 3
WARM_UP_SECONDS = 180.0
SAMPLE_SECONDS = 5.0
RATE = 50.0
METADATA_MAX_AGE_MS = 30_000
"""Shorter than the default, so that every possible connection is opened soon."""
BEGIN_SECONDS = 60.0
MOST_GROWTH_PERCENT = 5.0
POLL_INTERVAL_S = 1.0
PROGRESS_SECONDS = 300.0
TOPICS = (ORDERS, COPIES)
GROUPS = ("hand", "auto", "first")
TERMINATED = 143
INTERRUPTED = 130


@dataclass(frozen=True, slots=True)
class Use:
    """Resource usage of a process: at a time, the most until then, and the least and most from then
    on."""

    at: int
    least: int
    most: int
    most_before: int
    last: int

    @property
    def growth_percent(self) -> float:
        return 100.0 * (self.most - self.at) / self.at

    @property
    def more_than_before(self) -> bool:
        return self.most > self.most_before


@dataclass(frozen=True, slots=True)
class Times:
    """End of the warm-up, and start of the last third."""

    warm_at: float
    late_at: float


def make_use(samples: Sequence[Mapping[str, Any]], what: str, at: float) -> Use | None:
    """Compute the usage from samples; None without a sample before or after."""
    before = [sample[what] for sample in samples if sample["at"] <= at]
    after = [sample[what] for sample in samples if sample["at"] > at]
    if not before or not after:
        return None
    return Use(before[-1], min(after), max(after), max(before), after[-1])


def judged(name: str, samples: Sequence[Mapping[str, Any]], times: Times) -> list[str]:
    """Return the problems of a process."""
    memory = make_use(samples, "resident_kib", times.warm_at)
    if memory is None:
        return [f"{name}: too few samples"]
    problems = []
    if memory.growth_percent > MOST_GROWTH_PERCENT:
        problems.append(f"{name}: memory grew by {memory.growth_percent:.1f} %")
    for what in ("descriptors", "tasks"):
        use = make_use(samples, what, times.late_at)
        if use is not None and use.more_than_before:
            problems.append(f"{name}: {what} grew from {use.most_before} to {use.most}")
    return problems


def row(who: Application, samples: Sequence[Mapping[str, Any]], times: Times) -> list[object]:
    """Return a process's line of the table."""
    found: list[object] = [who.name, who.job.role, who.job.backend]
    memory = make_use(samples, "resident_kib", times.warm_at)
    if memory is None:
        return [*found, 0.0, 0.0, 0.0, 0.0, "", ""]
    found += [memory.at / 1024, memory.most / 1024, memory.last / 1024]
    found.append(memory.growth_percent)
    for what in ("descriptors", "tasks"):
        use = make_use(samples, what, times.late_at)
        found.append("" if use is None else f"{use.most_before}; {use.least} to {use.most}")
    return found


HEAD = (
    "process",
    "role",
    "backend",
    "MiB warm",
    "most",
    "at the end",
    "growth %",
    "descriptors",
    "tasks",
)


def samples_of(application: Application) -> list[dict[str, Any]]:
    return [event for event in list(application.events) if event["what"] == "uses"]


def workforce(servers: str) -> Applications:
    """One producer, and the workers of the first three groups; two of them on trio."""
    chosen = [
        replace(
            job,
            sample_seconds=SAMPLE_SECONDS,
            options={**job.options, "metadata_max_age_ms": METADATA_MAX_AGE_MS},
        )
        for job in jobs(servers, None, RATE)
        if job.name == "producer-1" or job.group in GROUPS
    ]
    return Applications([replace(j, backend="trio") if j.name == "hand-2" else j for j in chosen])


def soak(kafka: Kafka, minutes: float) -> list[str]:
    """Work for the given time, print the table, and return the problems."""
    for topic in TOPICS:
        kafka.create_topic(topic, partitions=PARTITIONS, replication_factor=NODES)
    crew = workforce(kafka.bootstrap_servers)
    try:
        until("everybody has begun", crew.entered, BEGIN_SECONDS)
        began = time.monotonic()
        end = began + minutes * 60
        times = Times(began + WARM_UP_SECONDS, end - (end - began) / 3)
        said = began
        while time.monotonic() < end:
            crew.check()
            time.sleep(POLL_INTERVAL_S)
            if time.monotonic() - said >= PROGRESS_SECONDS:
                said = time.monotonic()
                print(f"  {(said - began) / 60:.0f} minutes", flush=True)
        everyone = [*crew.producers, *crew.workers]
        events = {each.name: samples_of(each) for each in everyone}
        crew.end_producers()
        crew.end_workers()
    finally:
        crew.close()
    print("\n".join(table(HEAD, [row(each, events[each.name], times) for each in everyone])))
    print(
        f"  (warm: after {WARM_UP_SECONDS:.0f} s; descriptors and tasks: the most in the first two"
    )
    print("  thirds; the least to the most in the last)")
    for topic in TOPICS:
        stored = sum(map(len, confluent_reader.records(kafka.bootstrap_servers, topic).values()))
        print(f"  {topic}: {stored:,} records")
    return [problem for each in everyone for problem in judged(each.name, events[each.name], times)]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=30.0)
    options = parser.parse_args(arguments)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(TERMINATED))
    try:
        with folder() as place, Kafka(nodes=NODES, directory=place / "kafka") as kafka:
            print(f"Kafka {kafka.release.version}, {NODES} nodes", flush=True)
            problems = soak(kafka, options.minutes)
    except Unavailable as lack:
        print(lack, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return INTERRUPTED
    for problem in problems:
        print(f"  PROBLEM: {problem}")
    print(f"{options.minutes:.0f} minutes: {'FAILED' if problems else 'right'}")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())

"""The chain: topic A to B to C through two groups of workers, under faults.

Its workers are killed and its brokers restarted; a `read_committed` consumer then looks for each
record once, in order. The same run without transactions shows that the check finds duplicates.
"""

from __future__ import annotations

import random
import signal
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise

import confluent_kafka
from confluent_kafka.admin import AdminClient

from tests.brokers.kafka import Kafka
from verify.soak import own_reader
from verify.soak.checker import check_copies
from verify.soak.confluent_reader import log, numbers
from verify.soak.proofs import Report, new_topic
from verify.soak.reporters import ReportingProcess

PARTITIONS = 6
WORKERS = 3
FILL_TIMEOUT_SECONDS = 60.0
POLL_SECONDS = 0.2
QUIET_SECONDS = 5.0
DOWN_SECONDS = 3.0
LOOK_SECONDS = 1.0
METADATA_SECONDS = 5.0
FROZEN_SECONDS = 6.0
"""Longer than a worker's session, so that its group rebalances without it."""


@dataclass(frozen=True, slots=True)
class FaultPlan:
    """Amount of faults: the number of transactions (or commits) between kills of workers, and
    between kills of brokers.

    Counted in work, not in seconds, so that a busy machine makes progress too. The next broker is
    killed once all replicas are in sync again. A run with fewer than `least_kills` and
    `least_restarts` is invalid.
    """

    seed: int = 6
    between_kills: int = 100
    between_restarts: int = 500
    least_kills: int = 12
    least_restarts: int = 3
    limit_seconds: float = 900.0


LONG = FaultPlan()
SHORT = FaultPlan(between_kills=40, between_restarts=150, least_kills=3, least_restarts=1)


class Stage:
    """One group of workers between two topics; a dead worker gets a successor with its name."""

    def __init__(self, kafka: Kafka, source: str, target: str, manner: str) -> None:
        self._arguments = (kafka.bootstrap_servers, source, target)
        self._manner = manner
        self._group = f"group-{uuid.uuid4().hex[:12]}"
        self.all: list[ReportingProcess] = []
        self.workers = [self._worker(slot) for slot in range(WORKERS)]

    def _worker(self, slot: int) -> ReportingProcess:
        name = f"{self._group}-{slot}"
        arguments = (*self._arguments, self._group, name, self._manner)
        worker = ReportingProcess(name, "verify.soak.stream_worker", arguments)
        self.all.append(worker)
        return worker

    def kill(self, slot: int) -> None:
        """Kill a worker (SIGKILL) and start another one in its place."""
        self.workers[slot].kill()
        self.workers[slot] = self._worker(slot)

    def count(self, what: str) -> int:
        return sum(event["what"] == what for worker in self.all for event in list(worker.events))

    @property
    def ended(self) -> ReportingProcess | None:
        """A worker that exited by itself."""
        return next((worker for worker in self.workers if worker.ended is not None), None)

    def leave(self) -> None:
        for worker in self.workers:
            worker.leave(30)

    def close(self) -> None:
        for worker in self.all:
            worker.kill()


class CountingConsumer:
    """Reads committed records of a topic in a thread, and counts the different ones."""

    def __init__(self, servers: str, topic: str) -> None:
        self.seen: set[bytes] = set()
        self._consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": servers,
                "group.id": f"group-{uuid.uuid4().hex[:12]}",
                "isolation.level": "read_committed",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "log_level": 0,
            }
        )
        self._consumer.assign(
            [confluent_kafka.TopicPartition(topic, number, 0) for number in range(PARTITIONS)]
        )
        self._stopping = False
        self._thread = threading.Thread(target=self._read, name="counting", daemon=True)
        self._thread.start()

    def _read(self) -> None:
        while not self._stopping:
            for message in self._consumer.consume(10_000, timeout=POLL_SECONDS):
                value = message.value()
                if message.error() is None and value is not None:
                    self.seen.add(value)

    def close(self) -> None:
        self._stopping = True
        self._thread.join()
        self._consumer.close()


@contextmanager
def counting(servers: str, topic: str) -> Iterator[CountingConsumer]:
    found = CountingConsumer(servers, topic)
    try:
        yield found
    finally:
        found.close()


@contextmanager
def stages(kafka: Kafka, topics: list[str], manner: str) -> Iterator[list[Stage]]:
    found: list[Stage] = []
    try:
        for source, target in pairwise(topics):
            found.append(Stage(kafka, source, target, manner))
        yield found
    finally:
        for stage in found:
            stage.close()


def fill(kafka: Kafka, topic: str, messages: int) -> None:
    """Write number n to partition n modulo PARTITIONS, each once."""
    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": kafka.bootstrap_servers,
            "enable.idempotence": True,
            "linger.ms": 20,
            "queue.buffering.max.messages": messages,
        }
    )
    for number in range(messages):
        producer.produce(topic, b"%d" % number, partition=number % PARTITIONS)
    if producer.flush(FILL_TIMEOUT_SECONDS):
        raise RuntimeError(f"{topic} was not filled in {FILL_TIMEOUT_SECONDS:.0f} s")


def in_sync(servers: str) -> bool:
    """Return whether all replicas of all partitions are in sync."""
    client = AdminClient({"bootstrap.servers": servers, "log_level": 0})
    try:
        topics = client.list_topics(timeout=METADATA_SECONDS).topics.values()
    except confluent_kafka.KafkaException:
        return False
    return all(
        len(partition.isrs) == len(partition.replicas)
        for topic in topics
        for partition in topic.partitions.values()
    )


class FaultSchedule:
    """Kills workers and restarts brokers as drawn from the seed."""

    def __init__(self, kafka: Kafka, chain: list[Stage], fault_plan: FaultPlan) -> None:
        self._kafka = kafka
        self._chain = chain
        self._trouble = fault_plan
        self._rng = random.Random(fault_plan.seed)
        self._kill_after = fault_plan.between_kills
        self._restart_after = fault_plan.between_restarts
        self._look_at = self._resume_at = time.monotonic()
        self._stopped: ReportingProcess | None = None
        self._down: int | None = None
        self.kills = self.restarts = self.stops = 0

    @property
    def enough(self) -> bool:
        fault_plan = self._trouble
        return self.kills >= fault_plan.least_kills and self.restarts >= fault_plan.least_restarts

    def turn(self) -> None:
        """Inject the faults that are due."""
        now = time.monotonic()
        work = sum(stage.count("copied") for stage in self._chain)
        if work >= self._kill_after:
            self._kill_after = work + self._trouble.between_kills
            self._kill()
        if now >= self._look_at and (self._down is not None or work >= self._restart_after):
            self._restart(work)
        if self._stopped is not None and now >= self._resume_at:
            self._resume()

    def _kill(self) -> None:
        stage = self._rng.choice(self._chain)
        slot = self._rng.randrange(WORKERS)
        worker = stage.workers[slot]
        if worker is self._stopped:
            return
        if self._stopped is None and self.kills % 4 == 3 and self.stops * 4 < self.kills:
            # One is frozen past its session, and then continues as if it were still a member.
            worker.send(signal.SIGSTOP)
            self._stopped, self._resume_at = worker, time.monotonic() + FROZEN_SECONDS
            self.stops += 1
            return
        stage.kill(slot)
        self.kills += 1

    def _restart(self, work: int) -> None:
        """Kill the next broker, or restart the killed one."""
        nodes = self._kafka.nodes
        if self._down is None:
            if not in_sync(self._kafka.bootstrap_servers):
                self._look_at = time.monotonic() + LOOK_SECONDS
                return
            self._down = self.restarts % len(nodes)
            nodes[self._down].kill()
            self._look_at = time.monotonic() + DOWN_SECONDS
        else:
            self._kafka.start_node(nodes[self._down])
            self._down = None
            self.restarts += 1
            self._restart_after = work + self._trouble.between_restarts

    def _resume(self) -> None:
        if self._stopped is not None:
            self._stopped.send(signal.SIGCONT)
            self._stopped = None

    def end(self) -> None:
        """Resume and restart everything."""
        self._resume()
        self._kafka.start()


def chain(
    kafka: Kafka,
    messages: int = 200_000,
    manner: str = "transactions",
    fault_plan: FaultPlan = LONG,
) -> Report:
    """Copy A to B to C under faults, and check what a `read_committed` consumer of C reads."""
    report = Report(f"{messages:,} records from A to B to C, {manner}")
    topics = [new_topic(kafka, PARTITIONS) for _ in range(3)]
    fill(kafka, topics[0], messages)
    began = time.monotonic()
    with (
        stages(kafka, topics, manner) as workers,
        counting(kafka.bootstrap_servers, topics[-1]) as through,
    ):
        chaos = FaultSchedule(kafka, workers, fault_plan)
        try:
            while len(through.seen) < messages:
                if time.monotonic() - began > fault_plan.limit_seconds:
                    limit = fault_plan.limit_seconds
                    report.problems.append(
                        f"only {len(through.seen):,} records arrived in {limit:.0f} s"
                    )
                    break
                for stage in workers:
                    if (gone := stage.ended) is not None:
                        report.problems.append(f"{gone.name} ended with {gone.ended} by itself")
                        stage.kill(stage.workers.index(gone))
                chaos.turn()
                time.sleep(0.05)
        finally:
            chaos.end()
        time.sleep(QUIET_SECONDS)
        for stage in workers:
            stage.leave()
        report.saw(
            f"{len(through.seen):,} through in {time.monotonic() - began:.0f} s; "
            f"{chaos.kills} workers killed, {chaos.stops} frozen, {chaos.restarts} brokers killed"
        )
        if not chaos.enough:
            report.problems.append("there was too little trouble to prove anything")
        for stage, names in zip(workers, ("A to B", "B to C"), strict=True):
            report.saw(
                f"{names}: {stage.count('copied'):,} transactions, {stage.count('again')} again"
                if manner == "transactions"
                else f"{names}: {stage.count('copied'):,} commits, {stage.count('again')} refused"
            )
    found = log(kafka.bootstrap_servers, topics[-1], committed=True)
    report.problems += check_copies(messages, PARTITIONS, found)
    by_us = own_reader.records(kafka.bootstrap_servers, topics[-1], PARTITIONS, committed=True)
    if numbers(by_us) != found:
        report.problems.append("our reader sees other records than the other client's")
    stored = sum(map(len, log(kafka.bootstrap_servers, topics[-1]).values()))
    report.saw(f"C holds {stored:,} records, {sum(map(len, found.values())):,} of them committed")
    return report


def chain_without(kafka: Kafka, messages: int = 200_000, fault_plan: FaultPlan = LONG) -> Report:
    """The same without transactions: it must show duplicates, or the check is worthless."""
    report = chain(kafka, messages, "plain", fault_plan)
    found, report.problems = report.problems, []
    for problem in found:
        report.saw(f"as was to be expected: {problem}")
    if not any("more than once" in problem for problem in found):
        report.problems.append("nothing came through more than once: the trouble was too little")
    report.problems += [problem for problem in found if "not there" in problem]
    return report

"""The proof of workers: processes and nodes fail while five members of a group do a job.

The same job runs on other libraries too, so that the checks are known to find lost records.
"""

from __future__ import annotations

import signal
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import anyio

from aiokafkawire import Producer
from tests.brokers import raw
from tests.brokers.kafka import Kafka
from verify.soak import confluent_reader
from verify.soak.checker import JobResult, check_job, out_of_order
from verify.soak.proofs import REPLICAS, Report, new_topic
from verify.soak.reporters import ReportingProcess, WaitFailed, until
from verify.soak.tables import table
from verify.soak.worker_job import LIBRARIES, is_poison

__all__ = ("worker_group",)

MEMBERS = 5
PARTITIONS = 6
KEYS = 1_000
SESSION_MS = 6_000
STOPPED_SECONDS = 8.0
"""Longer than a session, so that others get the partitions of a stopped process."""
AWAY_SECONDS = 5.0
"""Time from a kill of a node until it starts again."""
STEP_SECONDS = 180.0
QUIET_SECONDS = 30.0
"""Time without a processed record after which a group is regarded as finished."""
GRACE_SECONDS = 30.0
SEND_RECORDS = 500


class JobMembers:
    """All processes that did the job of a group, also those that ended."""

    def __init__(self, library: str, kafka: Kafka, topic: str, group: str) -> None:
        self._library = library
        self._arguments = (library, kafka.bootstrap_servers, topic, group, SESSION_MS)
        self.all: list[ReportingProcess] = []

    def add(self) -> None:
        name = f"{self._library} {len(self.all) + 1}"
        self.all.append(ReportingProcess(name, "verify.soak.worker_job", self._arguments))

    @property
    def alive(self) -> list[ReportingProcess]:
        return [member for member in self.all if member.alive]

    @property
    def events(self) -> int:
        return sum(len(member.events) for member in self.all)

    def numbers(self, what: str) -> list[int]:
        """Return the numbers of events of a kind, in the order of time."""
        found = [
            (event["at"], event["number"])
            for member in self.all
            for event in list(member.events)
            if event["what"] == what
        ]
        return [number for _, number in sorted(found)]

    def wait_until_quiet(self, is_finished: Callable[[], bool]) -> None:
        """Wait until the job is finished, or no record was processed for a time."""
        before, since = self.events, time.monotonic()
        while not is_finished() and time.monotonic() - since < QUIET_SECONDS:
            time.sleep(1.0)
            if self.events != before:
                before, since = self.events, time.monotonic()


@contextmanager
def job_members(library: str, kafka: Kafka, topic: str, group: str) -> Iterator[JobMembers]:
    found = JobMembers(library, kafka, topic, group)
    try:
        for _ in range(MEMBERS):
            found.add()
        yield found
    finally:
        for member in found.all:
            member.kill()


async def send(servers: str, topic: str, records: int) -> None:
    """Send the numbers, each with the key of its remainder."""
    async with Producer(bootstrap_servers=servers, linger_ms=5) as producer:
        for first in range(0, records, SEND_RECORDS):
            numbers = range(first, min(first + SEND_RECORDS, records))
            await producer.send_many(
                topic,
                [b"%d" % number for number in numbers],
                keys=[b"%d" % (number % KEYS) for number in numbers],
            )
        await producer.flush()


def fail(report: Report, kafka: Kafka, topic: str, members: JobMembers, records: int) -> None:
    """Kill and stop processes and a node, each at a part of the progress."""

    def reach(part: int) -> None:
        enough = records * part // 8
        until(f"{enough:,} records", lambda: members.events >= enough, STEP_SECONDS)

    def saw(what: str) -> None:
        report.saw(f"{members.events:,}: {what}")

    reach(1)
    members.alive[0].kill()
    saw("a process killed (SIGKILL)")
    members.add()
    reach(2)
    members.alive[0].leave(GRACE_SECONDS)
    saw("a process ended (SIGTERM)")
    members.add()
    reach(3)
    leader = raw.metadata(kafka.nodes[0].address).leaders[topic][0]
    victim = next(node for node in kafka.nodes if node.node_id == leader)
    victim.kill()
    saw(f"node {leader}, the leader of partition 0, killed")
    time.sleep(AWAY_SECONDS)
    kafka.start()
    reach(4)
    members.alive[1].send(signal.SIGSTOP)
    time.sleep(STOPPED_SECONDS)
    members.alive[1].send(signal.SIGCONT)
    saw(f"a process was stopped for {STOPPED_SECONDS:.0f} s")
    reach(5)
    members.alive[0].kill()
    saw("a process killed (SIGKILL)")
    members.add()


def do_job(report: Report, kafka: Kafka, topic: str, library: str, records: int) -> JobResult:
    """Let a group do the job under failures; return what became of the records."""
    group = f"{library}-{uuid.uuid4().hex[:8]}"
    dead_topic = f"{group}.dead"
    kafka.create_topic(dead_topic, partitions=1, replication_factor=REPLICAS)
    poison = {number for number in range(records) if is_poison(number)}
    good = set(range(records)) - poison
    began = time.monotonic()

    def read_dead() -> frozenset[int]:
        letters = confluent_reader.log(kafka.bootstrap_servers, dead_topic)
        return frozenset(number for entries in letters.values() for _, number in entries)

    with job_members(library, kafka, topic, group) as members:
        try:
            fail(report, kafka, topic, members, records)
        except WaitFailed as error:
            report.saw(f"{library}: {error}")
        members.wait_until_quiet(
            lambda: good.issubset(members.numbers("done")) and poison.issubset(read_dead())
        )
        for member in members.alive:
            member.ask_to_end()
        for member in members.alive:
            try:
                member.finish(GRACE_SECONDS)
            except WaitFailed as error:
                report.saw(str(error))
        done, failed = members.numbers("done"), members.numbers("failed")
    report.saw(f"{library}: {time.monotonic() - began:.0f} s")
    return JobResult(records, done, len(failed), read_dead())


def worker_group(kafka: Kafka, records: int = 200_000) -> Report:
    """Five members of a group process keyed records; 1 % fail once, 0.1 % always."""
    report = Report(f"{MEMBERS} workers over {records:,} records")
    topic = new_topic(kafka, PARTITIONS)
    anyio.run(send, kafka.bootstrap_servers, topic, records)
    results = {library: do_job(report, kafka, topic, library, records) for library in LIBRARIES}
    for line in table(HEAD, [row(library, result) for library, result in results.items()]):
        report.saw(line)
    ours, *others = results.values()
    report.problems += check_job(ours, is_poison, KEYS)
    if not any(check_job(other, is_poison, KEYS) for other in others):
        report.problems.append("the other libraries lost no record: the failures are too weak")
    return report


HEAD = ("", "processed", "again", "failed", "dead", "poison skipped", "lost", "out of order")


def row(library: str, result: JobResult) -> Sequence[object]:
    poison = {number for number in range(result.records) if is_poison(number)}
    missing = result.missing
    return (
        library,
        len(set(result.done)),
        len(result.done) - len(set(result.done)),
        result.failures,
        len(result.dead),
        len(missing & poison),
        len(missing - poison),
        len(out_of_order(result.done, KEYS)),
    )

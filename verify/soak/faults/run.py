"""One run: the nodes, the applications, the faults one after another, and the final checks."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

import confluent_kafka

from tests.brokers.kafka import Kafka
from verify.invariants.checker import CheckResult
from verify.invariants.events import Event
from verify.invariants.recorder import Recorder
from verify.soak import confluent_reader
from verify.soak.faults import check_run, disks
from verify.soak.faults.fault_injector import FaultInjector, InjectedFault
from verify.soak.faults.load import GROUPS, ORDERS, PARTITIONS, TOPICS, Applications, jobs
from verify.soak.faults.plan import Fault
from verify.soak.reporters import WaitFailed, until

NODES = 3
REPLICAS = 3
PROPERTIES = {"leader.imbalance.check.interval.seconds": "30"}
"""Leaders move back soon: otherwise all would stay on the nodes that were hit first."""
BEGIN_SECONDS = 60.0
CONSUMED_SECONDS = 60.0
"""Longest time for the groups to consume everything after the last fault."""
POLL_INTERVAL_S = 0.5


@dataclass(slots=True)
class Outcome:
    """Outcome of a run, for the report."""

    happened: list[InjectedFault] = field(default_factory=list)
    history: list[Event] = field(default_factory=list)
    read_contents: check_run.FinalContents = field(default_factory=check_run.FinalContents)
    check_result: CheckResult | None = None
    problems: list[str] = field(default_factory=list)
    seconds: float = 0.0
    began_again: int = 0
    consumed_after: float = 0.0


def nodes(place: Path, *, small_disks: bool) -> Kafka:
    """Start three nodes with their data in a directory, on small disks where possible."""
    kafka = Kafka(nodes=NODES, directory=place / "kafka", properties=PROPERTIES, apart=True)
    if small_disks:
        for number in range(1, NODES + 1):
            disks.mount(place / "kafka" / f"node-{number}" / "data")
    return kafka


class Run:
    """Processes and state of one run."""

    def __init__(self, kafka: Kafka, histories: Path, say: Callable[[str], object]) -> None:
        self._kafka = kafka
        self._histories = histories
        self._say = say
        self._world = Recorder(time.monotonic)

    def perform(self, faults: Iterable[Fault], seconds: float, outcome: Outcome) -> None:
        """Inject faults until the time is over or none is left, and check."""
        began = time.monotonic()
        for topic in TOPICS:
            self._kafka.create_topic(topic, partitions=PARTITIONS, replication_factor=REPLICAS)
            self._world.topic_created(topic, PARTITIONS)
        applications = Applications(jobs(self._kafka.bootstrap_servers, self._histories))
        try:
            until("everybody has begun", applications.entered, BEGIN_SECONDS)
            self._break(applications, faults, began + seconds, outcome)
            self._finish(applications, outcome)
        finally:
            applications.close()
            outcome.seconds = time.monotonic() - began
            outcome.began_again = applications.again()
            outcome.history = check_run.history_of(
                self._histories, applications.killed, self._world.history
            )
        self._judge(outcome)

    def _break(
        self, applications: Applications, faults: Iterable[Fault], end: float, outcome: Outcome
    ) -> None:
        fault_injector = FaultInjector(self._kafka, applications)
        fault_injector.settle()
        for fault in faults:
            if time.monotonic() >= end:
                break
            self._world.fault(f"{fault.kind.value}: {fault.target}, {fault.seconds} s")
            happened = fault_injector.inject(fault)
            outcome.happened.append(happened)
            self._say(f"{happened.whom}: {fault.kind.value}")
        fault_injector.pause(1.0)
        self._world.healed()

    def _finish(self, applications: Applications, outcome: Outcome) -> None:
        """End the producers, wait until their records are consumed, then end the workers."""
        self._say("nothing is broken any more")
        applications.end_producers()
        servers = self._kafka.bootstrap_servers
        healed = time.monotonic()
        for source, groups in ((ORDERS, ("hand", "auto", "first")), ("copies", ("second",))):
            ends = _ends(confluent_reader.records(servers, source, committed=True))
            for group in groups:
                self._await(applications, group, ends, healed + CONSUMED_SECONDS)
        outcome.consumed_after = time.monotonic() - healed
        self._world.settled(*GROUPS)
        applications.end_workers()

    def _await(
        self, applications: Applications, group: str, ends: dict[int, int], deadline: float
    ) -> None:
        servers, topic = self._kafka.bootstrap_servers, GROUPS[group]
        while True:
            applications.check_workers()
            try:
                committed = confluent_reader.committed_offsets(servers, group, topic, PARTITIONS)
            except confluent_kafka.KafkaException:
                if time.monotonic() > deadline:
                    raise
                committed = {}  # the coordinator moves a last time after the faults
            if all((committed.get(number) or 0) >= end for number, end in ends.items()):
                return
            if time.monotonic() > deadline:
                raise WaitFailed(
                    f"{group} has not consumed all {CONSUMED_SECONDS:.0f} s after the last fault:"
                    f" committed {committed}, there is up to {ends}"
                )
            time.sleep(POLL_INTERVAL_S)

    def _judge(self, outcome: Outcome) -> None:
        self._say("reading all logs")
        outcome.read_contents = found = check_run.read_contents(self._kafka.bootstrap_servers)
        self._say("judging")
        outcome.problems += found.problems
        outcome.problems += check_run.check_copies(found)
        for group, problems in check_run.check_stored_commits(outcome.history, found).items():
            outcome.problems += [f"{group}: {problem}" for problem in problems]
        outcome.check_result = check_run.check_result(outcome.history, found)
        outcome.problems += map(str, outcome.check_result.violations)


def _ends(records: dict[int, list[tuple[int, bytes]]]) -> dict[int, int]:
    """Return the offset after the last record of each partition; a transaction marker may
    follow."""
    return {partition: entries[-1][0] + 1 for partition, entries in records.items() if entries}

"""The proof of share groups: members, leaders and the coordinator fail while records are shared."""

from __future__ import annotations

import signal
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

import anyio

from aiokafkawire.admin import Admin, ConfigResource, ConfigResourceType, ElectionType
from aiokafkawire.types import TopicPartition
from tests.brokers import raw
from tests.brokers.kafka import Kafka
from verify.soak import confluent_reader
from verify.soak.checker import (
    ShareEvent,
    Span,
    check_accepted,
    check_processed,
    expand,
)
from verify.soak.proofs import Report, Source, check_source, new_topic, source
from verify.soak.reporters import ReportingProcess, until

__all__ = ("share_group",)

MEMBERS = 5
PARTITIONS = 6
LOCK_MS = 5_000
SESSION_MS = 6_000
STOPPED_SECONDS = 8.0
"""Longer than a lock, so that the records of a stopped member go to others."""
AWAY_SECONDS = 10.0
"""Time from a kill of a node until it starts again."""
STEP_SECONDS = 120.0
DRAIN_SECONDS = 60.0
QUIET_SECONDS = 2 * LOCK_MS / 1000
"""Time after which no lock is left."""
GROUP_CONFIGS = {
    "share.auto.offset.reset": "earliest",
    "share.record.lock.duration.ms": str(LOCK_MS),
    # A member that was killed has its partitions until its session times out.
    "share.session.timeout.ms": str(SESSION_MS),
    # A record that meets several faults must not be given up.
    "share.delivery.count.limit": "10",
}


class ShareMembers:
    """All members ever started. Every second one is in the explicit mode."""

    def __init__(self, kafka: Kafka, topic: str, group: str) -> None:
        self._arguments = (kafka.bootstrap_servers, topic, group)
        self.all: list[ReportingProcess] = []

    def add(self) -> ReportingProcess:
        mode = "explicit" if len(self.all) % 2 else "implicit"
        name = f"member {len(self.all) + 1}"
        member = ReportingProcess(name, "verify.soak.share_worker", (*self._arguments, mode))
        self.all.append(member)
        return member

    @property
    def alive(self) -> list[ReportingProcess]:
        return [member for member in self.all if member.alive]

    def spans(self, what: str) -> Iterator[Span]:
        for member in self.all:
            for event in list(member.events):
                if event["what"] == what:
                    yield from (Span(*span) for span in event["spans"])

    def last_delivery(self) -> float:
        return max(
            (
                event["at"]
                for member in self.all
                for event in list(member.events)
                if event["what"] == "delivered"
            ),
            default=0.0,
        )

    def history(self) -> list[ShareEvent]:
        """Return deliveries and confirmed acceptances in the order of time."""
        found: list[ShareEvent] = []
        for member in self.all:
            for event in member.events:
                if event["what"] == "delivered":
                    for count, spans in event["counts"].items():
                        places = expand(Span(*span) for span in spans)
                        found.append(ShareEvent(event["at"], member.name, int(count), places))
                elif event["what"] == "accepted":
                    places = expand(Span(*span) for span in event["spans"])
                    found.append(ShareEvent(event["at"], member.name, None, places))
        return sorted(found, key=lambda each: each.at)


@contextmanager
def share_members(kafka: Kafka, topic: str, group: str) -> Iterator[ShareMembers]:
    found = ShareMembers(kafka, topic, group)
    try:
        for _ in range(MEMBERS):
            found.add()
        yield found
    finally:
        for member in found.all:
            member.kill()


async def configure(servers: str, group: str) -> None:
    async with Admin(bootstrap_servers=servers) as admin:
        resource = ConfigResource(ConfigResourceType.GROUP, group)
        await admin.incremental_alter_configs({resource: GROUP_CONFIGS})


async def move_leaders(servers: str, topic: str) -> None:
    """Make the next replica of each partition its leader."""
    async with Admin(bootstrap_servers=servers) as admin:
        described = (await admin.describe_topics([topic]))[topic]
        moved = {
            TopicPartition(topic, number): (*nodes[1:], nodes[0])
            for number, each in described.partitions.items()
            if (nodes := each.replicas)
        }
        await admin.alter_partition_reassignments(moved)
        await admin.elect_leaders(ElectionType.PREFERRED, moved)


async def reported_lag(servers: str, group: str) -> dict[int, int | None]:
    """Return the lag that Kafka reports by partition, where it is not 0."""
    async with Admin(bootstrap_servers=servers) as admin:
        found = (await admin.list_share_group_offsets([group]))[group]
    lags = {tp.partition: None if info is None else info.lag for tp, info in found.items()}
    return {partition: lag for partition, lag in lags.items() if lag != 0}


async def coordinator(servers: str, group: str) -> int:
    async with Admin(bootstrap_servers=servers) as admin:
        return (await admin.describe_share_groups([group]))[group].coordinator_id


class Failures:
    """Failures of members and nodes. Each one waits until it is due by the producer's progress."""

    def __init__(
        self, report: Report, kafka: Kafka, topic: str, producer: Source, members: ShareMembers
    ) -> None:
        self._report = report
        self._kafka = kafka
        self._topic = topic
        self._producer = producer
        self._members = members

    def _saw(self, what: str) -> None:
        self._report.saw(f"{self._producer.acknowledged:,}: {what}")

    def _until(self, what: str, holds: Callable[[], bool]) -> None:
        until(what, holds, STEP_SECONDS, self._producer, *self._members.alive)

    def reach(self, messages: int) -> None:
        """Wait until messages are acknowledged to the producer."""
        self._until(f"{messages:,} messages", lambda: self._producer.acknowledged >= messages)

    def replace_member(self) -> None:
        """Kill the oldest member, and add another."""
        member = self._members.alive[0]
        member.kill()
        self._saw(f"{member.name} killed (SIGKILL)")
        self._members.add()

    def stop_member(self) -> None:
        """Stop the second oldest member for longer than its locks."""
        member = self._members.alive[1]
        member.send(signal.SIGSTOP)
        time.sleep(STOPPED_SECONDS)
        member.send(signal.SIGCONT)
        self._saw(f"{member.name} was stopped for {STOPPED_SECONDS:.0f} s")

    def move_leaders(self) -> None:
        anyio.run(move_leaders, self._kafka.bootstrap_servers, self._topic)
        self._saw("another node leads each partition")

    def restart_node(self, node_id: int, role: str) -> None:
        """Kill a node, and start it again."""
        victim = next(node for node in self._kafka.nodes if node.node_id == node_id)
        victim.kill()
        self._saw(f"node {node_id}, {role}, killed")
        time.sleep(AWAY_SECONDS)
        self._kafka.start()
        self._until("all replicas in sync", lambda: raw.metadata(victim.address).all_in_sync())


def share_group(kafka: Kafka, messages: int = 200_000, rate: int = 1_200) -> Report:
    """Five members share the records; members and nodes are killed and stopped meanwhile."""
    report = Report(f"{MEMBERS} members of a share group over {messages:,} messages")
    servers = kafka.bootstrap_servers
    topic, group = new_topic(kafka, PARTITIONS), f"group-{uuid.uuid4().hex[:12]}"
    anyio.run(configure, servers, group)
    with (
        source(kafka, topic, PARTITIONS, rate, messages) as producer,
        share_members(kafka, topic, group) as members,
    ):
        failures = Failures(report, kafka, topic, producer, members)
        failures.reach(messages // 8)
        failures.replace_member()
        failures.reach(messages * 2 // 8)
        failures.stop_member()
        failures.reach(messages * 3 // 8)
        failures.move_leaders()
        failures.reach(messages * 4 // 8)
        failures.replace_member()
        leader = raw.metadata(kafka.nodes[0].address).leaders[topic][0]
        failures.restart_node(leader, "the leader of partition 0")
        failures.reach(messages * 6 // 8)
        failures.stop_member()
        failures.restart_node(anyio.run(coordinator, servers, group), "the coordinator")
        failures.reach(messages * 7 // 8)
        failures.replace_member()
        producer.finish(STEP_SECONDS)
        ends = confluent_reader.ends(servers, topic)
        drain(report, members, ends)
        lag = anyio.run(reported_lag, servers, group)
        # It may stay above 0 after failures of nodes, although everything is acknowledged.
        report.saw(f"lag that Kafka {kafka.release.version} reports by partition: {lag or 0}")
        check_share_group(report, members, ends)
    check_source(report, kafka, topic, producer)
    return report


def drain(report: Report, members: ShareMembers, ends: Mapping[int, int]) -> None:
    """Wait until everything is accepted and no lock is left; no member may get a record then."""

    def accepted() -> bool:
        return not check_processed(members.spans("accepting"), ends)

    def quiet() -> bool:
        return time.monotonic() - members.last_delivery() > QUIET_SECONDS

    seconds = until("everything is accepted", accepted, DRAIN_SECONDS, *members.alive)
    report.saw(f"everything accepted {seconds:.1f} s after the producer ended")
    until("no more deliveries", quiet, DRAIN_SECONDS, *members.alive)
    for member in members.alive:
        member.leave()
    last = members.add()
    until("another member joins", lambda: bool(last.events), STEP_SECONDS, last)
    time.sleep(QUIET_SECONDS)
    last.leave()
    if any(event["what"] == "delivered" for event in last.events):
        report.problems.append("records were left to a member that joined at the end")


def check_share_group(report: Report, members: ShareMembers, ends: Mapping[int, int]) -> None:
    history = members.history()
    deliveries = Counter(
        {
            count: sum(len(each.places) for each in history if each.delivery_count == count)
            for count in {each.delivery_count for each in history} - {None}
        }
    )
    accepting = expand(members.spans("accepting"))
    confirmed = expand(members.spans("accepted"))
    report.saw(
        f"{len(confirmed):,} records accepted and {len(accepting - confirmed):,} more without a"
        f" confirmation; deliveries by their count: {dict(sorted(deliveries.items()))}"
    )
    report.problems += check_processed(members.spans("accepting"), ends)
    report.problems += check_accepted(history)

"""The proofs: each injects faults, prints its observations, and returns the problems found."""

from __future__ import annotations

import math
import signal
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager

import anyio

from tests.brokers import raw
from tests.brokers.kafka import Kafka
from verify.soak import confluent_reader
from verify.soak.checker import (
    PartitionOffset,
    check_commits,
    check_log,
    check_processed,
    longest_gap,
    processed_again,
)
from verify.soak.coordinator_kills import KILLS, SESSION_WITH_KILLS_MS, CoordinatorKills
from verify.soak.member_churn import CONSUMER_PROTOCOL, Plan
from verify.soak.member_churn import run as run_member_churn
from verify.soak.members import Member, Members, members
from verify.soak.reporters import ReportingProcess, WaitFailed, until

REPLICAS = 3
SETTLE_SECONDS = 40.0
"""Longest rebalance of a group on a busy machine."""
DRAIN_SECONDS = 60.0
QUIET_SECONDS = 1.0
WARM_UP_SECONDS = 3.0
SESSION_MS = 3_000


class Report:
    """Observations and problems of a proof."""

    def __init__(self, title: str) -> None:
        self.title = title
        self.problems: list[str] = []
        self.seen: list[str] = []

    def saw(self, line: str) -> None:
        self.seen.append(line)
        print(f"  {line}", flush=True)


class Source(ReportingProcess):
    """The producer's process."""

    def outcomes(self) -> tuple[dict[int, PartitionOffset], dict[int, str], dict[int, str]]:
        """Return acknowledged messages, those with unknown outcome, and failed ones."""
        acknowledged, unknown, failed = {}, {}, {}
        for event in list(self.events):
            if event["what"] == "outcomes":
                for number, partition, offset in event["acknowledged"]:
                    acknowledged[number] = PartitionOffset(partition, offset)
                unknown.update(event["unknown"])
                failed.update(event["failed"])
        return acknowledged, unknown, failed

    @property
    def acknowledged(self) -> int:
        return sum(len(e["acknowledged"]) for e in list(self.events) if e["what"] == "outcomes")

    def first_since(self, at: float) -> float | None:
        """Return when the first acknowledgements after a time came."""
        return next(
            (e["at"] for e in list(self.events) if e.get("acknowledged") and e["at"] > at), None
        )


@contextmanager
def source(kafka: Kafka, topic: str, *rest: int) -> Iterator[Source]:
    arguments = (kafka.bootstrap_servers, topic, *rest)
    found = Source("the producer", "verify.soak.source", arguments)
    try:
        yield found
    finally:
        found.kill()


def new_topic(kafka: Kafka, partitions: int) -> str:
    name = f"endurance-{uuid.uuid4().hex[:12]}"
    kafka.create_topic(name, partitions=partitions, replication_factor=REPLICAS)
    return name


def check_source(report: Report, kafka: Kafka, topic: str, producer: Source) -> None:
    acknowledged, unknown, failed = producer.outcomes()
    found = confluent_reader.log(kafka.bootstrap_servers, topic)
    stored = sum(map(len, found.values()))
    report.saw(
        f"acknowledged {len(acknowledged):,}, unknown {len(unknown):,}, failed {len(failed):,}; "
        f"stored {stored:,}"
    )
    for text in sorted({*unknown.values(), *failed.values()})[:5]:
        report.saw(f"error: {text}")
    report.problems += check_log(acknowledged, unknown, found)


# --- a leader dies --------------------------------------------------------------------------


def leader_killed(kafka: Kafka, messages: int = 200_000, rate: int = 16_000) -> Report:
    """Kill the process of a leader under an idempotent producer, and restart it later."""
    report = Report(f"a leader killed under a producer of {messages:,} messages")
    partitions = 6
    topic = new_topic(kafka, partitions)
    with source(kafka, topic, partitions, rate, messages) as producer:
        until("a quarter", lambda: producer.acknowledged >= messages // 4, 60, producer)
        leader = raw.metadata(kafka.nodes[0].address).leaders[topic][0]
        victim = next(node for node in kafka.nodes if node.node_id == leader)
        before = producer.acknowledged
        victim.kill()
        killed_at = time.monotonic()
        report.saw(f"node {leader} killed (SIGKILL) at {before:,} acknowledged")
        until("progress", lambda: producer.acknowledged > before + 10_000, 60, producer)
        report.saw(f"10,000 more acknowledged {time.monotonic() - killed_at:.1f} s later")
        until("half", lambda: producer.acknowledged >= messages // 2, 60, producer)
        kafka.start()
        producer.finish(180)
    if producer.events[-1]["what"] != "done" or producer.events[-1]["sent"] != messages:
        report.problems.append(f"the producer did not finish: {producer.events[-1]}")
    acknowledged, unknown, failed = producer.outcomes()
    if len(acknowledged) + len(unknown) + len(failed) != messages:
        report.problems.append("there are messages without an outcome")
    check_source(report, kafka, topic, producer)
    return report


# --- members die, come and stop -------------------------------------------------------------


def rebalances(kafka: Kafka, strategy: str, partitions: int = 12, rate: int = 1_200) -> Report:
    """Of three members kill one, add one, and stop one past its session."""
    report = Report(f"three members over {partitions} partitions under load, {strategy}")
    topic, group = new_topic(kafka, partitions), f"group-{uuid.uuid4().hex[:12]}"
    with (
        source(kafka, topic, partitions, rate) as producer,
        members(kafka.bootstrap_servers, topic, group, strategy, SESSION_MS) as group_members,
    ):
        one, two, three = (group_members.add() for _ in range(3))
        share = group_members.share
        group_members.until("three share", share(partitions, one, two, three), SETTLE_SECONDS)
        cooperative = strategy.startswith("cooperative")
        time.sleep(WARM_UP_SECONDS)
        with stay(report, "undisturbed", cooperative, group_members, one, two, three):
            time.sleep(2)
        with stay(report, "one killed", cooperative, group_members, one, two):
            three.kill()
            group_members.until("two share", share(partitions, one, two), SETTLE_SECONDS)
        with stay(report, "one added", cooperative, group_members, one, two):
            four = group_members.add()
            group_members.until("three share", share(partitions, one, two, four), SETTLE_SECONDS)
        with stay(report, "one stopped", cooperative, group_members, one, four):
            two.send(signal.SIGSTOP)
            group_members.until("two share", share(partitions, one, four), SETTLE_SECONDS)
            time.sleep(SESSION_MS / 1000)
        two.send(signal.SIGCONT)
        group_members.until("three share", share(partitions, one, two, four), SETTLE_SECONDS)
        producer.leave(60)
        drain(kafka, topic, group_members)
        for member in group_members.alive:
            member.leave()
        check_group(report, kafka, topic, group, group_members)
    check_source(report, kafka, topic, producer)
    return report


MAX_GAP_SECONDS = 1.5
"""Longest time without reads of a retained partition under the cooperative protocol, on a
machine that runs three brokers, four members and a producer on two cores."""


@contextmanager
def stay(
    report: Report, what: str, cooperative: bool, group_members: Members, *staying: Member
) -> Iterator[None]:
    """Measure how long the retained partitions of these members are not read."""
    before = {member: set(member.owned) for member in staying}
    began = time.monotonic()
    yield
    time.sleep(2)
    ended = time.monotonic()
    gaps = {
        partition: longest_gap(group_members.reads_of(partition), began, ended)
        for member in staying
        for partition in before[member] & set(member.owned)
    }
    if not gaps:
        report.problems.append(f"{what}: no partition stayed with its member")
        return
    worst = max(gaps, key=lambda partition: gaps[partition])
    report.saw(
        f"{what}: {len(gaps)} partitions stay; longest gap {gaps[worst] * 1000:,.0f} ms "
        f"(partition {worst})"
    )
    if cooperative:
        if gaps[worst] > MAX_GAP_SECONDS:
            report.problems.append(f"{what}: partition {worst} stays and was not read meanwhile")
        for member in staying:
            taken = {
                partition
                for event in list(member.events)
                if began < event["at"] < ended and event["what"] in {"revoked", "lost"}
                for partition in event["partitions"]
            }
            if again := sorted(taken & gaps.keys()):
                report.problems.append(f"{what}: {member.name} had {again} taken away and kept")


def drain(kafka: Kafka, topic: str, group_members: Members) -> None:
    """Wait until all produced records are processed, and nothing more is read."""
    ends = confluent_reader.ends(kafka.bootstrap_servers, topic)
    group_members.until(
        "everything processed",
        lambda: not check_processed(group_members.spans(), ends),
        DRAIN_SECONDS,
    )
    group_members.until(
        "quiet",
        lambda: not group_members.spans(since=time.monotonic() - QUIET_SECONDS),
        DRAIN_SECONDS,
    )


def check_group(
    report: Report, kafka: Kafka, topic: str, group: str, group_members: Members
) -> None:
    ends = confluent_reader.ends(kafka.bootstrap_servers, topic)
    spans = group_members.spans()
    history = confluent_reader.commits(kafka.bootstrap_servers, group, topic)
    report.saw(
        f"{sum(ends.values()):,} messages processed, {processed_again(spans):,} of them again; "
        f"{len(history):,} commits"
    )
    if not history:
        report.problems.append("nothing was committed")
    report.problems += check_processed(spans, ends)
    report.problems += check_commits(history, group_members.in_doubt())
    last = dict(history)
    behind = {partition: end for partition, end in ends.items() if last.get(partition, 0) != end}
    if behind:
        report.problems.append(f"not committed to the end: {behind}")


# --- all brokers are gone -------------------------------------------------------------------


def outage(kafka: Kafka, seconds: float = 60.0, partitions: int = 6, rate: int = 300) -> Report:
    """Stop and restart all brokers: all clients recover by themselves."""
    report = Report(f"all brokers stopped for {seconds:.0f} s")
    topic, group = new_topic(kafka, partitions), f"group-{uuid.uuid4().hex[:12]}"
    with (
        source(kafka, topic, partitions, rate) as producer,
        members(kafka.bootstrap_servers, topic, group, "range", 10_000) as group_members,
    ):
        one, two = group_members.add(), group_members.add()
        everyone = (producer, one, two)
        until("sharing", group_members.share(partitions, one, two), SETTLE_SECONDS, *everyone)
        time.sleep(3)
        kafka.stop()
        report.saw(f"stopped at {producer.acknowledged:,} acknowledged")
        stopped_at = time.monotonic()
        until_then = stopped_at + seconds
        while time.monotonic() < until_then:
            if any(each.ended is not None for each in everyone):
                raise WaitFailed("a client ended while the brokers were gone")
            time.sleep(0.5)
        started_at = time.monotonic()
        kafka.start()
        report.saw(f"all ready again after {time.monotonic() - started_at:.1f} s")
        until(
            "sending goes on", lambda: producer.first_since(started_at) is not None, 60, *everyone
        )
        until(
            "reading goes on",
            lambda: group_members.first_read_since(started_at) is not None,
            SETTLE_SECONDS,
            *everyone,
        )
        sent = producer.first_since(started_at) or started_at
        read = group_members.first_read_since(started_at) or started_at
        report.saw(
            f"the producer goes on {sent - started_at:.1f} s after they were started, "
            f"the group {read - started_at:.1f} s"
        )
        time.sleep(3)
        producer.leave(120)
        drain(kafka, topic, group_members)
        for member in group_members.alive:
            member.leave()
        check_group(report, kafka, topic, group, group_members)
    _, unknown, failed = producer.outcomes()
    if unknown or failed:
        report.problems.append(f"{len(unknown) + len(failed)} messages were given up")
    check_source(report, kafka, topic, producer)
    return report


# --- members that join and leave ---


def many_members(kafka: Kafka, strategy: str, seconds: float = 180.0, seed: int = 4) -> Report:
    """24 members join and leave at random over 48 partitions."""
    report = Report(f"24 members joining and leaving for {seconds:.0f} s, {strategy}")
    plan = Plan(
        kafka.bootstrap_servers,
        topic=new_topic(kafka, Plan.partitions),
        group=f"group-{uuid.uuid4().hex[:12]}",
        strategy=strategy,
        seed=seed,
        seconds=seconds,
        options={}
        if strategy == CONSUMER_PROTOCOL
        else {"session_timeout_ms": 10_000, "heartbeat_interval_ms": 500},
    )
    problems, in_doubt = anyio.run(run_member_churn, plan, report.saw)
    history = confluent_reader.commits(kafka.bootstrap_servers, plan.group, plan.topic)
    report.saw(f"{len(history):,} commits")
    report.problems += problems
    report.problems += check_commits(history, in_doubt)
    if not history:
        report.problems.append("nothing was committed")
    return report


# --- members that join and leave while their coordinator dies ---


LONGEST_WAIT_SECONDS = 1.5
"""As `MAX_GAP_SECONDS`, for 24 members in one process."""


def coordinator_killed(
    kafka: Kafka, strategy: str, seconds: float = 180.0, seed: int = 4
) -> Report:
    """24 members join and leave at random; their coordinator is killed twice.

    It has no replica of the topic: what waits for records then waits for the group alone.
    """
    report = Report(f"24 members and a coordinator killed twice in {seconds:.0f} s, {strategy}")
    consumer_protocol = strategy == CONSUMER_PROTOCOL
    group = f"group-{uuid.uuid4().hex[:12]}"
    servers = kafka.bootstrap_servers
    kills = CoordinatorKills(kafka, group, report.saw, seconds)
    topic = anyio.run(kills.create_topic, Plan.partitions)
    classic = {"session_timeout_ms": SESSION_WITH_KILLS_MS, "heartbeat_interval_ms": 500}
    plan = Plan(
        servers,
        topic=topic,
        group=group,
        strategy=strategy,
        seed=seed,
        seconds=seconds,
        options={} if consumer_protocol else classic,
        auto_commit=True,
        longest_wait_seconds=LONGEST_WAIT_SECONDS if consumer_protocol else math.inf,
        disturb=kills.work,
    )
    problems, _ = anyio.run(run_member_churn, plan, report.saw)
    history = confluent_reader.commits(servers, group, topic)
    report.saw(f"{len(history):,} commits")
    report.problems += problems
    report.problems += check_commits(history)
    if kills.count != KILLS:
        report.problems.append(f"the coordinator was killed {kills.count} times")
    return report

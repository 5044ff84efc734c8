"""Members of one group that join and leave at random in this process, drawn from one seed."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any

import anyio
import anyio.abc

from aiokafkawire import Consumer, KafkaError, Producer, TopicPartition
from aiokafkawire.errors import CommitFailed
from verify.soak.checker import (
    PartitionOffset,
    Span,
    check_owners,
    check_processed,
    processed_again,
)
from verify.soak.churn_record import ChurnRecord, Read, check_epochs, describe_ms, waits

CONSUMER_PROTOCOL = "consumer"
POLL_MS = 100
SETTLED_LOOKS = 10
"""Number of successive checks in which each partition must have exactly one owner."""
POLL_INTERVAL_S = 0.1


@dataclass(frozen=True)
class Plan:
    servers: str
    topic: str
    group: str
    strategy: str
    """An assignor of the classic protocol, or "consumer" for the consumer protocol (KIP-848)."""
    seed: int
    seconds: float
    members: int = 24
    partitions: int = 48
    messages_per_second: int = 960
    pause_seconds: tuple[float, float] = (0.2, 1.5)
    """Shortest and longest time between two changes."""
    settle_seconds: float = 60.0
    options: dict[str, Any] = field(default_factory=dict)
    auto_commit: bool = False
    """Members commit by themselves: they read on while there is no coordinator."""
    longest_wait_seconds: float = math.inf
    """Longest time in which records of a partition that stays may wait."""
    disturb: Callable[[], Coroutine[Any, Any, None]] | None = None
    """Runs while members join and leave, and ends before they settle."""

    @property
    def member_options(self) -> dict[str, Any]:
        """Return the options of a member."""
        if self.strategy == CONSUMER_PROTOCOL:
            return {"group_protocol": "consumer", **self.options}
        return {"partition_assignment_strategy": [self.strategy], **self.options}


class ChurningMember:
    """A member that joins, works, and ends: by leaving or without, as planned."""

    def __init__(self, name: str, plan: Plan, churn: MemberChurn) -> None:
        self.name = name
        self._plan = plan
        self._churn = churn
        self._leaving = False
        self._consumer: Consumer | None = None
        self.scope = anyio.CancelScope()
        self.gone = anyio.Event()

    @property
    def owned(self) -> list[int]:
        consumer = self._consumer
        return [] if consumer is None else sorted(tp.partition for tp in consumer.assignment())

    def leave(self) -> None:
        self._leaving = True

    async def work(self) -> None:
        plan = self._plan
        try:
            with self.scope:
                async with Consumer(
                    plan.topic,
                    bootstrap_servers=plan.servers,
                    group_id=plan.group,
                    client_id=self.name.replace(" ", "-"),
                    auto_offset_reset="earliest",
                    enable_auto_commit=plan.auto_commit,
                    **plan.member_options,
                ) as consumer:
                    self._consumer = consumer
                    try:
                        await self._read(consumer)
                    finally:
                        self._consumer = None
        finally:
            self.gone.set()

    async def _read(self, consumer: Consumer) -> None:
        started: float | None = time.time()
        while not self._leaving:
            found = await consumer.getmany(timeout_ms=POLL_MS)
            now = time.time()
            if started is not None and consumer.assignment():
                self._churn.record.join_seconds.append(now - started)
                started = None
            if not found:
                continue
            epoch = consumer.group_metadata().generation_id
            for tp, records in found.items():
                assert records.first_offset is not None
                created = records[0].timestamp_ms
                assert created is not None
                span = Span(tp.partition, records.first_offset, records.next_offset)
                self._churn.record.reads.append(Read(now, created / 1000, self.name, epoch, span))
            if not self._plan.auto_commit:
                ends = {tp: records.next_offset for tp, records in found.items()}
                await self._commit(consumer, ends)

    async def _commit(self, consumer: Consumer, ends: dict[TopicPartition, int]) -> None:
        places = {PartitionOffset(tp.partition, offset) for tp, offset in ends.items()}
        known = False
        try:
            await consumer.commit(ends)
            known = True
        except CommitFailed:
            self._churn.refused += 1
            known = True
        except KafkaError as error:
            if not error.retriable:
                raise
        finally:
            if not known:
                self._churn.in_doubt |= places


class MemberChurn:
    """Current members, and everything they did."""

    def __init__(self, plan: Plan, group: anyio.abc.TaskGroup) -> None:
        self._plan = plan
        self._group = group
        self._rng = random.Random(plan.seed)
        self.present: list[ChurningMember] = []
        self.record = ChurnRecord()
        self.in_doubt: set[PartitionOffset] = set()
        self.joined = self.left = self.cut = self.refused = 0

    @property
    def spans(self) -> list[Span]:
        return [read.span for read in self.record.reads]

    def join(self) -> None:
        self.joined += 1
        attendee = ChurningMember(f"member {self.joined}", self._plan, self)
        self.present.append(attendee)
        self._group.start_soon(attendee.work, name=attendee.name)

    async def change_members(self) -> None:
        plan, rng = self._plan, self._rng
        with anyio.move_on_after(plan.seconds):
            for _ in range(plan.members // 2):
                self.join()
            while True:
                await anyio.sleep(rng.uniform(*plan.pause_seconds))
                going = len(self.present) == plan.members or rng.random() < 0.45
                if not going or len(self.present) < 2:
                    self.join()
                    continue
                attendee = self.present.pop(rng.randrange(len(self.present)))
                if rng.random() < 0.7:
                    self.left += 1
                    attendee.leave()
                else:
                    self.cut += 1
                    attendee.scope.cancel()
        while len(self.present) < plan.members:
            self.join()

    async def settle(self) -> list[str]:
        """Wait until each partition has one owner for a while; return the problems."""
        in_a_row = 0
        problems: list[str] = []
        with anyio.move_on_after(self._plan.settle_seconds):
            while in_a_row < SETTLED_LOOKS:
                await anyio.sleep(POLL_INTERVAL_S)
                problems = check_owners(
                    {attendee.name: attendee.owned for attendee in self.present},
                    self._plan.partitions,
                )
                in_a_row = 0 if problems else in_a_row + 1
        if in_a_row < SETTLED_LOOKS and not problems:
            problems = ["the owners do not stay"]
        return [f"after {self._plan.settle_seconds:.0f} s: {problem}" for problem in problems]

    async def processed(self, ends: dict[int, int]) -> list[str]:
        looks = int(self._plan.settle_seconds / POLL_INTERVAL_S)
        for _ in range(looks):
            if not check_processed(self.spans, ends):
                break
            await anyio.sleep(POLL_INTERVAL_S)
        return check_processed(self.spans, ends)

    async def stop_all(self) -> None:
        for attendee in self.present:
            attendee.leave()
        for attendee in self.present:
            await attendee.gone.wait()


class Load:
    """Writes to all partitions at a steady rate until it is stopped."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._stopping = False
        self._done = anyio.Event()
        self.ends: dict[int, int] = {}

    async def work(self) -> None:
        plan = self._plan
        pause = plan.partitions / plan.messages_per_second
        async with Producer(bootstrap_servers=plan.servers) as producer:
            while not self._stopping:
                deliveries = [
                    await producer.send(plan.topic, b"x" * 50, partition=partition)
                    for partition in range(plan.partitions)
                ]
                for delivery in deliveries:
                    receipt = await delivery
                    self.ends[receipt.partition] = receipt.offset + 1
                await anyio.sleep(pause)
        self._done.set()

    async def stop(self) -> None:
        self._stopping = True
        await self._done.wait()


async def run(plan: Plan, saw: Callable[[str], object]) -> tuple[list[str], set[PartitionOffset]]:
    """Return the problems, and the commits with unknown outcome."""
    async with anyio.create_task_group() as group:
        load, churn = Load(plan), MemberChurn(plan, group)
        group.start_soon(load.work)
        group.start_soon(churn.record.watch_stalls)
        async with anyio.create_task_group() as disturbing:
            if plan.disturb is not None:
                disturbing.start_soon(plan.disturb)
            await churn.change_members()
        saw(
            f"seed {plan.seed}, {plan.strategy}: in {plan.seconds:.0f} s {churn.joined} joined, "
            f"{churn.left} left, {churn.cut} were cancelled; {churn.refused} commits were refused"
        )
        problems = await churn.settle()
        await load.stop()
        problems += await churn.processed(load.ends)
        saw(
            f"{sum(load.ends.values()):,} messages processed, "
            f"{processed_again(churn.spans):,} of them again; "
            f"{plan.partitions} partitions owned by {len(churn.present)} members"
        )
        await churn.stop_all()
        group.cancel_scope.cancel()
    problems += check_epochs(churn.record.reads)
    record, waited = churn.record, waits(churn.record)
    saw(f"from joining to the first partitions: {describe_ms(record.join_seconds)}")
    for what, some in (("moved", waited.moved), ("stay", waited.stayed)):
        saw(f"records of partitions that {what} waited {record.describe_waits(some)}")
    at, longest = max(record.stalls, key=lambda stall: stall[1])
    saw(f"this process did not run for up to {longest * 1000:,.0f} ms ({at:.1f} s after start)")
    if waited.stayed and max(waited.stayed).seconds > plan.longest_wait_seconds + longest:
        problems.append("a partition that stays was not read for too long")
    return problems, churn.in_doubt

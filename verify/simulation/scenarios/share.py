"""Members of a share group (KIP-932) that join, leave, die, stall, and hold records."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import anyio
import anyio.abc

from aiokafkawire.broker.configs import ConfigResourceType
from aiokafkawire.errors import AcknowledgementFailed, KafkaError, NoBrokerAvailable
from aiokafkawire.runtime import with_runtime
from aiokafkawire.share import AcknowledgeType, ShareConsumer, ShareRecord
from verify.invariants.checker import Guarantees
from verify.invariants.recorder import OwnError
from verify.invariants.share_observer import locked_records, unfinished_records
from verify.simulation.faults import Scene, draw_steps
from verify.simulation.harness import ConditionTimedOut, Harness
from verify.simulation.plan import Plan, PlannedClient, Step
from verify.simulation.scenario import Scenario
from verify.simulation.scenarios.group_workers import (
    CLIENT,
    GroupWorkers,
    WorkerLife,
    draw_worker_steps,
    host_of,
    make_producer,
    send_steadily,
)

GROUP = "work"
TO_S = 25.0
POLL_MS = 300

FINISHED_WITHIN_S = 180.0
"""Time after the last fault in which every record must be finished. A handler that fails leaves the
record locked, in each delivery until the limit, and the window of locks may be full of these."""

LOCKS_END_WITHIN_S = 60.0
"""Time after the last member has left in which all locks must have ended."""

QUIET = 0.15
"""Fraction of the runs without a step, in which some checks are stricter."""

OVERDUE_S = 0.5
SAMPLE_EACH_S = 0.5

NETWORK = (
    *("kill", "shut down", "hang", "move leader", "move leader", "move leader"),
    *("move coordinator", "sever", "sever from a node", "reset", "reset", "reset in a write"),
    *("half open", "refuse connects", "slow link"),
)

REFUSALS: Mapping[str, Sequence[str]] = {
    "SHARE_FETCH": (
        "SHARE_SESSION_NOT_FOUND",
        "INVALID_SHARE_SESSION_EPOCH",
        "SHARE_SESSION_LIMIT_REACHED",
        "UNKNOWN_SERVER_ERROR",
    ),
    "SHARE_ACKNOWLEDGE": ("SHARE_SESSION_NOT_FOUND", "INVALID_SHARE_SESSION_EPOCH"),
    "SHARE_GROUP_HEARTBEAT": (
        "NOT_COORDINATOR",
        "COORDINATOR_NOT_AVAILABLE",
        "COORDINATOR_LOAD_IN_PROGRESS",
        "UNKNOWN_MEMBER_ID",
        "FENCED_MEMBER_EPOCH",
    ),
}
"""Errors that a broker may return without handling the request."""


REJOINS = ("UNKNOWN_MEMBER_ID", "FENCED_MEMBER_EPOCH")
"""Errors after which a member joins again; one for that is none of a working broker."""


def draw(rng: random.Random) -> Plan:
    topics = {f"jobs{n}": rng.randint(1, 3) for n in range(rng.choice((1, 1, 2)))}
    workers = tuple(_draw_worker(rng, number) for number in range(rng.randint(2, 4)))
    clients = [PlannedClient("sender", "10.0.1.1", "sends", {"pause_s": 0.2})]
    if rng.random() < 0.3:
        clients.append(PlannedClient("bank", "10.0.1.2", "transacts"))
    clients += workers
    scene = Scene(3, [each.host for each in clients], topics, groups=(GROUP,))
    steps = [
        *draw_worker_steps(rng, workers, rng.choice((0, 2, 5, 8)), TO_S),
        *_cancellations(rng, workers),
        *bad_answers(rng),
        *draw_steps(
            rng, scene, count=rng.choice((0, 1, 3, 6)), from_s=0.1, to_s=TO_S, kinds=NETWORK
        ),
    ]
    return Plan(
        broker={
            "nodes": 3,
            "as_of": rng.choice((None, None, "4.2", "4.3", "4.4")),
            "auto_create_topics": False,
            "coordinator_load_ms": rng.choice((0, 0, 300)),
            "group_share_session_timeout_ms": 3_000,
            "group_share_heartbeat_interval_ms": 300,
            "group_share_assignment_interval_ms": rng.choice((0, 0, 1_000)),
            "group_share_record_lock_duration_ms": rng.choice((2_000, 4_000, 10_000)),
            "group_share_delivery_count_limit": rng.choice((2, 5, 5, 10)),
            "group_share_partition_max_record_locks": rng.choice((10, 2_000, 2_000)),
        },
        network={"max_delay_s": rng.choice((0.002, 0.02))},
        topics=topics,
        options={"isolation": rng.choice(("read_committed", "read_uncommitted"))},
        records=rng.randint(30, 120),
        clients=tuple(clients),
        steps=() if rng.random() < QUIET else tuple(sorted(steps, key=lambda step: step.at_s)),
    )


def _draw_worker(rng: random.Random, number: int) -> PlannedClient:
    mode = rng.choice(("implicit", "explicit"))
    arguments = {
        "comes_at_s": round(rng.choice((0.0, rng.uniform(0, TO_S / 4))), 3),
        "mode": mode,
        "reads": rng.choice(list(READS)),
        "works": "one by one" if mode == "implicit" else rng.choice(list(WORKS)),
        "acquires": rng.choice(("batch_optimized", "batch_optimized", "record_limit")),
        "max_poll_records": rng.choice((1, 5, 50)),
        "renewal_limit_ms": rng.choice((0, 0, 3_000)),
        "work_s": rng.choice((0.0, 0.05, 0.3)),
        "fails": rng.choice((0.0, 0.0, 0.1)),
        "closes": bool(number % 2),
    }
    return PlannedClient(f"worker-{number}", host_of(number), "works", arguments)


def _cancellations(rng: random.Random, workers: Sequence[PlannedClient]) -> list[Step]:
    """Draw cancellations of the task that reads, which may hold records."""
    return [
        Step(round(rng.uniform(0.5, TO_S), 3), "cancel", {"worker": rng.choice(workers).name})
        for _ in range(rng.choice((0, 1, 4)))
    ]


def bad_answers(rng: random.Random) -> list[Step]:
    """Draw responses that are lost, late or errors."""
    steps = []
    for _ in range(rng.choice((0, 1, 4, 8))):
        arguments: dict[str, Any] = {"api": rng.choice(list(REFUSALS)), "times": rng.randint(1, 2)}
        kind = rng.choice(("close instead of an answer", "no answer", "late answer", "refusal"))
        if kind == "late answer":
            arguments["by_s"] = round(rng.uniform(0.05, 4), 3)
        elif kind == "refusal":
            arguments["code"] = rng.choice(REFUSALS[arguments["api"]])
            if arguments["code"] in REJOINS:
                arguments["times"] = 1
        else:
            arguments["carried_out"] = rng.random() < 0.7
        steps.append(Step(round(rng.uniform(0.5, TO_S), 3), kind, arguments))
    return steps


# --- how applications read and work ---


async def read_many(worker: Any, life: ShareLife) -> None:
    while not life.over:
        for records in (await worker.getmany(timeout_ms=POLL_MS)).values():
            await life.work(records)


async def read_one(worker: Any, life: ShareLife) -> None:
    while not life.over:
        record = await worker.getone(timeout_ms=POLL_MS)
        if record is not None:
            await life.work([record])


async def read_on(worker: Any, life: ShareLife) -> None:
    async for record in worker:
        await life.work([record])
        if life.over:
            return


async def read_batches(worker: Any, life: ShareLife) -> None:
    async for records in worker.batches():
        await life.work(records)
        if life.over:
            return


READS: Mapping[str, Callable[[Any, ShareLife], Awaitable[None]]] = {
    "many": read_many,
    "one": read_one,
    "on": read_on,
    "batches": read_batches,
}
"""Ways in which a member reads."""

DECISIONS = (
    *(AcknowledgeType.ACCEPT,) * 6,
    AcknowledgeType.RELEASE,
    AcknowledgeType.REJECT,
    AcknowledgeType.RENEW,
)


class ShareLife:
    """A life of a member: its consumer, and what it does with records."""

    def __init__(self, life: WorkerLife, worker: Any, tasks: anyio.abc.TaskGroup) -> None:
        self.life = life
        self.worker = worker
        self._tasks = tasks

    @property
    def over(self) -> bool:
        return self.life.over

    async def work(self, records: Sequence[ShareRecord]) -> None:
        """Process records, as this member does."""
        await WORKS[self.life.argument("works")](self, records)

    async def one_by_one(self, records: Sequence[ShareRecord]) -> None:
        for record in records:
            await self.life.handle()
            if self.life.rng.random() < self.life.argument("fails"):
                raise OwnError("the handler fails")
            if self.life.argument("mode") == "explicit":
                self.decide(record)

    async def confirmed(self, records: Sequence[ShareRecord]) -> None:
        """Wait for the result of each acknowledgement."""
        for record in records:
            await self.life.handle()
            try:
                await self.worker.confirm(record, self.life.rng.choice(DECISIONS))
            except AcknowledgementFailed as error:
                self.life.harness.note(f"{self.life.name}: {error}")

    async def committed(self, records: Sequence[ShareRecord]) -> None:
        await self.one_by_one(records)
        try:
            await self.worker.commit()
        except KafkaError as error:
            self.life.harness.note(f"{self.life.name}: {error}")

    async def in_tasks(self, records: Sequence[ShareRecord]) -> None:
        """Process each record in a task of its own."""
        for record in records:
            self._tasks.start_soon(self._handle, record)
        await self.life.handle()

    async def _handle(self, record: ShareRecord) -> None:
        try:
            async with self.worker.handling(record):
                await anyio.sleep(self.life.rng.uniform(0, 1))
                if self.life.rng.random() < self.life.argument("fails"):
                    raise OwnError("the handler fails")
        except OwnError:
            pass

    def decide(self, record: ShareRecord) -> None:
        try:
            decision = self.life.rng.choice(DECISIONS)
            self.worker.acknowledge(record, decision)
            if decision is AcknowledgeType.RENEW:
                self.worker.acknowledge(record, AcknowledgeType.ACCEPT)
        except AcknowledgementFailed as error:
            self.life.harness.note(f"{self.life.name}: {error}")


WORKS: Mapping[str, Callable[[ShareLife, Sequence[ShareRecord]], Awaitable[None]]] = {
    "one by one": ShareLife.one_by_one,
    "confirmed": ShareLife.confirmed,
    "committed": ShareLife.committed,
    "in tasks": ShareLife.in_tasks,
}
"""Ways in which a member processes records; in the implicit mode only the first."""


class Members:
    """Runs the members, and cancels the tasks that read."""

    def __init__(self, harness: Harness) -> None:
        self._harness = harness
        self._reading: dict[str, anyio.CancelScope] = {}

    def consumer(self, life: WorkerLife) -> Any:
        """Create a recorded share consumer for a life."""
        life.clients.append(life.name)
        consumer = ShareConsumer(
            *self._harness.plan.topics,
            **self._harness.client_options,
            **CLIENT,
            client_id=life.name,
            group_id=GROUP,
            share_acknowledgement_mode=life.argument("mode"),
            share_acquire_mode=life.argument("acquires"),
            share_renewal_limit_ms=life.argument("renewal_limit_ms"),
            max_poll_records=life.argument("max_poll_records"),
            max_poll_interval_ms=6_000,
            default_api_timeout_ms=20_000,
        )
        with_runtime(consumer, self._harness.runtime(life.client.host))
        return self._harness.recorder.share_consumer(consumer, life.name)

    async def run(self, life: WorkerLife) -> None:
        """Read in a task that may be cancelled, and replaced by another one.

        A worker that `closes` reads in the task that closes the consumer.
        """
        worker = self.consumer(life)
        async with worker:
            while not life.over:
                if life.argument("closes"):
                    await self._read(worker, life)
                    continue
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(self._read, worker, life)

    async def _read(self, worker: Any, life: WorkerLife) -> None:
        with anyio.CancelScope() as scope:
            self._reading[life.client.name] = scope
            try:
                async with anyio.create_task_group() as tasks:
                    share_life = ShareLife(life, worker, tasks)
                    await READS[life.argument("reads")](worker, share_life)
                    tasks.cancel_scope.cancel()
            except* OwnError as error:
                self._harness.note(f"{life.name}: {error.exceptions[0]}")

    async def cancel(self, worker: str) -> None:
        """Cancel the reading task of a member, with those that it has started."""
        if worker in self._reading:
            self._reading[worker].cancel()


async def watch_locks(harness: Harness) -> None:
    """Report locks that outlast their time."""
    while True:
        await anyio.sleep(SAMPLE_EACH_S)
        for locked in locked_records(harness.broker):
            late_s = harness.now() - locked.deadline
            if late_s > OVERDUE_S:
                text = f"the lock of {locked.first} to {locked.last} ended {late_s:.1f} s ago"
                harness.violated(18, f"{text}, and {locked.member_id} still has it")


async def run(harness: Harness) -> None:
    configs = {
        "share.auto.offset.reset": "earliest",
        "share.isolation.level": harness.plan.options["isolation"],
    }
    harness.broker._running.cluster.alter_configs(ConfigResourceType.GROUP, GROUP, configs)
    await harness.make_topics()
    members = Members(harness)
    workers = harness.plan.of("works")
    harness.on("cancel", members.cancel)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(watch_locks, harness)
        group_workers = GroupWorkers(
            harness, tasks, workers, members.run, expects=(NoBrokerAvailable,)
        )
        async with anyio.create_task_group() as busy:
            busy.start_soon(harness.run_steps)
            for client in harness.plan.of("sends"):
                busy.start_soon(send_steadily, harness, client)
            for client in harness.plan.of("transacts"):
                busy.start_soon(transact, harness, client)
        if workers:
            await until_finished(harness)
        await group_workers.stop_all()
        await until_unlocked(harness)
        tasks.cancel_scope.cancel()


async def until_finished(harness: Harness, group: str = GROUP) -> None:
    def left() -> list[tuple[str, int, int]]:
        return [
            (topic, *place)
            for topic in harness.plan.topics
            for place in unfinished_records(harness.broker, group, topic)
        ]

    try:
        await harness.until(lambda: not left(), "every record is finished", FINISHED_WITHIN_S)
    except ConditionTimedOut as error:
        raise ConditionTimedOut(f"{error}: {len(left())} records, {left()[:5]}") from None


async def until_unlocked(harness: Harness) -> None:
    """Check that no lock is left without a member."""
    try:
        await harness.until(
            lambda: not list(locked_records(harness.broker)), "no lock is left", LOCKS_END_WITHIN_S
        )
    except ConditionTimedOut:
        for locked in locked_records(harness.broker):
            harness.violated(18, f"{locked} is left {LOCKS_END_WITHIN_S} s after the last member")


async def transact(harness: Harness, client: PlannedClient) -> None:
    """Write in transactions, and abort some of them: control records are gaps."""
    rng = harness.rng(client.name)
    bank = make_producer(harness, client.name, client.host, transactional_id=client.name)
    topics = list(harness.plan.topics)
    try:
        async with bank:
            for _ in range(harness.plan.records // 10):
                await anyio.sleep(rng.uniform(0, 2))
                try:
                    async with bank.transaction():
                        for _ in range(rng.randint(1, 3)):
                            await bank.send(rng.choice(topics), bank.value())
                        if rng.random() < 0.5:
                            raise OwnError("the application aborts")
                except OwnError:
                    pass
    except KafkaError as error:
        harness.note(f"{client.name}: {error}")


def guarantees(plan: Plan) -> Guarantees:
    return Guarantees(share_groups=(GROUP,) if plan.of("works") else ())


SCENARIO = Scenario("share", draw, run, guarantees, share=30)

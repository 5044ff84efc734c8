"""Slow consumers: buffers stay small, and work may exceed the poll interval."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import Any

import anyio

from aiokafkawire.errors import CommitFailed, KafkaError
from aiokafkawire.records import Records
from verify.invariants.checker import Guarantees
from verify.simulation.faults import Scene, draw_steps
from verify.simulation.harness import Harness
from verify.simulation.plan import Plan, PlannedClient
from verify.simulation.scenario import Scenario
from verify.simulation.scenarios.group_workers import (
    GroupWorkers,
    WorkerLife,
    draw_worker_steps,
    host_of,
    make_producer,
)

TOPIC, GROUP = "orders", "billing"
TO_S = 15.0
KIB = 1_024
LOOK_EVERY_S = 0.1
BATCH_BYTES = 16 * KIB
TASKS = 3
HOARDS: Mapping[str, Any] = {"automatic": True, "work_s": 0.05, "max_poll_records": 50}
MANNERS: Mapping[str, Mapping[str, Any]] = {
    "many fetches at once": {
        "reads": "and works",
        "max_partition_fetch_bytes": KIB,
        "batch_bytes": KIB // 2,
    },
    "in tasks": {"reads": "in tasks", "max_poll_records": 5, "batch_bytes": BATCH_BYTES},
    "long from the buffer": {"reads": "one by one", "work_s": 0.4, "batch_bytes": BATCH_BYTES},
}
"""Ways to have much unfinished work, and sizes of batches."""


def draw(rng: random.Random) -> Plan:
    partitions = rng.randint(1, 6)
    arguments = {
        "fetch_max_bytes": rng.choice((8, 32, 128)) * KIB,
        "max_partition_fetch_bytes": rng.choice((2, 8, 32)) * KIB,
        "max_poll_records": rng.choice((1, 5, 50)),
        "strategy": rng.choice(("range", "cooperative-sticky")),
        "automatic": rng.random() < 0.5,
    }
    # Tasks that commit their own records manually would commit in any order.
    reads = [name for name in READS if arguments["automatic"] or name != "in tasks"]
    workers = tuple(
        PlannedClient(
            f"worker-{number}",
            host_of(number),
            "works",
            {
                **arguments,
                "work_s": rng.choice((0.01, 0.05, 0.2)),
                "reads": rng.choice(reads),
            },
        )
        for number in range(rng.randint(1, 3))
    )
    sender = PlannedClient(
        "sender", "10.0.1.1", "sends", {"bytes": rng.choice((100, 1_000, 4_000))}
    )
    hosts = [client.host for client in (sender, *workers)]
    scene = Scene(3, hosts, {TOPIC: partitions}, groups=(GROUP,))
    worker_steps = draw_worker_steps(rng, workers, rng.randint(0, 4), TO_S)
    faults = draw_steps(rng, scene, count=rng.randint(0, 3), from_s=0.1, to_s=TO_S)
    plan = Plan(
        broker={"nodes": 3, "group_min_session_timeout_ms": 100},
        network={
            "max_delay_s": rng.choice((0.002, 0.02)),
            "bandwidth_bytes_per_s": rng.choice((None, 100_000)),
        },
        topics={TOPIC: partitions},
        records=rng.randint(50, 150),
        clients=(sender, *workers),
        steps=tuple(sorted((*worker_steps, *faults), key=lambda step: step.at_s)),
    )
    manner = rng.choice((*MANNERS, None, None))
    return plan if manner is None else _in_manner(plan, MANNERS[manner])


def _in_manner(plan: Plan, manner: Mapping[str, Any]) -> Plan:
    """Draw few other faults, and workers with auto-commit."""
    clients = tuple(
        replace(client, arguments={**client.arguments, **HOARDS, **manner})
        if client.kind == "works"
        else replace(client, arguments={"bytes": 100, "batch_bytes": manner["batch_bytes"]})
        for client in plan.clients
    )
    return replace(plan, records=150, clients=clients, steps=plan.steps[:1])


async def run(harness: Harness) -> None:
    await harness.make_topics()
    async with anyio.create_task_group() as tasks:
        group_workers = GroupWorkers(harness, tasks, harness.plan.of("works"), work)
        async with anyio.create_task_group() as busy:
            busy.start_soon(harness.run_steps)
            for client in harness.plan.of("sends"):
                busy.start_soon(send, harness, client)
        if harness.plan.of("works"):
            await harness.until_consumed(TOPIC)
            await harness.until_settled()
        await group_workers.stop_all()


async def send(harness: Harness, client: PlannedClient) -> None:
    """Send all at once; the producer's buffer holds less."""
    payload = b"." * client.arguments["bytes"]
    sender = make_producer(
        harness,
        client.name,
        client.host,
        buffer_memory_bytes=64 * KIB,
        batch_size_bytes=client.arguments.get("batch_bytes", BATCH_BYTES),
    )
    async with sender as producer:
        deliveries = [
            await producer.send(TOPIC, producer.value(payload)) for _ in range(harness.plan.records)
        ]
        for delivery in deliveries:
            try:
                await delivery
            except KafkaError as error:
                harness.note(f"{client.name}: {error}")


async def work(life: WorkerLife) -> None:
    options = ("fetch_max_bytes", "max_partition_fetch_bytes", "max_poll_records")
    consumer = life.consumer(
        TOPIC,
        group_id=GROUP,
        enable_auto_commit=life.argument("automatic"),
        partition_assignment_strategy=[life.argument("strategy")],
        **{name: life.argument(name) for name in options},
    )
    async with consumer as worker, anyio.create_task_group() as tasks:
        tasks.start_soon(watch, worker, life)
        await READS[life.argument("reads")](worker, life)
        tasks.cancel_scope.cancel()


async def read_and_work(worker: Any, life: WorkerLife) -> None:
    """Poll only after the work; work that takes too long loses the partitions."""
    while not life.over:
        for batch in (await worker.getmany(timeout_ms=300)).values():
            await life.handle(len(batch))
            await commit(worker, life, batch)


async def read_on_paused(worker: Any, life: WorkerLife) -> None:
    """Work in tasks and go on polling, with the partitions in work paused."""
    async with anyio.create_task_group() as works:
        while not life.over:
            for tp, batch in (await worker.getmany(timeout_ms=300)).items():
                worker.pause(tp)
                works.start_soon(work_beside, worker, life, batch)


async def work_beside(worker: Any, life: WorkerLife, batch: Records) -> None:
    await life.handle(len(batch))
    await commit(worker, life, batch)
    if batch.topic_partition in worker.assignment():
        worker.resume(batch.topic_partition)


async def read_one_by_one(worker: Any, life: WorkerLife) -> None:
    """Fetched records are returned without waiting, even past the longest time without a call."""
    async for _ in worker:
        await life.handle()
        if life.over:
            return


async def read_in_tasks(worker: Any, life: WorkerLife) -> None:
    """Let several tasks poll; each processes its own records."""
    async with anyio.create_task_group() as works:
        for _ in range(TASKS):
            works.start_soon(read_and_work, worker, life)


READS: Mapping[str, Callable[[Any, WorkerLife], Awaitable[None]]] = {
    "and works": read_and_work,
    "on, paused": read_on_paused,
    "in tasks": read_in_tasks,
    "one by one": read_one_by_one,
}


async def commit(worker: Any, life: WorkerLife, batch: Records) -> None:
    if life.argument("automatic"):
        return
    try:
        await worker.commit(batch)
    except CommitFailed as error:
        life.harness.note(f"{life.name}: {error}")


async def watch(worker: Any, life: WorkerLife) -> None:
    """Fetched but undelivered bytes stay within the limits of the options."""
    largest = max(life.argument("max_partition_fetch_bytes"), BATCH_BYTES + KIB)
    kept = life.argument("max_partition_fetch_bytes") + largest
    while True:
        owned = len(worker.assignment())
        held = worker.metrics()["buffered_bytes"]
        if held > owned * kept:
            text = f"{life.name} holds {held} bytes of {owned} partitions, {kept} allowed of each"
            life.harness.violated(10, text)
        await anyio.sleep(LOOK_EVERY_S)


def guarantees(plan: Plan) -> Guarantees:
    return Guarantees(complete_groups=(GROUP,) if plan.of("works") else ())


SCENARIO = Scenario("slow", draw, run, guarantees)

"""Topics are deleted, recreated and enlarged while clients write and read."""

from __future__ import annotations

import random
import re
from typing import Any

import anyio

from aiokafkawire.errors import UnknownTopic
from aiokafkawire.types import TopicPartition
from verify.invariants.checker import Guarantees
from verify.simulation.faults import Scene, draw_steps
from verify.simulation.harness import ConditionTimedOut, Harness
from verify.simulation.plan import Plan, PlannedClient, Step
from verify.simulation.scenario import Scenario
from verify.simulation.scenarios.group_workers import (
    COMMITS,
    FAILURES,
    READS,
    GroupWorkers,
    WorkerLife,
    draw_worker_steps,
    host_of,
    make_consumer,
    send_steadily,
)

GROUP = "billing"
PATTERN = r"orders\d"
TO_S = 15.0
MOST_PARTITIONS = 6
FRESH_MS = 2_000
"""Maximum age of metadata: the time in which a reader learns of a change."""


def draw(rng: random.Random) -> Plan:
    topics = {f"orders{number}": rng.randint(1, 3) for number in range(rng.randint(1, 3))}
    strategy = rng.choice(("range", "sticky", "cooperative-sticky"))
    workers = tuple(
        PlannedClient(
            f"worker-{number}",
            host_of(number),
            "works",
            {
                "strategy": strategy,
                "pattern": rng.random() < 0.5,
                "reads": rng.choice(list(READS)),
                "commits": rng.choice(COMMITS),
            },
        )
        for number in range(rng.randint(1, 3))
    )
    sender = PlannedClient("sender", "10.0.1.1", "sends", {"pause_s": 0.1})
    onlookers = tuple(
        PlannedClient(f"onlooker-{number}", f"10.0.3.{number}", "looks")
        for number in range(rng.randint(0, 1))
    )
    clients = (sender, *onlookers, *workers)
    scene = Scene(3, [client.host for client in clients], topics, groups=(GROUP,))
    changes = [_draw_change(rng, list(topics)) for _ in range(rng.randint(1, 5))]
    worker_steps = draw_worker_steps(rng, workers, rng.randint(0, 2), TO_S)
    faults = draw_steps(rng, scene, count=rng.randint(0, 2), from_s=0.1, to_s=TO_S)
    return Plan(
        broker={
            "nodes": 3,
            "as_of": rng.choice((None, None, "2.8", "2.0")),
            "auto_create_topics": False,
            "group_min_session_timeout_ms": 100,
        },
        network={"max_delay_s": rng.choice((0.002, 0.02))},
        topics=topics,
        records=rng.randint(40, 120),
        clients=clients,
        steps=tuple(sorted((*changes, *worker_steps, *faults), key=lambda step: step.at_s)),
    )


def _draw_change(rng: random.Random, topics: list[str]) -> Step:
    at_s, topic = round(rng.uniform(0.5, TO_S), 3), rng.choice(topics)
    if rng.random() < 0.4:
        return Step(at_s, "grow", {"topic": topic, "by": rng.randint(1, 2)})
    again = {
        "partitions": rng.randint(1, 3),
        "for_s": round(rng.choice((0.0, rng.uniform(0, 6))), 3),
    }
    return Step(at_s, "recreate", {"topic": topic, **again})


async def run(harness: Harness) -> None:
    await harness.make_topics()

    async def grow(topic: str, by: int) -> None:
        there = harness.broker.topics.get(topic)
        if there is not None and there < MOST_PARTITIONS:
            await harness.grow_topic(topic, there + by)

    async def recreate(topic: str, partitions: int, for_s: float) -> None:
        if topic in harness.broker.topics:
            await harness.delete_topic(topic)
            await anyio.sleep(for_s)
            await harness.make_topic(topic, partitions)

    harness.on("grow", grow)
    harness.on("recreate", recreate)
    workers = harness.plan.of("works")
    onlookers: list[Any] = []
    async with anyio.create_task_group() as tasks:
        group_workers = GroupWorkers(
            harness, tasks, workers, work, expects=(*FAILURES, UnknownTopic)
        )
        for client in harness.plan.of("looks"):
            tasks.start_soon(look, harness, client, onlookers)
        async with anyio.create_task_group() as busy:
            busy.start_soon(harness.run_steps)
            for client in harness.plan.of("sends"):
                busy.start_soon(send, harness, client)
        if workers:
            if topics := known_topics(harness.plan):
                await until_consumed(harness, topics)
            await harness.until_settled()
        there = {
            TopicPartition(t, n) for t, count in harness.broker.topics.items() for n in range(count)
        }
        await harness.until(
            lambda: all(set(onlooker.assignment()) == there for onlooker in onlookers),
            "who looks on reads all partitions that there are, and no other",
        )
        await group_workers.stop_all()
        tasks.cancel_scope.cancel()


async def until_consumed(harness: Harness, topics: list[str]) -> None:
    """Wait until the group was given each record, or may have missed some."""
    try:
        await harness.until_consumed(*topics, group=GROUP)
    except ConditionTimedOut:
        if has_ids_everywhere(harness.plan):
            raise
        # Invariant 11 knows which commits of offsets of an old topic may hide records.


async def send(harness: Harness, client: PlannedClient) -> None:
    options = {"metadata_max_age_ms": FRESH_MS, "max_block_ms": 3_000, "delivery_timeout_ms": 6_000}
    await send_steadily(harness, client, **options)


async def work(life: WorkerLife) -> None:
    worker = life.consumer(
        group_id=GROUP,
        enable_auto_commit=life.argument("commits") == "automatic",
        metadata_max_age_ms=FRESH_MS,
        partition_assignment_strategy=[life.argument("strategy")],
    )
    if life.argument("pattern"):
        worker.subscribe(pattern=re.compile(PATTERN))
    else:
        worker.subscribe(list(life.harness.plan.topics))
    async with worker:
        await READS[life.argument("reads")](worker, life)


def known_topics(plan: Plan) -> list[str]:
    """Return the topics that must be read completely: not those recreated where topics have no
    ids."""
    recreated = {step.arguments["topic"] for step in plan.steps if step.kind == "recreate"}
    return [topic for topic in plan.topics if has_ids(plan) or topic not in recreated]


def has_ids(plan: Plan) -> bool:
    return plan.broker["as_of"] != "2.0"


def has_ids_everywhere(plan: Plan) -> bool:
    return plan.broker["as_of"] is None


async def look(harness: Harness, client: PlannedClient, onlookers: list[Any]) -> None:
    """Read everything that matches, without a group."""
    onlooker = make_consumer(harness, client.name, client.host, metadata_max_age_ms=FRESH_MS)
    onlooker.subscribe(pattern=re.compile(PATTERN))
    async with onlooker:
        onlookers.append(onlooker)
        while True:
            await onlooker.getmany(timeout_ms=500)


def guarantees(plan: Plan) -> Guarantees:
    return Guarantees(
        topics_remade=any(step.kind == "recreate" for step in plan.steps),
        in_metadata=has_ids(plan),
        in_fetches=has_ids_everywhere(plan),
        in_commits=has_ids_everywhere(plan),
        complete_groups=(GROUP,) if plan.of("works") else (),
    )


SCENARIO = Scenario("topics", draw, run, guarantees, share=15)

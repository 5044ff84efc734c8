"""Topics that are deleted, made again and grow under those who write and read them."""

from __future__ import annotations

import random
import re
from typing import Any

import anyio

from aiokafkawire.errors import UnknownTopic
from aiokafkawire.types import TopicPartition
from tests.invariants.checker import Promises
from tests.simulation.faults import Scene, draw_steps
from tests.simulation.harness import Stage
from tests.simulation.plan import Plan, PlannedClient, Step
from tests.simulation.scenario import Programme
from tests.simulation.scenarios.group_workers import (
    COMMITS,
    FAILURES,
    READS,
    Crew,
    Shift,
    a_consumer,
    host_of,
    send_steadily,
    steps_of_life,
)

GROUP = "billing"
PATTERN = r"orders\d"
TO_S = 15.0
MOST_PARTITIONS = 6
FRESH_MS = 2_000
"""How old metadata may be: so soon a reader hears of what has changed."""


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
    changes = [_a_change(rng, list(topics)) for _ in range(rng.randint(1, 5))]
    lives = steps_of_life(rng, workers, rng.randint(0, 2), TO_S)
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
        steps=tuple(sorted((*changes, *lives, *faults), key=lambda step: step.at_s)),
    )


def _a_change(rng: random.Random, topics: list[str]) -> Step:
    at_s, topic = round(rng.uniform(0.5, TO_S), 3), rng.choice(topics)
    if rng.random() < 0.4:
        return Step(at_s, "grow", {"topic": topic, "by": rng.randint(1, 2)})
    again = {
        "partitions": rng.randint(1, 3),
        "for_s": round(rng.choice((0.0, rng.uniform(0, 6))), 3),
    }
    return Step(at_s, "make anew", {"topic": topic, **again})


async def run(stage: Stage) -> None:
    await stage.make_topics()

    async def grow(topic: str, by: int) -> None:
        there = stage.broker.topics.get(topic)
        if there is not None and there < MOST_PARTITIONS:
            await stage.grow_topic(topic, there + by)

    async def make_anew(topic: str, partitions: int, for_s: float) -> None:
        if topic in stage.broker.topics:
            await stage.delete_topic(topic)
            await anyio.sleep(for_s)
            await stage.make_topic(topic, partitions)

    stage.on("grow", grow)
    stage.on("make anew", make_anew)
    workers = stage.plan.of("works")
    onlookers: list[Any] = []
    async with anyio.create_task_group() as tasks:
        crew = Crew(stage, tasks, workers, work, expects=(*FAILURES, UnknownTopic))
        for client in stage.plan.of("looks"):
            tasks.start_soon(look, stage, client, onlookers)
        async with anyio.create_task_group() as busy:
            busy.start_soon(stage.carry_out)
            for client in stage.plan.of("sends"):
                busy.start_soon(send, stage, client)
        if workers:
            if told := told_of(stage.plan):
                await stage.until_consumed(*told, group=GROUP)
            await stage.until_settled()
        there = {
            TopicPartition(t, n) for t, count in stage.broker.topics.items() for n in range(count)
        }
        await stage.until(
            lambda: all(set(onlooker.assignment()) == there for onlooker in onlookers),
            "who looks on reads all partitions that there are, and no other",
        )
        await crew.dismiss()
        tasks.cancel_scope.cancel()


async def send(stage: Stage, client: PlannedClient) -> None:
    options = {"metadata_max_age_ms": FRESH_MS, "max_block_ms": 3_000, "delivery_timeout_ms": 6_000}
    await send_steadily(stage, client, **options)


async def work(shift: Shift) -> None:
    worker = shift.consumer(
        group_id=GROUP,
        enable_auto_commit=shift.told("commits") == "automatic",
        metadata_max_age_ms=FRESH_MS,
        partition_assignment_strategy=[shift.told("strategy")],
    )
    if shift.told("pattern"):
        worker.subscribe(pattern=re.compile(PATTERN))
    else:
        worker.subscribe(list(shift.stage.plan.topics))
    async with worker:
        await READS[shift.told("reads")](worker, shift)


def told_of(plan: Plan) -> list[str]:
    """The topics of which readers are told all: not those made anew where topics have no ids."""
    anew = {step.arguments["topic"] for step in plan.steps if step.kind == "make anew"}
    return [topic for topic in plan.topics if has_ids(plan) or topic not in anew]


def has_ids(plan: Plan) -> bool:
    return plan.broker["as_of"] != "2.0"


async def look(stage: Stage, client: PlannedClient, onlookers: list[Any]) -> None:
    """Reads everything that matches, without a group."""
    onlooker = a_consumer(stage, client.name, client.host, metadata_max_age_ms=FRESH_MS)
    onlooker.subscribe(pattern=re.compile(PATTERN))
    async with onlooker:
        onlookers.append(onlooker)
        while True:
            await onlooker.getmany(timeout_ms=500)


def promises(plan: Plan) -> Promises:
    return Promises(
        topics_remade=any(step.kind == "make anew" for step in plan.steps),
        in_metadata=has_ids(plan),
        in_fetches=plan.broker["as_of"] is None,
        complete_groups=(GROUP,) if plan.of("works") else (),
    )


PROGRAMME = Programme("topics", draw, run, promises, share=15)

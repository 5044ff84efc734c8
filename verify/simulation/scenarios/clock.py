"""Wall clocks jump, on one host or on all: timeouts must follow the elapsed time."""

from __future__ import annotations

import random

import anyio

from verify.invariants.checker import Guarantees
from verify.simulation.faults import Scene, draw_steps
from verify.simulation.harness import Harness
from verify.simulation.plan import BROKER_HOST, Plan, PlannedClient, Step
from verify.simulation.scenario import Scenario
from verify.simulation.scenarios.group_workers import (
    COMMITS,
    READS,
    GroupWorkers,
    WorkerLife,
    host_of,
    send_steadily,
)

TOPIC, GROUP = "orders", "billing"
TO_S = 10.0
MINUTE_S, HOUR_S, DAY_S = 60.0, 3_600.0, 86_400.0


def draw(rng: random.Random) -> Plan:
    partitions = rng.randint(1, 4)
    strategy = rng.choice(("range", "cooperative-sticky"))
    workers = tuple(
        PlannedClient(
            f"worker-{number}",
            host_of(number),
            "works",
            {
                "strategy": strategy,
                "reads": rng.choice(list(READS)),
                "commits": rng.choice(COMMITS),
            },
        )
        for number in range(rng.randint(1, 3))
    )
    sender = PlannedClient("sender", "10.0.1.1", "sends", {"pause_s": 0.1})
    hosts = [client.host for client in (sender, *workers)]
    scene = Scene(3, hosts, {TOPIC: partitions}, groups=(GROUP,))
    jumps = [_draw_jump(rng, hosts) for _ in range(rng.randint(1, 6))]
    faults = draw_steps(rng, scene, count=rng.randint(0, 2), from_s=0.1, to_s=TO_S)
    return Plan(
        broker={"nodes": 3, "group_min_session_timeout_ms": 100},
        network={"max_delay_s": rng.choice((0.002, 0.02))},
        topics={TOPIC: partitions},
        records=rng.randint(20, 80),
        clients=(sender, *workers),
        steps=tuple(sorted((*jumps, *faults), key=lambda step: step.at_s)),
    )


def _draw_jump(rng: random.Random, hosts: list[str]) -> Step:
    by_s = rng.choice((-1, 1)) * rng.choice((0.5, 5.0, MINUTE_S, HOUR_S / 2, HOUR_S, DAY_S))
    host = rng.choice((None, BROKER_HOST, *hosts))
    return Step(round(rng.uniform(0.1, TO_S), 3), "jump", {"host": host, "by_s": by_s})


async def run(harness: Harness) -> None:
    await harness.make_topics()

    async def jump(host: str | None, by_s: float) -> None:
        clock = harness.world.clock if host is None else harness.runtime(host).clock
        clock.jump(by_s)

    harness.on("jump", jump)
    workers = harness.plan.of("works")
    async with anyio.create_task_group() as tasks:
        group_workers = GroupWorkers(harness, tasks, workers, work)
        async with anyio.create_task_group() as busy:
            busy.start_soon(harness.run_steps)
            for client in harness.plan.of("sends"):
                # A record from a host whose clock is ahead of the brokers' is rejected.
                busy.start_soon(send_steadily, harness, client)
        if workers:
            await harness.until_consumed(TOPIC)
            await harness.until_settled()
        await group_workers.stop_all()


async def work(life: WorkerLife) -> None:
    consumer = life.consumer(
        TOPIC,
        group_id=GROUP,
        enable_auto_commit=life.argument("commits") == "automatic",
        partition_assignment_strategy=[life.argument("strategy")],
    )
    async with consumer as worker:
        await READS[life.argument("reads")](worker, life)


def guarantees(plan: Plan) -> Guarantees:
    return Guarantees(complete_groups=(GROUP,) if plan.of("works") else ())


SCENARIO = Scenario("clock", draw, run, guarantees, share=6)

"""Workers of a share group process records that fail in all ways, and leave, die and stall."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import anyio

from aiokafkawire.broker.configs import ConfigResourceType
from aiokafkawire.runtime import with_runtime
from aiokafkawire.worker import RetryPolicy, Worker
from verify.invariants.checker import Guarantees
from verify.simulation.faults import Scene, draw_steps
from verify.simulation.harness import Harness
from verify.simulation.plan import Plan, PlannedClient, Step
from verify.simulation.scenario import Scenario
from verify.simulation.scenarios import share, worker
from verify.simulation.scenarios.group_workers import (
    CLIENT,
    GroupWorkers,
    WorkerLife,
    draw_worker_steps,
    host_of,
)
from verify.simulation.share_worker_ledger import ShareWorkerLedger

GROUP = worker.GROUP
TOPIC = worker.TOPIC
DEAD = worker.DEAD
QUEUE = "dlq.billing"
"""Dead letter topic of the brokers (KIP-1191)."""

TO_S = worker.TO_S
QUIET = 0.2
"""Fraction of the runs without a step, in which no lock may expire."""


def draw(rng: random.Random) -> Plan:
    partitions = rng.randint(1, 3)
    options = _draw_options(rng)
    work_s = rng.choice((0.0, 0.3 * options["concurrency"]))  # the latter keeps handlers busy
    workers = tuple(
        PlannedClient(
            f"worker-{number}",
            host_of(number),
            "works",
            {
                "comes_at_s": round(rng.choice((0.0, rng.uniform(0, TO_S / 2))), 3),
                "work_s": work_s,
            },
        )
        for number in range(rng.randint(1, 4))
    )
    sender = PlannedClient("sender", "10.0.1.1", "sends")
    scene = Scene(3, [each.host for each in (sender, *workers)], {TOPIC: partitions}, (GROUP,))
    steps = () if rng.random() < QUIET else _draw_steps(rng, scene, workers)
    return Plan(
        broker={
            "nodes": 3,
            "as_of": rng.choice((None, "4.2", "4.3", "4.4")),
            "auto_create_topics": False,
            "coordinator_load_ms": rng.choice((0, 0, 300)),
            "group_share_session_timeout_ms": 3_000,
            "group_share_heartbeat_interval_ms": 300,
            "group_share_assignment_interval_ms": rng.choice((0, 0, 1_000)),
            "group_share_record_lock_duration_ms": rng.choice((2_000, 4_000)),
            "group_share_delivery_count_limit": rng.choice((2, 5, 5, 10)),
        },
        network={"max_delay_s": rng.choice((0.002, 0.02))},
        topics={TOPIC: partitions},
        options=options,
        records=rng.choice((20, 60, 150)),
        clients=(sender, *workers),
        steps=tuple(sorted(steps, key=lambda step: step.at_s)),
    )


def _draw_steps(
    rng: random.Random, scene: Scene, workers: Sequence[PlannedClient]
) -> tuple[Step, ...]:
    faults = {"count": rng.choice((0, 1, 3, 6)), "from_s": 0.1, "to_s": TO_S}
    return (
        *draw_worker_steps(rng, workers, rng.randint(0, 8), TO_S),
        *worker.draw_cancellations(rng, workers),
        *worker.draw_clock_jumps(rng, scene),
        # A working broker does not return the others to a member that joins, as a lone one may.
        *(
            each
            for each in share.bad_answers(rng)
            if each.arguments.get("code") not in share.REJOINS
        ),
        *draw_steps(rng, scene, **faults, kinds=share.NETWORK),
    )


def _draw_options(rng: random.Random) -> dict[str, Any]:
    return {
        "keys": 3,
        "delays_ms": (),
        "attempts": rng.choice((1, 2, 4)),
        "concurrency": rng.choice((1, 3, 20)),
        "drain_timeout_ms": rng.choice((0, 500, 4_000)),
        "commit_interval_ms": rng.choice((50, 500)),
        "connect_on_start": rng.random() < 0.8,
        "pause_after_failures": rng.choice((None, None, 1, 3)),
        "on_exhausted": rng.choice(("dead_letter", "dead_letter", "reject")),
        "timeout_ms": rng.choice((None, 1_000)),
    }


async def run(harness: Harness) -> None:
    plan = harness.plan
    rejects = plan.options["on_exhausted"] == "reject"
    harness.copied_topics = (DEAD, QUEUE)
    await harness.make_topics()
    await _configure_group(harness)
    ledger = ShareWorkerLedger(
        harness,
        TOPIC,
        DEAD,
        attempts=plan.options["attempts"],
        rejects=rejects,
        lock_s=plan.broker["group_share_record_lock_duration_ms"] / 1_000,
        is_quiet=not plan.steps,
    )
    ledger.watch()
    worker.allow_clock_jumps(harness)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(share.watch_locks, harness)
        workers = GroupWorkers(
            harness,
            tasks,
            plan.of("works"),
            lambda life: work(life, ledger),
            expects=worker.STARTS,
        )
        worker.allow_cancellations(harness, workers)
        async with anyio.create_task_group() as busy:
            busy.start_soon(harness.run_steps)
            for client in plan.of("sends"):
                busy.start_soon(worker.send, harness, client)
        if plan.of("works"):
            await share.until_finished(harness, GROUP)
        await workers.stop_all()
        await share.until_unlocked(harness)
        tasks.cancel_scope.cancel()
    if plan.of("works"):
        ledger.check_records()
        if QUEUE in harness.broker.topics:
            ledger.check_dead_letter_queue(QUEUE)


async def _configure_group(harness: Harness) -> None:
    """Let the group read from the start, and the brokers keep what it gives up."""
    cluster = harness.broker._running.cluster
    configs = {"share.auto.offset.reset": "earliest"}
    if harness.plan.broker["as_of"] == "4.4":
        await harness.broker.create_topic(QUEUE, partitions=1)
        enabled = {"errors.deadletterqueue.group.enable": "true"}
        cluster.alter_configs(ConfigResourceType.TOPIC, QUEUE, enabled)
        configs |= {
            "errors.deadletterqueue.topic.name": QUEUE,
            "errors.deadletterqueue.copy.record.enable": "true",
        }
    cluster.alter_configs(ConfigResourceType.GROUP, GROUP, configs)


def make_worker(life: WorkerLife) -> Worker:
    """Return a worker that is not started, without handlers."""
    options = life.harness.plan.options
    same = (
        "pause_after_failures",
        "concurrency",
        "drain_timeout_ms",
        "commit_interval_ms",
        "connect_on_start",
        "on_exhausted",
    )
    made = Worker(
        pause_ms=50,
        **life.harness.client_options,
        **CLIENT,
        **{name: options[name] for name in same},
        client_id=life.name,
        group_id=GROUP,
        group_type="share",
        default_api_timeout_ms=5_000,
        producer_options={"delivery_timeout_ms": 6_000},
    )
    return with_runtime(made, life.harness.runtime(life.client.host))


async def work(life: WorkerLife, ledger: ShareWorkerLedger) -> None:
    """Run a worker until its life is over."""
    handler, made = worker.Handler(life, ledger), make_worker(life)
    policy = RetryPolicy(attempts=life.harness.plan.options["attempts"], backoff_ms=50)
    limit = {"timeout_ms": life.harness.plan.options["timeout_ms"]}
    on = made.on(TOPIC, order_by=None, value=worker.decode, retries=policy, **limit)
    on(handler.process_record)
    async with made:
        while not life.over and made.health().is_alive:  # noqa: ASYNC110 - steps set `over`
            await anyio.sleep(0.1)


def guarantees(plan: Plan) -> Guarantees:
    return Guarantees(share_groups=(GROUP,) if plan.of("works") else ())


SCENARIO = Scenario("share_worker", draw, run, guarantees)

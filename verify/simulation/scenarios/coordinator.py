"""A coordinator moves during commits, dies, and loads."""

from __future__ import annotations

import random

import anyio

from aiokafkawire.broker import Answer, Drop, SeenRequest
from aiokafkawire.errors import KafkaError
from aiokafkawire.types import TopicPartition
from aiokafkawire.wire import ApiKey, ErrorCode
from verify.invariants.checker import Guarantees
from verify.simulation.faults import Scene, draw_steps
from verify.simulation.harness import Harness
from verify.simulation.plan import Plan, PlannedClient, Step
from verify.simulation.scenario import Scenario
from verify.simulation.scenarios.group_workers import (
    COMMITS,
    READS,
    CommitOnRevoke,
    GroupWorkers,
    WorkerLife,
    draw_worker_steps,
    host_of,
    make_consumer,
    send_steadily,
)

TOPIC, GROUP, LEDGER = "orders", "billing", "ledger"
"""The second group has no members: a reader with assigned partitions commits to it."""
TO_S = 12.0
HASTY_COMMITS_MS = 100
IN_TIME_MS = 3_000
"""Timeout of a commit, beside the time that a coordinator loads: enough to find the coordinator and
for the longest backoff."""
REST_S = 7.5
"""Time after the last fault at which the coordinators move again; clients must find them."""
APIS = (
    ApiKey.OFFSET_COMMIT,
    ApiKey.OFFSET_FETCH,
    ApiKey.JOIN_GROUP,
    ApiKey.SYNC_GROUP,
    ApiKey.HEARTBEAT,
    ApiKey.LEAVE_GROUP,
)
"""Moment of the move: just before the response, or just after the request."""


def draw(rng: random.Random) -> Plan:
    partitions = rng.randint(1, 6)
    strategy = rng.choice(("range", "sticky", "cooperative-sticky"))
    workers = tuple(
        PlannedClient(
            f"worker-{number}",
            host_of(number),
            "works",
            {
                "strategy": strategy,
                "reads": rng.choice(list(READS)),
                "commits": rng.choice(COMMITS),
                "listens": rng.random() < 0.3,
                "static": rng.random() < 0.2,
                "work_s": rng.choice((0.0, 0.02)),
            },
        )
        for number in range(rng.randint(1, 4))
    )
    sender = PlannedClient("sender", "10.0.1.1", "sends", {"pause_s": 0.05})
    clerks = [PlannedClient("clerk", "10.0.3.1", "keeps")] if rng.random() < 0.4 else []
    clients = (sender, *workers, *clerks)
    hosts = [client.host for client in clients]
    scene = Scene(3, hosts, {TOPIC: partitions}, groups=(GROUP, LEDGER))
    moves = [_draw_move(rng) for _ in range(rng.randint(1, 8))]
    faults = draw_steps(rng, scene, count=rng.randint(0, 3), from_s=0.1, to_s=TO_S)
    worker_steps = draw_worker_steps(rng, workers, rng.randint(0, 3), TO_S)
    return Plan(
        broker={
            "nodes": 3,
            "as_of": rng.choice((None, None, "2.8", "3.9")),
            "group_min_session_timeout_ms": 100,
            "coordinator_load_ms": rng.choice((0, 0, 300, 2_000)),
        },
        network={"max_delay_s": rng.choice((0.002, 0.02))},
        topics={TOPIC: partitions},
        records=rng.randint(40, 120),
        clients=clients,
        steps=tuple(sorted((*moves, *faults, *worker_steps), key=lambda step: step.at_s)),
    )


def _draw_move(rng: random.Random) -> Step:
    at_s = round(rng.uniform(0.1, TO_S), 3)
    kind = rng.choices(("move at", "lose", "load"), (4, 2, 1))[0]
    if kind == "move at":
        arguments = {"api": rng.choice(APIS).name, "to": rng.randint(1, 3)}
        return Step(at_s, kind, {**arguments, "answered": rng.random() < 0.5})
    return Step(at_s, kind, {"for_s": round(rng.uniform(0.1, 3), 3)})


def in_time_ms(plan: Plan) -> int:
    """Return the timeout of the clerk's commits; they succeed again after loading and a backoff."""
    load_ms: int = plan.broker["coordinator_load_ms"]
    return load_ms + IN_TIME_MS


async def run(harness: Harness) -> None:
    await harness.make_topics()
    broker = harness.broker

    async def move_at(api: str, to: int, answered: bool) -> None:
        """Move the coordinator at the next such request, which gets no response."""

        def inject(request: SeenRequest) -> Drop | None:
            if to in broker.live_nodes:
                broker.move_coordinator(GROUP, to)
                broker.move_coordinator(LEDGER, to)
            return None if answered else Drop(carried_out=False)

        broker.on(ApiKey[api], inject, times=1)

    async def lose(for_s: float) -> None:
        """Kill the coordinator's node."""
        node = broker.coordinator(GROUP)
        if node in broker.live_nodes:
            await broker.kill(node)
            await anyio.sleep(for_s)
            await broker.restart(node)

    async def load(for_s: float) -> None:
        """Make the coordinator load its log again."""
        rules = [broker.on(api, Answer(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)) for api in APIS]
        await anyio.sleep(for_s)
        for rule in rules:
            rule.remove()

    harness.on("move at", move_at)
    harness.on("lose", lose)
    harness.on("load", load)
    workers = harness.plan.of("works")
    async with anyio.create_task_group() as tasks:
        group_workers = GroupWorkers(harness, tasks, workers, work)
        for client in harness.plan.of("keeps"):
            tasks.start_soon(keep, harness, client)
        async with anyio.create_task_group() as busy:
            busy.start_soon(harness.run_steps)
            for client in harness.plan.of("sends"):
                busy.start_soon(send_steadily, harness, client)
        if workers:
            await harness.until_consumed(TOPIC)
            await harness.until_settled()
        if harness.plan.of("keeps"):
            await anyio.sleep(REST_S)
            broker.move_coordinator(LEDGER, broker.coordinator(LEDGER) % 3 + 1)
            await anyio.sleep(2 * in_time_ms(harness.plan) / 1_000)
        await group_workers.stop_all()
        tasks.cancel_scope.cancel()


async def work(life: WorkerLife) -> None:
    worker = life.consumer(
        group_id=GROUP,
        group_instance_id=life.client.name if life.argument("static") else None,
        enable_auto_commit=life.argument("commits") == "automatic",
        auto_commit_interval_ms=HASTY_COMMITS_MS,
        partition_assignment_strategy=[life.argument("strategy")],
    )
    worker.subscribe(
        [TOPIC], listener=CommitOnRevoke(worker, life) if life.argument("listens") else None
    )
    async with worker:
        await READS[life.argument("reads")](worker, life)


async def keep(harness: Harness, client: PlannedClient) -> None:
    """Read with assigned partitions, and commit now and then, with and without new offsets."""
    options = {
        "group_id": LEDGER,
        "enable_auto_commit": False,
        "default_api_timeout_ms": in_time_ms(harness.plan),
        "metadata_max_age_ms": 300_000,
    }
    clerk = make_consumer(harness, client.name, client.host, **options)
    clerk.assign([(TOPIC, number) for number in range(harness.plan.topics[TOPIC])])
    done: dict[TopicPartition, int] = {}
    async with clerk:
        while True:
            for tp, batch in (await clerk.getmany(timeout_ms=1_000)).items():
                done[tp] = batch.next_offset
            try:
                await clerk.commit(done)
            except KafkaError as error:
                harness.note(f"{client.name}: {error}")


def guarantees(plan: Plan) -> Guarantees:
    return Guarantees(complete_groups=(GROUP,) if plan.of("works") else ())


SCENARIO = Scenario("coordinator", draw, run, guarantees, share=15)

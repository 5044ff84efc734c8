"""Byzantine brokers: clients recover or raise a typed error, and never return false records."""

from __future__ import annotations

import random
from collections import defaultdict, deque
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import anyio

from aiokafkawire.errors import BrokerError, CorruptRecord, KafkaError
from aiokafkawire.types import TopicPartition
from aiokafkawire.wire import ApiKey
from verify.invariants.checker import Guarantees
from verify.simulation.byzantine_responses import (
    MAX_UNPACKED_BYTES,
    THROTTLE,
    draw_false_response,
    false_response_rule,
)
from verify.simulation.faults import Scene, draw_steps
from verify.simulation.harness import Harness
from verify.simulation.plan import BROKER_HOST, Plan, PlannedClient, Step
from verify.simulation.scenario import Scenario
from verify.simulation.scenarios.group_workers import (
    COMMITS,
    MEMBER,
    GroupWorkers,
    WorkerLife,
    draw_worker_steps,
    host_of,
    make_producer,
)

__all__ = ("CALLS", "GROUP", "SCENARIO", "TOPIC")

TOPIC, GROUP = "orders", "billing"
TO_S = 8.0
KINDS = ("move leader", "move coordinator", "reset", "hang", "slow link")
"""Other faults, now and then."""

SENDS: Mapping[str, Any] = {"delivery_timeout_ms": 8_000, "max_block_ms": 5_000}
REST_S = 0.5
PATIENCE = 5
"""Number of broker errors after which a worker gives up."""
BELIEVED_S = 4.0
"""Time in which brokers send the false responses of a step."""


def draw(rng: random.Random) -> Plan:
    partitions = rng.randint(1, 4)
    strategy = rng.choice(("range", "cooperative-sticky"))
    workers = [
        PlannedClient(
            f"worker-{number}",
            host_of(number),
            "works",
            {"commits": rng.choice(COMMITS), "strategy": strategy},
        )
        for number in range(rng.randint(1, 3))
    ]
    sender = {
        "enable_idempotence": rng.random() < 0.7,
        "compression_type": rng.choice(("none", "none", "gzip", "zstd")),
    }
    clients = (PlannedClient("sender", "10.0.1.1", "sends", sender), *workers)
    scene = Scene(3, [c.host for c in clients], {TOPIC: partitions}, groups=(GROUP,))
    steps = [
        Step(round(rng.uniform(0, TO_S), 3), "lie", draw_false_response(rng))
        for _ in range(rng.randint(1, 10))
    ]
    steps += draw_steps(rng, scene, count=rng.randint(0, 2), to_s=TO_S, kinds=KINDS)
    steps += draw_worker_steps(rng, workers, rng.randint(0, 2), TO_S)
    return Plan(
        broker={
            "nodes": 3,
            "as_of": rng.choice((None, None, "2.8")),
            "group_min_session_timeout_ms": 100,
        },
        network={"max_delay_s": rng.choice((0.002, 0.02))},
        topics={TOPIC: partitions},
        records=rng.choice((15, 40)),
        clients=clients,
        steps=tuple(sorted(steps, key=lambda step: step.at_s)),
    )


async def run(harness: Harness) -> None:
    await harness.make_topics()
    asked: defaultdict[str, deque[str]] = defaultdict(deque)

    async def ask(client: str, what: str) -> None:
        asked[client].append(what)

    async def send_false_responses(api: str, kind: str, times: int) -> None:
        rule = harness.broker.on(ApiKey[api], false_response_rule(kind), times=times)
        await anyio.sleep(BELIEVED_S)
        rule.remove()

    harness.on("lie", send_false_responses)
    harness.on("ask", ask)
    async with anyio.create_task_group() as tasks:
        workers = harness.plan.of("works")
        group_workers = GroupWorkers(
            harness, tasks, workers, lambda life: work(life, asked), expects=(KafkaError,)
        )
        async with anyio.create_task_group() as senders:
            for client in harness.plan.of("sends"):
                senders.start_soon(send, harness, client, asked[client.name])
            await harness.run_steps()
            forget_throttles(harness)
        if workers:
            # A client that was out of the group needs this time to notice.
            await anyio.sleep(MEMBER["session_timeout_ms"] / 1_000 + REST_S)
            await harness.until_consumed(TOPIC, group=GROUP)
            await harness.until_settled()
        await group_workers.stop_all()


def forget_throttles(harness: Harness) -> None:
    """Reset the connections of clients that were throttled for weeks: the throttle ends with the
    connection."""
    if any(step.arguments.get("kind") == THROTTLE for step in harness.plan.steps):
        for client in harness.plan.clients:
            harness.world.network.reset(client.host, BROKER_HOST)


# --- applications ---


async def send(harness: Harness, client: PlannedClient, asked: deque[str]) -> None:
    """Send all records; a failed producer is replaced by a new one."""
    rng = harness.rng(client.name)
    left, incarnation = harness.plan.records, 0
    while left:
        incarnation += 1
        name = f"{client.name}.{incarnation}"
        producer = make_producer(harness, name, client.host, **{**SENDS, **client.arguments})
        try:
            async with producer as sender:
                while left:
                    left -= 1
                    delivery = await sender.send(TOPIC, sender.value())
                    if rng.random() < 0.2:
                        await delivery
                    if asked:
                        await CALLS[asked.popleft()](sender)
                    await anyio.sleep(rng.uniform(0, 2 * TO_S / harness.plan.records))
        except KafkaError as error:
            harness.note(f"{name}: {error}")
            await anyio.sleep(rng.uniform(0, REST_S))


async def work(life: WorkerLife, asked: Mapping[str, deque[str]]) -> None:
    """Read in the group; records corrupted on the way are read again."""
    consumer = life.consumer(
        TOPIC,
        group_id=GROUP,
        enable_auto_commit=life.argument("commits") == "automatic",
        partition_assignment_strategy=[life.argument("strategy", "range")],
        max_decompressed_bytes=MAX_UNPACKED_BYTES,
    )
    asked_here = asked[life.client.name]
    patience = PATIENCE
    async with consumer as worker:
        while not life.over:
            try:
                batches = await worker.getmany(timeout_ms=300)
            except CorruptRecord as error:
                read_again(life, worker, error)
                continue
            except BrokerError as error:
                life.harness.note(f"{life.name}: {error}")
                patience -= 1
                if not patience:
                    raise
                await anyio.sleep(REST_S)
                continue
            for batch in batches.values():
                await life.handle(len(batch))
                await life.commit(worker, batch)
            if asked_here:
                await CALLS[asked_here.popleft()](worker)


def read_again(life: WorkerLife, worker: Any, error: CorruptRecord) -> None:
    """Seek to the corrupted records: the next response is correct."""
    place = (error.topic, error.partition, error.offset)
    life.harness.note(f"{life.name}: {error}")
    if error.topic != TOPIC or error.partition is None or error.offset is None:
        life.harness.violated(12, f"corrupt records at an unknown place: {place}")
        raise error
    worker.seek(TopicPartition(error.topic, error.partition), error.offset)


CALLS: Mapping[str, Callable[[Any], Awaitable[Any]]] = {
    "flush": lambda sender: sender.flush(),
    "commit": lambda worker: worker.commit(),
    "ends": lambda worker: worker.end_offsets(TopicPartition(TOPIC, 0)),
    "back to what is committed": lambda worker: worker.seek_to_committed(),
}
"""Calls of steps of kind `ask`; the first one is for senders."""


def guarantees(plan: Plan) -> Guarantees:
    return Guarantees(hostile=True, complete_groups=(GROUP,) if plan.of("works") else ())


SCENARIO = Scenario("byzantine", draw, run, guarantees, share=15, limit_s=300.0)

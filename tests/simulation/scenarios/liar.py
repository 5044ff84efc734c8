"""Brokers that lie: senders and workers go on, or fail by name; none is given what is not there."""

from __future__ import annotations

import random
from collections import defaultdict, deque
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import anyio

from aiokafkawire.errors import BrokerError, CorruptRecord, KafkaError
from aiokafkawire.types import TopicPartition
from aiokafkawire.wire import ApiKey
from tests.invariants.checker import Promises
from tests.simulation.byzantine_responses import MAX_UNPACKED_BYTES, THROTTLE, draw_lie, lie
from tests.simulation.faults import Scene, draw_steps
from tests.simulation.harness import Stage
from tests.simulation.plan import BROKER_HOST, Plan, PlannedClient, Step
from tests.simulation.scenario import Programme
from tests.simulation.scenarios.group_workers import (
    COMMITS,
    MEMBER,
    Crew,
    Shift,
    a_producer,
    host_of,
    steps_of_life,
)

__all__ = ("ASKED", "GROUP", "PROGRAMME", "TOPIC")

TOPIC, GROUP = "orders", "billing"
TO_S = 8.0
KINDS = ("move leader", "move coordinator", "reset", "hang", "slow way")
"""What else befalls, now and then."""

SENDS: Mapping[str, Any] = {"delivery_timeout_ms": 8_000, "max_block_ms": 5_000}
REST_S = 0.5
PATIENCE = 5
"""Errors of brokers after which a worker goes on; another one is its last."""
BELIEVED_S = 4.0
"""So long brokers have to tell a lie as often as they are to."""


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
        Step(round(rng.uniform(0, TO_S), 3), "lie", draw_lie(rng))
        for _ in range(rng.randint(1, 10))
    ]
    steps += draw_steps(rng, scene, count=rng.randint(0, 2), to_s=TO_S, kinds=KINDS)
    steps += steps_of_life(rng, workers, rng.randint(0, 2), TO_S)
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


async def run(stage: Stage) -> None:
    await stage.make_topics()
    asked: defaultdict[str, deque[str]] = defaultdict(deque)

    async def ask(client: str, what: str) -> None:
        asked[client].append(what)

    async def tell_a_lie(api: str, kind: str, times: int) -> None:
        told = stage.broker.on(ApiKey[api], lie(kind), times=times)
        await anyio.sleep(BELIEVED_S)
        told.remove()

    stage.on("lie", tell_a_lie)
    stage.on("ask", ask)
    async with anyio.create_task_group() as tasks:
        workers = stage.plan.of("works")
        crew = Crew(stage, tasks, workers, lambda shift: work(shift, asked), expects=(KafkaError,))
        async with anyio.create_task_group() as senders:
            for client in stage.plan.of("sends"):
                senders.start_soon(send, stage, client, asked[client.name])
            await stage.carry_out()
            forget_throttles(stage)
        if workers:
            # Who was out of the group until now must come to know it.
            await anyio.sleep(MEMBER["session_timeout_ms"] / 1_000 + REST_S)
            await stage.until_consumed(TOPIC, group=GROUP)
            await stage.until_settled()
        await crew.dismiss()


def forget_throttles(stage: Stage) -> None:
    """Who was told to be silent for weeks keeps to it, on that connection."""
    if any(step.arguments.get("kind") == THROTTLE for step in stage.plan.steps):
        for client in stage.plan.clients:
            stage.world.network.reset(client.host, BROKER_HOST)


# --- applications ---


async def send(stage: Stage, client: PlannedClient, asked: deque[str]) -> None:
    """Send all records, by as many producers as that takes: one that failed is replaced."""
    rng = stage.rng(client.name)
    left, life = stage.plan.records, 0
    while left:
        life += 1
        name = f"{client.name}.{life}"
        producer = a_producer(stage, name, client.host, **{**SENDS, **client.arguments})
        try:
            async with producer as sender:
                while left:
                    left -= 1
                    delivery = await sender.send(TOPIC, sender.value())
                    if rng.random() < 0.2:
                        await delivery
                    if asked:
                        await ASKED[asked.popleft()](sender)
                    await anyio.sleep(rng.uniform(0, 2 * TO_S / stage.plan.records))
        except KafkaError as error:
            stage.note(f"{name}: {error}")
            await anyio.sleep(rng.uniform(0, REST_S))


async def work(shift: Shift, asked: Mapping[str, deque[str]]) -> None:
    """Read in the group; what was damaged on its way is read again."""
    consumer = shift.consumer(
        TOPIC,
        group_id=GROUP,
        enable_auto_commit=shift.told("commits") == "automatic",
        partition_assignment_strategy=[shift.told("strategy", "range")],
        max_decompressed_bytes=MAX_UNPACKED_BYTES,
    )
    asked_here = asked[shift.client.name]
    patience = PATIENCE
    async with consumer as worker:
        while not shift.over:
            try:
                batches = await worker.getmany(timeout_ms=300)
            except CorruptRecord as error:
                read_again(shift, worker, error)
                continue
            except BrokerError as error:
                shift.stage.note(f"{shift.name}: {error}")
                patience -= 1
                if not patience:
                    raise
                await anyio.sleep(REST_S)
                continue
            for batch in batches.values():
                await shift.handle(len(batch))
                await shift.commit(worker, batch)
            if asked_here:
                await ASKED[asked_here.popleft()](worker)


def read_again(shift: Shift, worker: Any, error: CorruptRecord) -> None:
    """Go on where the damaged records were: the next answer is another one."""
    place = (error.topic, error.partition, error.offset)
    shift.stage.note(f"{shift.name}: {error}")
    if error.topic != TOPIC or error.partition is None or error.offset is None:
        shift.stage.violated(12, f"corrupt records somewhere: {place}")
        raise error
    worker.seek(TopicPartition(error.topic, error.partition), error.offset)


ASKED: Mapping[str, Callable[[Any], Awaitable[Any]]] = {
    "flush": lambda sender: sender.flush(),
    "commit": lambda worker: worker.commit(),
    "ends": lambda worker: worker.end_offsets(TopicPartition(TOPIC, 0)),
    "back to what is committed": lambda worker: worker.seek_to_committed(),
}
"""Calls that a step of kind `ask` has a client make: the first is for senders."""


def promises(plan: Plan) -> Promises:
    return Promises(hostile=True, complete_groups=(GROUP,) if plan.of("works") else ())


PROGRAMME = Programme("liar", draw, run, promises, share=15, limit_s=300.0)

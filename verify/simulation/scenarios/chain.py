"""Three groups copy records from topic to topic; each commits after its sends are acknowledged.

`python -m verify.simulation.scenarios.chain 500000 SEED` runs it at full size.
"""

from __future__ import annotations

import dataclasses
import random
import sys
from itertools import pairwise
from typing import Any

import anyio

from aiokafkawire.errors import CommitFailed, KafkaError, RequestTimedOut
from verify.invariants.checker import Guarantees
from verify.invariants.events import parse_value
from verify.simulation import single_run
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

TOPICS = ("orders", "priced", "packed", "sent")
TO_S = 12.0
STRATEGIES = ("range", "sticky", "cooperative-sticky")
AT_ONCE = 500
CALLS = 24
"""Calls for a small number of records, over the time of the faults."""


def draw(rng: random.Random) -> Plan:
    partitions = rng.randint(1, 4)
    strategies = {topic: rng.choice(STRATEGIES) for topic in TOPICS}
    workers = tuple(
        PlannedClient(
            f"{source}-{number}",
            host_of(10 * step + number),
            "works",
            {"source": source, "target": target, "strategy": strategies[source]},
        )
        for step, (source, target) in enumerate(pairwise(TOPICS))
        for number in range(rng.randint(1, 3))
    )
    sender = PlannedClient("sender", "10.0.1.1", "sends")
    hosts = [client.host for client in (sender, *workers)]
    scene = Scene(3, hosts, dict.fromkeys(TOPICS, partitions), groups=TOPICS[:-1])
    faults = draw_steps(rng, scene, count=rng.randint(0, 5), from_s=0.1, to_s=TO_S)
    worker_steps = draw_worker_steps(rng, workers, rng.randint(0, 6), TO_S)
    return Plan(
        broker={
            "nodes": 3,
            "as_of": rng.choice((None, None, "2.8")),
            "group_min_session_timeout_ms": 100,
        },
        network={"max_delay_s": rng.choice((0.002, 0.02))},
        topics=dict.fromkeys(TOPICS, partitions),
        records=rng.choice((100, 300, 1_000)),
        clients=(sender, *workers),
        steps=tuple(sorted((*faults, *worker_steps), key=lambda step: step.at_s)),
    )


async def run(harness: Harness) -> None:
    await harness.make_topics()
    workers = harness.plan.of("works")
    async with anyio.create_task_group() as tasks:
        group_workers = GroupWorkers(harness, tasks, workers, work)
        async with anyio.create_task_group() as busy:
            busy.start_soon(harness.run_steps)
            for client in harness.plan.of("sends"):
                busy.start_soon(send, harness, client)
        await harness.until(lambda: passed_on(harness), "passed on")
        # Copies of the same record may be left in a topic. Once a group has stopped, its target
        # does not grow, and the next group can read all of it.
        for source in sources(harness.plan):
            await harness.until_consumed(source, group=source)
            await group_workers.stop(
                [worker.name for worker in workers if worker.arguments["source"] == source]
            )


async def send(harness: Harness, client: PlannedClient) -> None:
    async with make_producer(harness, client.name, client.host) as sender:
        left = harness.plan.records
        at_once = min(AT_ONCE, left // CALLS + 1)
        while left > 0:
            values = [sender.value() for _ in range(min(left, at_once))]
            left -= len(values)
            await anyio.sleep(TO_S * at_once / harness.plan.records)
            for delivery in await sender.send_many(TOPICS[0], values):
                try:
                    await delivery
                except KafkaError as error:
                    harness.note(f"{client.name}: {error}")


async def work(life: WorkerLife) -> None:
    """Copy batches; after an error, seek back to the start of the batch."""
    consumer = life.consumer(
        life.argument("source"),
        group_id=life.argument("source"),
        enable_auto_commit=False,
        partition_assignment_strategy=[life.argument("strategy")],
    )
    async with life.producer(delivery_timeout_ms=10_000) as producer, consumer as worker:
        while not life.over:
            for tp, batch in (await worker.getmany(timeout_ms=300)).items():
                try:
                    await pass_on(producer, life.argument("target"), batch)
                    await worker.commit(batch)
                except (CommitFailed, RequestTimedOut) as error:
                    life.harness.note(f"{life.name}: {error}")
                except KafkaError as error:
                    life.harness.note(f"{life.name}: {error}")
                    if tp in worker.assignment():
                        worker.seek(tp, batch.first_offset)
            await life.handle()


async def pass_on(producer: Any, target: str, batch: Any) -> None:
    """Send a copy of each record; raise the error of one of them once all have an outcome."""
    failed: KafkaError | None = None
    values = [producer.value(origin(value)) for value in batch.values()]
    for delivery in await producer.send_many(target, values):
        try:
            await delivery
        except KafkaError as error:
            failed = error
    if failed is not None:
        raise failed


def origin(value: bytes) -> bytes:
    """Return the record of the first topic that a record was copied from."""
    found = parse_value(value)
    assert found is not None
    return found.payload or value


def sources(plan: Plan) -> list[str]:
    """Return the topics that a group consumes, in the order of the chain."""
    consumed = {worker.arguments["source"] for worker in plan.of("works")}
    return [topic for topic in TOPICS if topic in consumed]


def values(harness: Harness, topic: str) -> list[bytes]:
    """Return all values of a topic."""
    return [record.value for record in harness.records(topic)]


def passed_on(harness: Harness) -> bool:
    """Check that each record of a consumed topic is in the next one."""
    for source, target in pairwise(TOPICS):
        if source not in sources(harness.plan):
            continue
        # Duplicates cannot replace missing records: the count only saves reading all values.
        if size(harness, target) < size(harness, source):
            return False
        there = {origin(value) for value in values(harness, target)}
        if any(origin(value) not in there for value in values(harness, source)):
            return False
    return True


def size(harness: Harness, topic: str) -> int:
    partitions = range(harness.broker.topics[topic])
    return sum(harness.broker.end_offset(topic, number) for number in partitions)


def guarantees(plan: Plan) -> Guarantees:
    return Guarantees(complete_groups=tuple(sources(plan)))


SCENARIO = Scenario("chain", draw, run, guarantees, share=6)


def main(records: int, seed: int) -> int:
    """Return the plan of a seed with the given number of records."""
    plan = dataclasses.replace(single_run.draw(SCENARIO, seed), records=records)
    result = single_run.play(SCENARIO, seed, "asyncio", plan)
    print(f"{plan}\n{result.events} events in {result.seconds:.0f} s, digest {result.digest}")
    for failure in result.failures:
        print(f"{failure.kind}: {failure.text}")
    return int(bool(result.failures))


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2])))

"""One producer and one reader with few faults: the minimal scenario."""

from __future__ import annotations

import random
from typing import Any

import anyio

from aiokafkawire.consumer import Consumer
from aiokafkawire.errors import KafkaError
from aiokafkawire.producer import Producer
from aiokafkawire.runtime import with_runtime
from verify.invariants.checker import Guarantees
from verify.simulation.faults import Scene, draw_steps
from verify.simulation.harness import Harness
from verify.simulation.plan import Plan, PlannedClient
from verify.simulation.scenario import Scenario

TOPIC = "orders"
IMPATIENT: dict[str, Any] = {"request_timeout_ms": 2_000}


def draw(rng: random.Random) -> Plan:
    partitions = rng.randint(1, 3)
    clients = (
        PlannedClient("sender", "10.0.1.1", "sends"),
        PlannedClient("reader", "10.0.2.1", "reads"),
    )
    scene = Scene(nodes=3, hosts=[client.host for client in clients], topics={TOPIC: partitions})
    return Plan(
        broker={"nodes": 3},
        network={"max_delay_s": rng.choice([0.002, 0.02])},
        topics={TOPIC: partitions},
        records=rng.choice([10, 30]),
        clients=clients,
        steps=draw_steps(rng, scene, count=rng.randint(0, 4), from_s=0.1, to_s=5),
    )


async def run(harness: Harness) -> None:
    await harness.make_topics()
    async with anyio.create_task_group() as readers:
        for client in harness.plan.of("reads"):
            readers.start_soon(read, harness, client)
        async with anyio.create_task_group() as group:
            group.start_soon(harness.run_steps)
            for client in harness.plan.of("sends"):
                group.start_soon(send, harness, client)
        if harness.plan.of("reads"):
            await harness.until_consumed()
        readers.cancel_scope.cancel()


async def send(harness: Harness, client: PlannedClient) -> None:
    rng = harness.rng(client.name)
    producer = with_runtime(
        Producer(client_id=client.name, **harness.client_options, **IMPATIENT),
        harness.runtime(client.host),
    )
    async with harness.recorder.producer(producer, client.name) as sender:
        for _ in range(harness.plan.records):
            try:
                await sender.send_and_wait(TOPIC, sender.value())
            except KafkaError as error:
                harness.note(f"{client.name}: {error}")
            await anyio.sleep(rng.uniform(0, 0.3))


async def read(harness: Harness, client: PlannedClient) -> None:
    consumer = with_runtime(
        Consumer(
            TOPIC,
            client_id=client.name,
            **harness.client_options,
            auto_offset_reset="earliest",
            **IMPATIENT,
        ),
        harness.runtime(client.host),
    )
    async with harness.recorder.consumer(consumer, client.name) as reader:
        while True:
            await reader.getmany(timeout_ms=500)


SCENARIO = Scenario("plain", draw, run, lambda plan: Guarantees(), share=1)

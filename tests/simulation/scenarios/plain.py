"""One producer and one reader, and now and then a fault: the least that a programme can be."""

from __future__ import annotations

import random
from typing import Any

import anyio

from aiokafkawire.consumer import Consumer
from aiokafkawire.errors import KafkaError
from aiokafkawire.producer import Producer
from aiokafkawire.runtime import with_runtime
from tests.invariants.checker import Promises
from tests.simulation.faults import Scene, draw_steps
from tests.simulation.harness import Stage
from tests.simulation.plan import Plan, PlannedClient
from tests.simulation.scenario import Programme

TOPIC = "orders"
HASTY: dict[str, Any] = {"request_timeout_ms": 2_000}


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


async def run(stage: Stage) -> None:
    await stage.make_topics()
    async with anyio.create_task_group() as readers:
        for client in stage.plan.of("reads"):
            readers.start_soon(read, stage, client)
        async with anyio.create_task_group() as group:
            group.start_soon(stage.carry_out)
            for client in stage.plan.of("sends"):
                group.start_soon(send, stage, client)
        if stage.plan.of("reads"):
            await stage.until_consumed()
        readers.cancel_scope.cancel()


async def send(stage: Stage, client: PlannedClient) -> None:
    rng = stage.rng(client.name)
    producer = with_runtime(
        Producer(client_id=client.name, bootstrap_servers=stage.servers, **HASTY),
        stage.runtime(client.host),
    )
    async with stage.recorder.producer(producer, client.name) as sender:
        for _ in range(stage.plan.records):
            try:
                await sender.send_and_wait(TOPIC, sender.value())
            except KafkaError as error:
                stage.note(f"{client.name}: {error}")
            await anyio.sleep(rng.uniform(0, 0.3))


async def read(stage: Stage, client: PlannedClient) -> None:
    consumer = with_runtime(
        Consumer(
            TOPIC,
            client_id=client.name,
            bootstrap_servers=stage.servers,
            auto_offset_reset="earliest",
            **HASTY,
        ),
        stage.runtime(client.host),
    )
    async with stage.recorder.consumer(consumer, client.name) as reader:
        while True:
            await reader.getmany(timeout_ms=500)


PROGRAMME = Programme("plain", draw, run, lambda plan: Promises(), share=1)

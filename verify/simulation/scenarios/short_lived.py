"""Producers, group members and other consumers live for about a second, one after the other."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Mapping

import anyio

from aiokafkawire.errors import CommitFailed, DeliveriesFailed, KafkaError, NoBrokerAvailable
from verify.invariants.checker import Guarantees
from verify.simulation.faults import Scene, draw_steps
from verify.simulation.harness import Harness
from verify.simulation.plan import Plan, PlannedClient
from verify.simulation.scenario import Scenario
from verify.simulation.scenarios.group_workers import host_of, make_consumer, make_producer

TOPIC, GROUP = "orders", "billing"
TO_S = 8.0
LIFE_S = (0.5, 1.5)
REST_S = 0.5


def draw(rng: random.Random) -> Plan:
    partitions = rng.randint(1, 4)
    strategy = rng.choice(("range", "cooperative-sticky"))
    kinds = ["sends", "works", *rng.choices(("sends", "works", "looks"), k=rng.randint(0, 4))]
    clients = tuple(
        PlannedClient(
            f"{kind}-{number}",
            host_of(number),
            kind,
            {"strategy": strategy, "automatic": rng.random() < 0.5, "rude": rng.random() < 0.4},
        )
        for number, kind in enumerate(kinds)
    )
    scene = Scene(3, [client.host for client in clients], {TOPIC: partitions}, groups=(GROUP,))
    return Plan(
        broker={
            "nodes": 3,
            "as_of": rng.choice((None, None, "2.0", "2.8")),
            "group_min_session_timeout_ms": 100,
        },
        network={"max_delay_s": rng.choice((0.002, 0.02))},
        topics={TOPIC: partitions},
        records=rng.randint(20, 60),
        clients=clients,
        steps=draw_steps(rng, scene, count=rng.randint(0, 4), from_s=0.1, to_s=TO_S),
    )


async def run(harness: Harness) -> None:
    await harness.make_topics()
    async with anyio.create_task_group() as tasks:
        people = [Person(harness, client) for client in harness.plan.clients]
        for person in people:
            tasks.start_soon(person.live)
        await harness.run_steps()
        for person in people:
            if person.client.kind == "sends":
                person.over = True
                await person.gone.wait()
        if harness.plan.of("works"):
            await harness.until_consumed(TOPIC, group=GROUP)
        for person in people:
            person.over = True


class Person:
    """Starts life after life until it is `over`."""

    def __init__(self, harness: Harness, client: PlannedClient) -> None:
        self.harness = harness
        self.client = client
        self.over = False
        self.gone = anyio.Event()
        self.rng = harness.rng(client.name)
        self.name = ""
        self.left = harness.plan.records

    async def live(self) -> None:
        """Run lives that end by themselves, or (of a `rude` one) by a cancellation from outside."""
        number = 0
        while not self.over:
            number += 1
            self.name = f"{self.client.name}.{number}"
            life_s = self.rng.uniform(*LIFE_S)
            rude = self.client.arguments["rude"] and self.rng.random() < 0.5
            try:
                with anyio.move_on_after(life_s if rude else 1_000):
                    await LIVES[self.client.kind](self, self.harness.now() + life_s)
            except (NoBrokerAvailable, DeliveriesFailed) as error:
                self.harness.note(f"{self.name}: {error}")
            await anyio.sleep(self.rng.uniform(0, REST_S))
        self.gone.set()


async def send(person: Person, until: float) -> None:
    async with make_producer(person.harness, person.name, person.client.host) as sender:
        while person.harness.now() < until:
            if person.left:
                person.left -= 1
                delivery = await sender.send(TOPIC, sender.value())
                if person.rng.random() < 0.3:
                    try:
                        await delivery
                    except KafkaError as error:
                        person.harness.note(f"{person.name}: {error}")
            await anyio.sleep(person.rng.uniform(0, 0.2))


async def work(person: Person, until: float) -> None:
    automatic = person.client.arguments["automatic"]
    consumer = make_consumer(
        person.harness,
        person.name,
        person.client.host,
        TOPIC,
        group_id=GROUP,
        enable_auto_commit=automatic,
        partition_assignment_strategy=[person.client.arguments["strategy"]],
    )
    async with consumer as worker:
        while person.harness.now() < until:
            for batch in (await worker.getmany(timeout_ms=200)).values():
                if not automatic:
                    try:
                        await worker.commit(batch)
                    except CommitFailed as error:
                        person.harness.note(f"{person.name}: {error}")


async def look(person: Person, until: float) -> None:
    """Read all records, and commit nothing."""
    consumer = make_consumer(person.harness, person.name, person.client.host, TOPIC)
    async with consumer as onlooker:
        while person.harness.now() < until:
            await onlooker.getone(timeout_ms=200)


LIVES: Mapping[str, Callable[[Person, float], Awaitable[None]]] = {
    "sends": send,
    "works": work,
    "looks": look,
}


def guarantees(plan: Plan) -> Guarantees:
    return Guarantees(complete_groups=(GROUP,) if plan.of("works") else ())


SCENARIO = Scenario("short_lived", draw, run, guarantees)

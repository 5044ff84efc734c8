"""A day on a listener with SASL, with sessions of minutes (KIP-368).

Every connection is authenticated again and again. The application sees no error, nothing is lost or
duplicated, and without a fault no connection is opened again.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping
from typing import Any

import anyio

from aiokafkawire.broker import SeenRequest
from aiokafkawire.errors import AuthenticationFailed, KafkaError
from aiokafkawire.wire import ApiKey
from verify.invariants.checker import Guarantees
from verify.simulation.faults import Scene, draw_steps
from verify.simulation.harness import Harness
from verify.simulation.plan import Plan, PlannedClient, Step
from verify.simulation.scenario import Scenario
from verify.simulation.scenarios.group_workers import host_of, make_consumer, make_producer
from verify.simulation.security import PASSWORDS, Security, draw_mechanism

TOPIC, GROUP = "orders", "billing"
HOUR_S, DAY_S = 3_600.0, 86_400.0
SEND_EACH_S = 300.0
POLL_S = 240.0
SAMPLE_EACH_S = 60.0

SETTLED_WITHIN_S = 7_200.0
"""Time after the start or a fault in which connections are opened: metadata is asked for every five
minutes, each time from a node drawn at random."""

LATE_PASSWORD_S = 30.0
"""Time after the change of a password in which an authentication may still use the earlier one."""

FAULTS = ("kill", "hang", "sever", "reset", "reset in a write", "half open", "refuse connects")

OPTIONS: Mapping[str, Any] = {
    "request_timeout_ms": 20_000,
    "metadata_max_age_ms": 300_000,
    "connections_max_idle_ms": 1_000_000_000,
}
"""Idle connections are not closed, so that none is opened without a fault."""

MEMBER: Mapping[str, Any] = {
    **OPTIONS,
    "request_timeout_ms": 300_000,
    "session_timeout_ms": 250_000,
    "heartbeat_interval_ms": 80_000,
    "max_poll_interval_ms": 600_000,
    "auto_commit_interval_ms": 600_000,
    "default_api_timeout_ms": 400_000,
}


def draw(rng: random.Random) -> Plan:
    partitions = rng.randint(1, 3)
    minutes = rng.choice((2, 5, 10))
    security = Security("SASL_PLAINTEXT", draw_mechanism(rng), minutes * 60_000)
    clients = (
        PlannedClient("sender", "10.0.1.1", "sends"),
        *(PlannedClient(f"worker-{n}", host_of(n), "works") for n in range(rng.randint(1, 2))),
    )
    scene = Scene(nodes=3, hosts=[client.host for client in clients], topics={TOPIC: partitions})
    steps: list[Step] = []
    if rng.random() < 0.6:
        steps += draw_steps(
            rng, scene, count=rng.randint(1, 6), from_s=HOUR_S, to_s=DAY_S - HOUR_S, kinds=FAULTS
        )
    for _ in range(rng.choice((0, 0, 1, 3))):
        steps.append(Step(round(rng.uniform(HOUR_S, DAY_S - HOUR_S), 3), "rotate password"))
    return Plan(
        broker={"nodes": 3, "as_of": rng.choice((None, "2.8", "2.2"))},
        network={"max_delay_s": rng.choice((0.002, 0.1))},
        topics={TOPIC: partitions},
        options={"fetch_max_wait_ms": rng.choice((60_000, 240_000))},
        clients=clients,
        steps=tuple(sorted(steps, key=lambda step: step.at_s)),
        security=security,
    )


class Connections:
    """Counts connections and authentications."""

    def __init__(self, harness: Harness) -> None:
        self._harness = harness
        self._rotated_at = -DAY_S
        self._authentications: Counter[str] = Counter()
        harness.broker.requests.watch(self._count)

    def _count(self, seen: SeenRequest) -> None:
        if seen.api_key is ApiKey.SASL_HANDSHAKE:
            self._authentications[seen.client_id] += 1

    async def rotate(self) -> None:
        self._rotated_at = self._harness.now()
        self._harness.rotate_password()

    async def watch(self) -> None:
        """Report connections that were opened long after the last fault."""
        network, count = self._harness.world.network, 0
        # A re-authentication may use the earlier password if that changes while it waits for the
        # response to a Fetch: the connection is closed, and another one is opened.
        faults = [step.at_s for step in self._harness.plan.steps]
        while True:
            now, before = self._harness.now(), count
            count = network.connects + network.connects_refused
            cause_s = max((at_s for at_s in faults if at_s <= now), default=0.0)
            if count > before and now - cause_s > SETTLED_WITHIN_S:
                opened = f"{count - before} connections were opened"
                self._harness.violated(10, f"{opened} {now - cause_s:.0f} s after the last fault")
            await anyio.sleep(SAMPLE_EACH_S)

    async def on_error(self, name: str, error: KafkaError) -> None:
        """Report an error of the application."""
        late = self._harness.now() - self._rotated_at < LATE_PASSWORD_S
        if not (late and isinstance(error, AuthenticationFailed)):
            self._harness.violated(11, f"{name} got {error!r}")
        await anyio.sleep(1.0)

    def check(self) -> None:
        """Check that each client was authenticated at least as often as sessions ended."""
        expected = DAY_S * 1_000 / self._harness.plan.security.max_reauth_ms
        for client in self._harness.plan.clients:
            count = self._authentications[client.name]
            self._harness.note(f"{client.name} authenticated {count} times")
            if count < expected:
                self._harness.violated(
                    12, f"{client.name} authenticated {count} times, not {expected:.0f}"
                )


async def run(harness: Harness) -> None:
    await harness.make_topics()
    connections = Connections(harness)
    harness.on("rotate password", connections.rotate)
    async with anyio.create_task_group() as tasks:
        for client in harness.plan.of("works"):
            tasks.start_soon(read, harness, client, connections)
        for client in harness.plan.of("sends"):
            tasks.start_soon(send, harness, client, connections)
        tasks.start_soon(connections.watch)
        tasks.start_soon(harness.run_steps)
        await anyio.sleep_until(DAY_S)
        connections.check()
        if harness.plan.of("works"):
            await harness.until_consumed(TOPIC, group=GROUP)
        tasks.cancel_scope.cancel()


async def send(harness: Harness, client: PlannedClient, connections: Connections) -> None:
    """Send a record to each partition, again and again."""
    async with make_producer(harness, client.name, client.host, **OPTIONS) as sender:
        while True:
            for partition in range(harness.plan.topics[TOPIC]):
                try:
                    await sender.send_and_wait(TOPIC, sender.value(), partition=partition)
                except KafkaError as error:
                    await connections.on_error(client.name, error)
            await anyio.sleep(SEND_EACH_S)


async def read(harness: Harness, client: PlannedClient, connections: Connections) -> None:
    options = {**MEMBER, **harness.plan.options, "group_id": GROUP}
    async with make_consumer(harness, client.name, client.host, TOPIC, **options) as worker:
        while True:
            try:
                await worker.getmany(timeout_ms=POLL_S * 1_000)
            except KafkaError as error:
                await connections.on_error(client.name, error)


def guarantees(plan: Plan) -> Guarantees:
    return Guarantees(complete_groups=(GROUP,) if plan.of("works") else (), secrets=PASSWORDS)


SCENARIO = Scenario("sessions", draw, run, guarantees, share=1, limit_s=90_000)

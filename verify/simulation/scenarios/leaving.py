"""Clients are stopped or cancelled at any moment, also during faults: each ends within its
limit."""

from __future__ import annotations

import random
from typing import Any

import anyio

from aiokafkawire.consumer import Consumer
from aiokafkawire.errors import DeliveriesFailed, KafkaError
from aiokafkawire.producer import Producer
from aiokafkawire.runtime import with_runtime
from verify.invariants.checker import Guarantees
from verify.simulation.faults import Scene, draw_steps
from verify.simulation.harness import Harness
from verify.simulation.plan import BROKER_HOST, Plan, PlannedClient, Step
from verify.simulation.scenario import Scenario
from verify.simulation.shared_draws import draw_network, draw_release, has_idempotence

TOPIC, GROUP = "orders", "billing"
NO_TIME_S, SOON_S = 0.1, 1.0
"""Limit without records to send, only with a LeaveGroup request: see `docs/lifecycle.md`."""

CLOSE_TIMEOUT_S = 20.0
TROUBLES_S = 5.0
KINDS = (
    "idle producer",
    "sending producer",
    "transacting producer",
    "reader",
    "member",
    "committing member",
)
WAYS = ("stop", "leave", "cancel")
"""By `stop`, by the end of `async with`, or by a cancellation of its body."""


def draw(rng: random.Random) -> Plan:
    clients = tuple(_client(rng, number) for number in range(rng.randint(1, 6)))
    scene = Scene(nodes=3, hosts=[client.host for client in clients], topics={TOPIC: 3})
    return Plan(
        broker={
            "nodes": 3,
            "as_of": draw_release(rng, "0.10.1"),
            "group_initial_rebalance_delay_ms": rng.choice([0, 0, 3_000]),
        },
        network=draw_network(rng),
        topics={TOPIC: 3},
        clients=clients,
        steps=_troubles(rng, scene),
    )


def _client(rng: random.Random, number: int) -> PlannedClient:
    arguments = {
        "starts_s": round(rng.uniform(0, 0.5), 3),
        "for_s": round(rng.uniform(0, 5), 3),
        "way": rng.choice(WAYS),
    }
    return PlannedClient(f"client{number}", f"10.0.1.{number + 1}", rng.choice(KINDS), arguments)


def _troubles(rng: random.Random, scene: Scene) -> tuple[Step, ...]:
    """Draw no fault, a few faults, or one that outlasts all clients."""
    chance = rng.random()
    if chance < 0.2:
        return ()
    if chance < 0.6:
        return draw_steps(rng, scene, count=rng.randint(1, 4), to_s=TROUBLES_S)
    at_s = round(rng.uniform(0, 4), 3)
    lasting: dict[str, Any] = {"for_s": 60.0}
    kind = rng.choice(["sever", "lose power", "kill", "hang"])
    if kind == "lose power":
        return (Step(at_s, kind, lasting | {"host": BROKER_HOST}),)
    if kind == "sever":
        return tuple(Step(at_s, kind, lasting | {"host": host}) for host in scene.hosts)
    return tuple(Step(at_s, kind, lasting | {"node": node}) for node in range(1, scene.nodes + 1))


async def run(harness: Harness) -> None:
    await harness.make_topics()
    async with anyio.create_task_group() as group:
        group.start_soon(harness.run_steps)
        for client in harness.plan.clients:
            group.start_soon(Leaver(harness, client).run)


class Leaver:
    """One client: it starts, works, and ends in its way."""

    def __init__(self, harness: Harness, client: PlannedClient) -> None:
        self.harness = harness
        self.client = client

    async def run(self) -> None:
        arguments = self.client.arguments
        await anyio.sleep_until(arguments["starts_s"])
        made = self.made()
        way = {"stop": self.stop, "leave": self.leave, "cancel": self.cancel}[arguments["way"]]
        try:
            await way(made, arguments["for_s"])
        except DeliveriesFailed as error:
            self.harness.note(f"{self.client.name}: {error}")
        except KafkaError as error:
            self.harness.note(f"{self.client.name}: {type(error).__name__}: {error}")

    async def stop(self, made: Any, for_s: float) -> None:
        """End by `stop`, whether started or not."""
        try:
            with anyio.move_on_after(for_s):
                await made.start()
                await self.use(made)
        except KafkaError as error:
            self.harness.note(f"{self.client.name}: {type(error).__name__}: {error}")
        await self.harness.bounded(f"{self.client.kind}: stop", self.bound_s("stop"), made.stop())

    async def leave(self, made: Any, for_s: float) -> None:
        """End by leaving `async with`."""
        ended: float | None = None
        try:
            async with made:
                with anyio.move_on_after(for_s):
                    await self.use(made)
                ended = self.harness.now()
        finally:
            if ended is not None:
                self.check("leaving", ended)

    async def cancel(self, made: Any, for_s: float) -> None:
        """End by cancelling everything inside, or the start."""
        ends_at = self.harness.now() + for_s
        with anyio.CancelScope(deadline=ends_at):
            async with made:
                await self.use(made)
        self.check("cancelling", ends_at)

    def check(self, how: str, since: float) -> None:
        took, bound = self.harness.now() - since, self.bound_s(how)
        if took > bound + 1e-3:
            self.harness.violated(9, f"{self.client.kind}: {how} took {took:.3f} s, over {bound} s")

    def bound_s(self, how: str) -> float:
        """Return the limit of docs/lifecycle.md, plus a little for the turns of the loop."""
        kind = self.client.kind
        if kind == "idle producer":
            return NO_TIME_S
        if kind == "reader":
            return SOON_S
        if kind == "member" and (how == "cancelling" or not self.waits_for_join):
            return SOON_S
        if kind == "committing member" and how == "cancelling" and not self.waits_for_join:
            return SOON_S
        return CLOSE_TIMEOUT_S + SOON_S

    @property
    def waits_for_join(self) -> bool:
        """Return whether a first JoinGroup without a response is awaited: before 2.2 no one knows
        its member id, and with faults that is not visible from outside."""
        return self.harness.plan.broker["as_of"] is not None

    async def use(self, made: Any) -> None:
        kind = self.client.kind
        if kind == "idle producer":
            await anyio.sleep_forever()
        elif kind == "sending producer":
            await made.send(TOPIC, made.value())
            await anyio.sleep_forever()
        elif kind == "transacting producer":
            async with made.transaction():
                await made.send(TOPIC, made.value())
                await anyio.sleep_forever()
        else:
            while True:
                await made.getmany(timeout_ms=100)

    def made(self) -> Any:
        name, kind = self.client.name, self.client.kind
        options: dict[str, Any] = {
            "client_id": name,
            **self.harness.client_options,
            "close_timeout_ms": int(CLOSE_TIMEOUT_S * 1_000),
        }
        if kind.endswith("producer"):
            if kind == "sending producer":
                options |= {"linger_ms": 60_000, "delivery_timeout_ms": 120_000}
            elif kind == "transacting producer":
                options["transactional_id"] = name
            producer = with_runtime(Producer(**options), self.harness.runtime(self.client.host))
            return self.harness.recorder.producer(producer, name)
        if kind != "reader":
            options["group_id"] = GROUP
            options["enable_auto_commit"] = kind == "committing member"
        consumer = Consumer(TOPIC, auto_offset_reset="earliest", **options)
        with_runtime(consumer, self.harness.runtime(self.client.host))
        return self.harness.recorder.consumer(consumer, name)


SCENARIO = Scenario(
    "leaving", draw, run, lambda plan: Guarantees(numbers=has_idempotence(plan.broker))
)

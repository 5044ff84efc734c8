"""A group whose members use the classic or the consumer protocol (KIP-848), and change it."""

from __future__ import annotations

import random
import re
from collections.abc import Mapping, Sequence
from typing import Any

import anyio

from aiokafkawire import SubscriptionPattern
from aiokafkawire.broker import Drop, SeenRequest
from aiokafkawire.broker.groups.group_coordinator import Group
from aiokafkawire.config.consumer_config import CLASSIC_PROTOCOL_OPTIONS
from aiokafkawire.wire import ApiKey
from verify.invariants.checker import Guarantees
from verify.simulation.faults import REFUSALS, Scene, draw_steps
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
    send_steadily,
)

GROUP = "billing"
PATTERN = r"orders\d"
TO_S = 30.0
MOST_PARTITIONS = 6
FRESH_MS = 2_000

RUNS: Mapping[str, Sequence[Sequence[str]]] = {
    "any": (("classic", "consumer", "auto"),),
    "consumer": (("consumer", "auto"),),
    "upgrade": (("classic",), ("consumer", "auto")),
    "downgrade": (("consumer", "auto"), ("classic",)),
    "both ways": (("classic",), ("consumer",), ("classic",)),
    "old brokers": (("classic", "auto"),),
}
"""Protocols of the members, drawn for each; with several rounds, members change one by one."""

STRATEGIES: Sequence[Sequence[str]] = (
    ["cooperative-sticky"],
    ["cooperative-sticky"],
    ["range"],
    ["roundrobin", "range"],
    ["sticky"],
)
"""Assignors of all classic members of a run."""

APIS = (
    "CONSUMER_GROUP_HEARTBEAT",
    "CONSUMER_GROUP_HEARTBEAT",
    "OFFSET_COMMIT",
    "OFFSET_FETCH",
    "JOIN_GROUP",
    "SYNC_GROUP",
    "HEARTBEAT",
)
"""Requests whose responses are lost, late or errors; at which the coordinator moves."""


def draw(rng: random.Random) -> Plan:
    kind = rng.choices(list(RUNS), (6, 3, 3, 2, 2, 1))[0]
    topics = {f"orders{n}": rng.randint(1, 4) for n in range(rng.choice((1, 2, 2, 3)))}
    workers = tuple(
        _draw_worker(rng, number, kind, list(topics)) for number in range(rng.randint(2, 5))
    )
    sender = PlannedClient("sender", "10.0.1.1", "sends", {"pause_s": 0.2})
    scene = Scene(3, [each.host for each in (sender, *workers)], topics, groups=(GROUP,))
    steps = [
        *draw_worker_steps(rng, workers, rng.randint(2, 8), TO_S),
        *_moves(rng, workers, list(topics), rng.randint(20, 120)),
        *_changes(rng, list(topics)),
        *_bad_answers(rng),
        *draw_steps(rng, scene, count=rng.choice((0, 0, 1, 3)), from_s=0.1, to_s=TO_S),
        *_rounds(rng, workers, kind),
    ]
    interval_ms = rng.choice((50, 100, 300, 300))
    return Plan(
        broker={
            "nodes": 3,
            "as_of": "3.9" if kind == "old brokers" else rng.choice((None, None, "4.0", "4.2")),
            "auto_create_topics": False,
            "coordinator_load_ms": rng.choice((0, 0, 300)),
            "group_min_session_timeout_ms": 100,
            "group_consumer_session_timeout_ms": 3_000,
            "group_consumer_min_session_timeout_ms": 100,
            "group_consumer_heartbeat_interval_ms": interval_ms,
            "group_consumer_min_heartbeat_interval_ms": interval_ms,
            "group_consumer_assignment_interval_ms": rng.choice((0, 0, 0, 1_000)),
        },
        network={"max_delay_s": rng.choice((0.002, 0.02))},
        topics=topics,
        options={"kind": kind, "strategy": rng.choice(STRATEGIES)},
        records=rng.randint(30, 80),
        clients=(sender, *workers),
        steps=tuple(sorted(steps, key=lambda step: step.at_s)),
    )


def _draw_worker(
    rng: random.Random, number: int, kind: str, topics: Sequence[str]
) -> PlannedClient:
    some = topics if number == 0 else rng.sample(topics, rng.randint(1, len(topics)))
    arguments = {
        "topics": sorted(some),
        "pattern": rng.random() < 0.2,
        "protocols": [rng.choice(protocols) for protocols in RUNS[kind]],
        "comes_at_s": round(rng.choice((0.0, rng.uniform(0, TO_S / 4))), 3),
        "reads": rng.choice(list(READS)),
        "commits": rng.choice(COMMITS),
        "work_s": rng.choice((0.0, 0.0, 0.05)),
        "listens": rng.random() < 0.5,
        "static": rng.random() < 0.2,
    }
    return PlannedClient(f"worker-{number}", host_of(number), "works", arguments)


def _moves(
    rng: random.Random, workers: Sequence[PlannedClient], topics: Sequence[str], count: int
) -> list[Step]:
    """Draw members that leave and return at once, or subscribe to other topics."""
    steps = []
    for _ in range(count):
        worker = rng.choice(workers)
        kind = rng.choice(("leave", "subscribe", "subscribe"))
        arguments: dict[str, Any] = {"worker": worker.name}
        if kind == "leave":
            arguments["for_s"] = round(rng.choice((0.0, rng.uniform(0, 1))), 3)
        else:
            # The first one keeps all topics: each has a reader.
            some = (
                topics
                if worker is workers[0]
                else sorted(rng.sample(topics, rng.randint(1, len(topics))))
            )
            arguments["topics"] = some
        steps.append(Step(round(rng.uniform(0.2, TO_S), 3), kind, arguments))
    return steps


def _changes(rng: random.Random, topics: Sequence[str]) -> list[Step]:
    """Draw topics that are enlarged, or deleted and created again."""
    steps = []
    for _ in range(rng.choice((0, 0, 1, 3))):
        arguments: dict[str, Any] = {"topic": rng.choice(topics)}
        kind = rng.choice(("grow", "recreate"))
        if kind == "recreate":
            arguments["partitions"] = rng.randint(1, 3)
            arguments["for_s"] = round(rng.choice((0.0, rng.uniform(0, 4))), 3)
        steps.append(Step(round(rng.uniform(1, TO_S), 3), kind, arguments))
    return steps


def _bad_answers(rng: random.Random) -> list[Step]:
    """Draw responses that are lost, late or errors, and coordinators that move or die."""
    steps = []
    for _ in range(rng.choice((0, 1, 3, 8))):
        api, times = rng.choice(APIS), rng.randint(1, 2)
        kind = rng.choice(
            ("close instead of an answer", "late answer", "refusal", "move at", "lose")
        )
        arguments: dict[str, Any] = {"api": api, "times": times}
        if kind == "close instead of an answer":
            arguments["carried_out"] = rng.random() < 0.7
        elif kind == "late answer":
            arguments["by_s"] = round(rng.uniform(0.05, 3), 3)
        elif kind == "refusal":
            arguments["code"] = rng.choice(REFUSALS[ApiKey.OFFSET_FETCH]).name
        elif kind == "move at":
            arguments = {"api": api, "to": rng.randint(1, 3), "answered": rng.random() < 0.5}
        else:
            arguments = {"for_s": round(rng.uniform(0.1, 3), 3)}
        steps.append(Step(round(rng.uniform(0.5, TO_S), 3), kind, arguments))
    return steps


def _rounds(rng: random.Random, workers: Sequence[PlannedClient], kind: str) -> list[Step]:
    """Change the protocol of each member, one after the other, once per further round."""
    names = [worker.name for _ in RUNS[kind][1:] for worker in workers]
    return [
        Step(
            round(TO_S * (number + 1) / (len(names) + 1), 3),
            "switch",
            {"worker": name, "for_s": round(rng.uniform(0, 0.5), 3)},
        )
        for number, name in enumerate(names)
    ]


class RebalanceCounter:
    """Counts the assignments of a group: generations, and epochs of target assignments."""

    def __init__(self, harness: Harness) -> None:
        self._coordinator = harness.broker._running.group_coordinator
        self._harness = harness
        self._newest: tuple[str, int] | None = None
        harness.broker.requests.watch(self._saw)

    def _saw(self, seen: SeenRequest) -> None:
        group = self._coordinator.get(GROUP)
        if group is None or (newest := _assignment(group)) == self._newest:
            return
        # A conversion keeps the epoch.
        if newest[1] and (self._newest is None or newest[1] != self._newest[1]):
            self._harness.rebalances += 1
        self._newest = newest


def _assignment(group: Group) -> tuple[str, int]:
    epoch = getattr(group, "generation", None)
    return ("classic", epoch) if epoch is not None else ("consumer", group.data.assignment_epoch)


class Members:
    """Protocols and subscriptions of the members."""

    def __init__(self, harness: Harness) -> None:
        self._harness = harness
        self._round: dict[str, int] = {}
        self.topics: dict[str, Sequence[str]] = {}
        self.consumers: dict[str, Any] = {}

    def options(self, life: WorkerLife) -> dict[str, Any]:
        protocols = life.argument("protocols")
        name = life.client.name
        protocol = protocols[min(self._round.get(name, 0), len(protocols) - 1)]
        options: dict[str, Any] = {
            "group_id": GROUP,
            "group_protocol": protocol,
            "enable_auto_commit": life.argument("commits") == "automatic",
            "metadata_max_age_ms": FRESH_MS,
        }
        if protocol == "consumer":
            options |= CLASSIC_PROTOCOL_OPTIONS
        else:
            options["partition_assignment_strategy"] = self._harness.plan.options["strategy"]
        if life.argument("static"):
            options["group_instance_id"] = name
        return options

    def matches_at_coordinator(self, life: WorkerLife) -> bool:
        """Return True if the coordinator matches the pattern of a member, which is every other."""
        number = int(life.client.name.rpartition("-")[2])
        return number % 2 == 1 and self.options(life)["group_protocol"] == "consumer"

    def switch(self, worker: str) -> None:
        """Use the next protocol from the next life on."""
        self._round[worker] = self._round.get(worker, 0) + 1

    async def work(self, life: WorkerLife) -> None:
        worker = life.consumer(**self.options(life))
        listener = CommitOnRevoke(worker, life) if life.argument("listens") else None
        name = life.client.name
        if life.argument("pattern") and self.matches_at_coordinator(life):
            worker.subscribe(SubscriptionPattern(PATTERN), listener=listener)
        elif life.argument("pattern"):
            worker.subscribe(pattern=re.compile(PATTERN), listener=listener)
        else:
            topics = self.topics.get(name, life.argument("topics"))
            worker.subscribe(list(topics), listener=listener)
        async with worker:
            self.consumers[name] = (worker, listener)
            try:
                await READS[life.argument("reads")](worker, life)
            finally:
                del self.consumers[name]

    async def subscribe(self, worker: str, topics: Sequence[str]) -> None:
        """Change the subscription, unless it is a pattern."""
        self.topics[worker] = topics
        consumer, listener = self.consumers.get(worker, (None, None))
        pattern = {each.name: each.arguments["pattern"] for each in self._harness.plan.of("works")}
        if consumer is not None and not pattern.get(worker):
            consumer.subscribe(list(topics), listener=listener)


async def run(harness: Harness) -> None:
    await harness.make_topics()
    RebalanceCounter(harness)
    members = Members(harness)
    workers = harness.plan.of("works")
    async with anyio.create_task_group() as tasks:
        group_workers = GroupWorkers(harness, tasks, workers, members.work)

        async def switch(worker: str, for_s: float) -> None:
            members.switch(worker)
            await group_workers.leave(worker, for_s)

        harness.on("switch", switch)
        harness.on("subscribe", members.subscribe)
        _handle_steps(harness)
        async with anyio.create_task_group() as busy:
            busy.start_soon(harness.run_steps)
            for client in harness.plan.of("sends"):
                busy.start_soon(send, harness, client)
        if workers:
            await harness.until_consumed(*read_by(harness.plan), group=GROUP)
            await harness.until_settled()
        await group_workers.stop_all()
        tasks.cancel_scope.cancel()


def _handle_steps(harness: Harness) -> None:
    broker = harness.broker

    async def grow(topic: str) -> None:
        count = broker.topics.get(topic)
        if count is not None and count < MOST_PARTITIONS:
            await harness.grow_topic(topic, count + 1)

    async def recreate(topic: str, partitions: int, for_s: float) -> None:
        if topic in broker.topics:
            await harness.delete_topic(topic)
            await anyio.sleep(for_s)
            await harness.make_topic(topic, partitions)

    async def move_at(api: str, to: int, answered: bool) -> None:
        """Move the coordinator at the next such request, which gets no response."""

        def inject(request: SeenRequest) -> Drop | None:
            if to in broker.live_nodes:
                broker.move_coordinator(GROUP, to)
            return None if answered else Drop(carried_out=False)

        broker.on(ApiKey[api], inject, times=1)

    async def lose(for_s: float) -> None:
        """Kill the coordinator's node."""
        node = broker.coordinator(GROUP)
        if node in broker.live_nodes:
            await broker.kill(node)
            await anyio.sleep(for_s)
            await broker.restart(node)

    harness.on("grow", grow)
    harness.on("recreate", recreate)
    harness.on("move at", move_at)
    harness.on("lose", lose)


async def send(harness: Harness, client: PlannedClient) -> None:
    options = {"metadata_max_age_ms": FRESH_MS, "max_block_ms": 3_000, "delivery_timeout_ms": 6_000}
    await send_steadily(harness, client, **options)


def read_by(plan: Plan) -> list[str]:
    """Return the topics that some member always reads."""
    return sorted(
        {
            topic
            for worker in plan.of("works")
            for topic in ([] if _resubscribes(plan, worker) else worker.arguments["topics"])
        }
    )


def _resubscribes(plan: Plan, worker: PlannedClient) -> bool:
    return any(
        step.kind == "subscribe"
        and step.arguments["worker"] == worker.name
        and step.arguments["topics"] != worker.arguments["topics"]
        for step in plan.steps
    )


def guarantees(plan: Plan) -> Guarantees:
    return Guarantees(
        topics_remade=any(step.kind == "recreate" for step in plan.steps),
        in_fetches=plan.broker["as_of"] is None or plan.broker["as_of"] >= "3.1",
        complete_groups=(GROUP,) if plan.of("works") else (),
    )


SCENARIO = Scenario("mixed_group", draw, run, guarantees, share=20)

"""A day with hardly any activity: idle connections are closed, metadata expires, members send
heartbeats.

Nothing may grow, and clients may connect only for a reason.
"""

from __future__ import annotations

import gc
import random
from collections import Counter
from collections.abc import Mapping
from typing import Any

import anyio

from aiokafkawire.errors import KafkaError
from verify.invariants.checker import Guarantees
from verify.simulation.harness import Harness
from verify.simulation.plan import Plan, PlannedClient, Step
from verify.simulation.scenario import Scenario
from verify.simulation.scenarios.group_workers import host_of, make_consumer, make_producer

TOPIC, GROUP = "orders", "billing"
HOUR_S, POLL_S = 3_600.0, 240.0

PACES: Mapping[str, tuple[float, dict[str, Any]]] = {
    "as it comes": (0.25, {}),
    "calm": (
        24.0,
        {
            "fetch_max_wait_ms": 240_000,
            "request_timeout_ms": 300_000,
            "default_api_timeout_ms": 400_000,
            "heartbeat_interval_ms": 120_000,
            "session_timeout_ms": 400_000,
            "auto_commit_interval_ms": 600_000,
        },
    ),
}
"""Simulated hours, and options of consumers: with the defaults an hour has many requests."""

SETTLED_AFTER = 0.2
"""Share of the day after which nothing may grow."""

DARK_FROM = 0.4
"""Share of the day after which a node is down, if one is."""

DARK_S = 300.0

CONNECTS_AN_HOUR = 12
"""Connections of a client in an hour with one sent record: to each of three nodes, as idle ones
are closed after nine minutes."""

CONNECTS_A_SECOND = 3 / 0.8
"""Attempts to reach a node that is down: the longest backoff is a second less 20 % jitter; two
connection kinds and the bootstrap address try in parallel."""

ROOMS = tuple(
    f"aiokafkawire.{room}"
    for room in ("connection", "cluster", "consumer", "group", "producer", "runtime")
)
"""Modules whose objects are counted. Messages are not: the brokers keep a log of them."""

GROWTH, SPARE = 1.2, 60


def draw(rng: random.Random) -> Plan:
    pace = rng.choices(list(PACES), (2, 1))[0]
    partitions = rng.randint(1, 4)
    strategy = rng.choice(("range", "cooperative-sticky"))
    clients = (
        PlannedClient("sender", "10.0.1.1", "sends"),
        *(
            PlannedClient(f"worker-{number}", host_of(number), "works", {"strategy": strategy})
            for number in range(rng.randint(1, 2))
        ),
        *(PlannedClient(f"onlooker-{n}", f"10.0.3.{n}", "looks") for n in range(rng.randint(0, 1))),
    )
    from_s = PACES[pace][0] * HOUR_S * DARK_FROM
    nodes = rng.choice((1, 3))
    dark = {"node": rng.randint(1, nodes), "for_s": DARK_S, "hangs": rng.random() < 0.5}
    return Plan(
        broker={"nodes": nodes, "as_of": rng.choice((None, "2.8"))},
        topics={TOPIC: partitions},
        options={"pace": pace},
        records=rng.randint(2, 24),
        clients=clients,
        steps=(Step(from_s, "dark", dark),) if rng.random() < 0.5 else (),
    )


async def run(harness: Harness) -> None:
    await harness.make_topics()

    async def dark(node: int, for_s: float, hangs: bool) -> None:
        """Stop a node for a long time."""
        if hangs:
            harness.broker.pause(node)
        else:
            await harness.broker.kill(node)
        await anyio.sleep(for_s)
        harness.broker.resume(node)
        if not hangs:
            await harness.broker.restart(node)

    harness.on("dark", dark)
    hours, options = PACES[harness.plan.options["pace"]]
    day_s = hours * HOUR_S
    async with anyio.create_task_group() as tasks:
        for client in harness.plan.of("sends"):
            tasks.start_soon(send, harness, client, day_s)
        for kind in ("works", "looks"):
            for client in harness.plan.of(kind):
                tasks.start_soon(read, harness, client, options)
        tasks.start_soon(harness.run_steps)
        await anyio.sleep_until(day_s * SETTLED_AFTER)
        before = census(harness)
        await anyio.sleep_until(day_s)
        compare(harness, before, census(harness), day_s * (1 - SETTLED_AFTER) / HOUR_S)
        if harness.plan.of("works"):
            await harness.until_consumed(TOPIC, group=GROUP)
        tasks.cancel_scope.cancel()


async def send(harness: Harness, client: PlannedClient, day_s: float) -> None:
    """Send a record now and then, spread over the day."""
    options = {name: AS_IT_COMES[name] for name in ("request_timeout_ms", "metadata_max_age_ms")}
    async with make_producer(harness, client.name, client.host, **options) as sender:
        for _ in range(harness.plan.records):
            try:
                await sender.send_and_wait(TOPIC, sender.value())
            except KafkaError as error:
                harness.note(f"{client.name}: {error}")
            await anyio.sleep(day_s / (harness.plan.records + 1))


async def read(harness: Harness, client: PlannedClient, options: Mapping[str, Any]) -> None:
    mine: dict[str, Any] = {**AS_IT_COMES, **options}
    if client.kind == "works":
        mine["group_id"] = GROUP
        mine["partition_assignment_strategy"] = [client.arguments["strategy"]]
    async with make_consumer(harness, client.name, client.host, TOPIC, **mine) as worker:
        while True:
            await worker.getmany(timeout_ms=POLL_S * 1_000)


AS_IT_COMES: Mapping[str, Any] = {
    "request_timeout_ms": 30_000,
    "metadata_max_age_ms": 300_000,
    "session_timeout_ms": 45_000,
    "heartbeat_interval_ms": 3_000,
    "max_poll_interval_ms": 300_000,
    "auto_commit_interval_ms": 5_000,
    "default_api_timeout_ms": 60_000,
}
"""Defaults, instead of the options of other scenarios' workers."""


# --- what may not grow ---


def census(harness: Harness) -> Counter[str]:
    """Count objects of the client, tasks and timers, connections."""
    gc.collect()
    counted: Counter[str] = Counter()
    for each in gc.get_objects():
        kind = type(each)
        module = kind.__module__
        # In some library classes it is no text.
        if isinstance(module, str) and module.startswith(ROOMS):
            counted[f"{module}.{kind.__qualname__}"] += 1
    counted["left behind, if it ended now"] = len(harness.world.left_behind())
    network = harness.world.network
    counted["connections made"] = network.connects + network.connects_refused
    return counted


def compare(harness: Harness, before: Counter[str], after: Counter[str], hours: float) -> None:
    made = after.pop("connections made") - before.pop("connections made")
    dark_s = sum(step.arguments["for_s"] for step in harness.plan.steps)
    allowed = CONNECTS_AN_HOUR * max(hours, 1) + CONNECTS_A_SECOND * dark_s
    allowed *= len(harness.plan.clients)
    if made > allowed:
        harness.violated(
            10, f"{made} connections were made in {hours} hours, {allowed:.0f} allowed"
        )
    for what, count in sorted(after.items()):
        if count > before[what] * GROWTH + SPARE:
            harness.violated(10, f"{what} grew from {before[what]} to {count} in {hours} hours")


def guarantees(plan: Plan) -> Guarantees:
    return Guarantees(complete_groups=(GROUP,) if plan.of("works") else ())


SCENARIO = Scenario("idle_day", draw, run, guarantees, share=1, limit_s=90_000)

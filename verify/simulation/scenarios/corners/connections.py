"""Corner cases of connections: silent, lost and returning ones."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

import anyio

from aiokafkawire.broker import Delay
from aiokafkawire.wire import ApiKey
from verify.simulation.harness import Harness
from verify.simulation.plan import BROKER_HOST
from verify.simulation.scenarios.corners.corner_case import (
    HOST,
    OTHER_HOST,
    P0,
    TOPIC,
    CornerCase,
    RequestLog,
    Throttled,
    drop_connections,
    fill,
)
from verify.simulation.scenarios.group_workers import make_consumer, make_producer

__all__ = ("CORNERS",)

NOTICED_S = 8.0
"""Four request timeouts of these clients: the time to replace a dead connection."""


async def silent_connections(harness: Harness) -> None:
    """After an idle time the nodes drop the connections of a sender and a reader without notice."""
    async with (
        make_producer(harness, "sender", HOST, linger_ms=0) as sender,
        make_consumer(harness, "reader", OTHER_HOST, TOPIC) as reader,
    ):
        await sender.send_and_wait(TOPIC, sender.value())
        while not await reader.getmany(timeout_ms=500):
            pass
        await anyio.sleep(harness.plan.options["quiet_s"])
        drop_connections(harness, HOST)
        drop_connections(harness, OTHER_HOST)
        began = harness.now()
        await sender.send_and_wait(TOPIC, sender.value())
        check_duration(harness, "a record was sent", began)
        while not await reader.getmany(timeout_ms=500):
            check_duration(harness, "no record was read", began)
        check_duration(harness, "a record was read", began)


def check_duration(harness: Harness, what: str, since: float) -> None:
    if harness.now() > since + NOTICED_S:
        harness.violated(11, f"{what} {harness.now() - since:.1f} s after connections fell silent")


def draw_idle_time(rng: random.Random) -> dict[str, Any]:
    return {"quiet_s": rng.choice((0.0, round(rng.uniform(1, 30), 3)))}


# --- outages ---

OUTAGES = 6


async def repeated_outages(harness: Harness) -> None:
    """No node is reachable for a moment, repeatedly. Each time the clients recover soon: earlier
    failures are forgotten."""
    options = {"linger_ms": 0, "reconnect_backoff_max_ms": 30_000}
    rng = harness.rng("outages")
    async with make_producer(harness, "sender", HOST, **options) as sender:
        for _ in range(OUTAGES):
            await sender.send_and_wait(TOPIC, sender.value())
            for_s = rng.uniform(0.2, 1.0)
            for end in harness.node_ends.values():
                harness.world.network.refuse_connects(end)
            harness.world.network.reset(HOST, BROKER_HOST)
            delivery = await sender.send(TOPIC, sender.value())
            await anyio.sleep(for_s)
            harness.world.network.heal_all()
            back_at = harness.now()
            await delivery
            # Backoffs double: the last one is about as long as all earlier ones together.
            if harness.now() > back_at + 2 * for_s + 2:
                text = f"{harness.now() - back_at:.1f} s for a record after {for_s:.1f} s of outage"
                harness.violated(11, text)


async def metadata_unavailable(harness: Harness) -> None:
    """An unknown topic is requested while no node is reachable."""
    options = {"linger_ms": 0, "max_block_ms": 40_000, "metadata_max_age_ms": 300_000}
    async with make_producer(harness, "sender", HOST, **options) as sender:
        await sender.send_and_wait(TOPIC, sender.value())
        await anyio.sleep(harness.plan.options["quiet_s"])
        harness.world.network.sever(HOST, BROKER_HOST)
        for end in harness.node_ends.values():
            harness.world.network.refuse_connects(end)
        if harness.plan.options["reset"]:
            harness.world.network.reset(HOST, BROKER_HOST)

        async def come_back() -> None:
            await anyio.sleep(harness.plan.options["for_s"])
            harness.world.network.heal_all()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(come_back)
            began = harness.now()
            await sender.send_and_wait("refunds", sender.value())
        took = harness.now() - began - harness.plan.options["for_s"]
        if took > NOTICED_S:
            harness.violated(11, f"a topic became known {took:.1f} s after the outage")


def draw_outage(rng: random.Random) -> dict[str, Any]:
    return {
        "quiet_s": round(rng.uniform(0, 3), 3),
        "for_s": round(rng.uniform(1, 6), 3),
        "reset": rng.random() < 0.7,
    }


# --- calls ---


CALLS = 5


async def connection_lost_while_throttled(harness: Harness) -> None:
    """Calls wait because of a throttle, and the connection breaks."""
    await fill(harness, 3)
    async with make_consumer(harness, "reader", HOST, TOPIC) as reader:
        while not await reader.getmany(timeout_ms=500):
            pass
        silence = Throttled(for_ms=harness.plan.options["silence_ms"])
        lists = RequestLog(harness, ApiKey.LIST_OFFSETS, "reader")
        asked = harness.broker.on(ApiKey.LIST_OFFSETS, silence, times=1)
        await reader.end_offsets(P0)
        asked.remove()
        began = harness.now()
        async with anyio.create_task_group() as calls:
            for _ in range(CALLS):
                calls.start_soon(reader.end_offsets, P0)
            await anyio.sleep(harness.plan.options["after_s"])
            harness.world.network.reset(HOST, BROKER_HOST)
        if harness.now() > began + NOTICED_S:
            harness.violated(
                9, f"calls took {harness.now() - began:.1f} s after a connection broke"
            )
        first, *others = lists.seen
        if any(each.connection == first.connection for each in others):
            harness.violated(12, "a request was sent during a throttle")


def draw_throttle(rng: random.Random) -> dict[str, Any]:
    return {"silence_ms": rng.randint(1_000, 3_000), "after_s": round(rng.uniform(0.05, 0.8), 3)}


async def cancelled_calls(harness: Harness) -> None:
    """Calls are cancelled while their responses are on the way: no connection is closed for
    that."""
    await fill(harness, 3)
    rng = harness.rng("impatience")
    async with make_consumer(harness, "reader", HOST, TOPIC) as reader:
        while not await reader.getmany(timeout_ms=500):
            pass
        for _ in range(12):
            harness.broker.on(ApiKey.LIST_OFFSETS, Delay(0.1), times=1)
            with anyio.move_on_after(rng.uniform(0, 0.2)):
                await reader.end_offsets(P0)
            await reader.getmany(timeout_ms=100)
        await anyio.sleep(1)
        lost = reader.metrics()["connections_lost_total"]
        if lost:
            harness.violated(12, f"{lost} connections were lost without a fault")


CORNERS: Mapping[str, CornerCase] = {
    "silent connections": CornerCase(silent_connections, draw_idle_time),
    "repeated outages": CornerCase(repeated_outages),
    "metadata unavailable": CornerCase(
        metadata_unavailable, draw_outage, topics={TOPIC: 1, "refunds": 1}
    ),
    "connection lost while throttled": CornerCase(connection_lost_while_throttled, draw_throttle),
    "cancelled calls": CornerCase(cancelled_calls),
}

"""Situations of connections: silent ones, lost ones, and those that come back."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

import anyio

from aiokafkawire.broker import Delay
from aiokafkawire.wire import ApiKey
from tests.simulation.harness import Stage
from tests.simulation.plan import BROKER_HOST
from tests.simulation.scenarios.corners.corner_case import (
    HOST,
    OTHER_HOST,
    P0,
    TOPIC,
    Asked,
    Corner,
    Throttled,
    cut_off,
    fill,
)
from tests.simulation.scenarios.group_workers import a_consumer, a_producer

__all__ = ("CORNERS",)

NOTICED_S = 8.0
"""Four times the request timeout of clients here: so soon a dead connection was replaced."""


async def connections_fall_silent(stage: Stage) -> None:
    """After a quiet time the nodes forget the connections of a sender and a reader, who hear
    nothing of it."""
    async with (
        a_producer(stage, "sender", HOST, linger_ms=0) as sender,
        a_consumer(stage, "reader", OTHER_HOST, TOPIC) as reader,
    ):
        await sender.send_and_wait(TOPIC, sender.value())
        while not await reader.getmany(timeout_ms=500):
            pass
        await anyio.sleep(stage.plan.options["quiet_s"])
        cut_off(stage, HOST)
        cut_off(stage, OTHER_HOST)
        began = stage.now()
        await sender.send_and_wait(TOPIC, sender.value())
        told(stage, "a record was sent", began)
        while not await reader.getmany(timeout_ms=500):
            told(stage, "nothing was read", began)
        told(stage, "a record was read", began)


def told(stage: Stage, what: str, since: float) -> None:
    if stage.now() > since + NOTICED_S:
        stage.violated(11, f"{what} {stage.now() - since:.1f} s after connections fell silent")


def draw_quiet(rng: random.Random) -> dict[str, Any]:
    return {"quiet_s": rng.choice((0.0, round(rng.uniform(1, 30), 3)))}


# --- outages ---

OUTAGES = 6


async def outages_follow_each_other(stage: Stage) -> None:
    """No node can be reached for a moment, again and again. Each time the clients are back soon:
    what failed before the last time is forgotten."""
    options = {"linger_ms": 0, "reconnect_backoff_max_ms": 30_000}
    rng = stage.rng("outages")
    async with a_producer(stage, "sender", HOST, **options) as sender:
        for _ in range(OUTAGES):
            await sender.send_and_wait(TOPIC, sender.value())
            for_s = rng.uniform(0.2, 1.0)
            for end in stage.node_ends.values():
                stage.world.network.refuse_connects(end)
            stage.world.network.reset(HOST, BROKER_HOST)
            delivery = await sender.send(TOPIC, sender.value())
            await anyio.sleep(for_s)
            stage.world.network.heal_all()
            back_at = stage.now()
            await delivery
            # Pauses double: the last one is about as long as all before it.
            if stage.now() > back_at + 2 * for_s + 2:
                text = f"{stage.now() - back_at:.1f} s for a record after {for_s:.1f} s of outage"
                stage.violated(11, text)


async def metadata_cannot_be_had(stage: Stage) -> None:
    """A topic is asked for that nobody asked for before, while no node can be reached."""
    options = {"linger_ms": 0, "max_block_ms": 40_000, "metadata_max_age_ms": 300_000}
    async with a_producer(stage, "sender", HOST, **options) as sender:
        await sender.send_and_wait(TOPIC, sender.value())
        await anyio.sleep(stage.plan.options["quiet_s"])
        stage.world.network.sever(HOST, BROKER_HOST)
        for end in stage.node_ends.values():
            stage.world.network.refuse_connects(end)
        if stage.plan.options["reset"]:
            stage.world.network.reset(HOST, BROKER_HOST)

        async def come_back() -> None:
            await anyio.sleep(stage.plan.options["for_s"])
            stage.world.network.heal_all()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(come_back)
            began = stage.now()
            await sender.send_and_wait("refunds", sender.value())
        took = stage.now() - began - stage.plan.options["for_s"]
        if took > NOTICED_S:
            stage.violated(11, f"a topic was learnt of {took:.1f} s after the outage")


def draw_outage(rng: random.Random) -> dict[str, Any]:
    return {
        "quiet_s": round(rng.uniform(0, 3), 3),
        "for_s": round(rng.uniform(1, 6), 3),
        "reset": rng.random() < 0.7,
    }


# --- calls ---


CALLS = 5


async def a_connection_ends_while_calls_wait(stage: Stage) -> None:
    """Calls wait as a broker has asked for silence, and the connection is broken."""
    await fill(stage, 3)
    async with a_consumer(stage, "reader", HOST, TOPIC) as reader:
        while not await reader.getmany(timeout_ms=500):
            pass
        silence = Throttled(for_ms=stage.plan.options["silence_ms"])
        lists = Asked(stage, ApiKey.LIST_OFFSETS, "reader")
        asked = stage.broker.on(ApiKey.LIST_OFFSETS, silence, times=1)
        await reader.end_offsets(P0)
        asked.remove()
        began = stage.now()
        async with anyio.create_task_group() as calls:
            for _ in range(CALLS):
                calls.start_soon(reader.end_offsets, P0)
            await anyio.sleep(stage.plan.options["after_s"])
            stage.world.network.reset(HOST, BROKER_HOST)
        if stage.now() > began + NOTICED_S:
            stage.violated(9, f"calls took {stage.now() - began:.1f} s after a connection broke")
        first, *others = lists.seen
        if any(each.connection == first.connection for each in others):
            stage.violated(12, "a broker was asked that had asked for silence")


def draw_silence(rng: random.Random) -> dict[str, Any]:
    return {"silence_ms": rng.randint(1_000, 3_000), "after_s": round(rng.uniform(0.05, 0.8), 3)}


async def impatient_calls(stage: Stage) -> None:
    """Calls are given up while their answers are on the way, and nothing is broken: no connection
    is lost for that."""
    await fill(stage, 3)
    rng = stage.rng("impatience")
    async with a_consumer(stage, "reader", HOST, TOPIC) as reader:
        while not await reader.getmany(timeout_ms=500):
            pass
        for _ in range(12):
            stage.broker.on(ApiKey.LIST_OFFSETS, Delay(0.1), times=1)
            with anyio.move_on_after(rng.uniform(0, 0.2)):
                await reader.end_offsets(P0)
            await reader.getmany(timeout_ms=100)
        await anyio.sleep(1)
        lost = reader.metrics()["connections_lost_total"]
        if lost:
            stage.violated(12, f"{lost} connections were lost though nothing was broken")


CORNERS: Mapping[str, Corner] = {
    "connections fall silent": Corner(connections_fall_silent, draw_quiet),
    "outages follow each other": Corner(outages_follow_each_other),
    "metadata cannot be had": Corner(
        metadata_cannot_be_had, draw_outage, topics={TOPIC: 1, "refunds": 1}
    ),
    "a connection ends while calls wait": Corner(a_connection_ends_while_calls_wait, draw_silence),
    "impatient calls": Corner(impatient_calls),
}

"""The workers of the scenario `worker`, with transactions that write output and offsets."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Sequence
from functools import partial

import anyio

from aiokafkawire.broker import Delay, SeenRequest
from aiokafkawire.wire import ApiKey
from verify.simulation.harness import Harness
from verify.simulation.plan import Plan, PlannedClient, Step
from verify.simulation.scenario import Scenario
from verify.simulation.scenarios import worker
from verify.simulation.worker_faults import remove_members

__all__ = ("SCENARIO",)

SMALL_BUFFER = 1_000
"""Buffer of a producer that holds one output record, or one copy in a retry topic."""

BUFFER = 32 * 1024 * 1024

LATE_WRITE_S = 0.4
"""Delay of each Produce request of a worker before the members are removed, and after that."""


def draw(rng: random.Random) -> Plan:
    plan = worker.draw(rng)
    bills = rng.randint(1, 2)
    options = {
        "exactly_once": True,
        "commit_finished_records": False,
        "transaction_timeout_ms": rng.choice((3_000, 10_000)),
        "buffer_memory_bytes": rng.choice((SMALL_BUFFER, BUFFER)),
    }
    steps = [*plan.steps, *draw_removals(rng, plan.of("works"))]
    return dataclasses.replace(
        plan,
        topics={**plan.topics, worker.BILLS: bills},
        options={**plan.options, **options},
        steps=tuple(sorted(steps, key=lambda step: step.at_s)),
    )


def draw_removals(rng: random.Random, workers: Sequence[PlannedClient]) -> list[Step]:
    """Draw steps that remove the members of the group while a worker writes a transaction."""
    return [
        Step(
            round(rng.uniform(1, worker.TO_S), 3),
            "remove members while writing",
            {"writer": rng.choice(workers).name, "late_s": round(rng.uniform(1.5, 4), 3)},
        )
        for _ in range(rng.choice((1, 3)))
    ]


async def run(harness: Harness) -> None:
    harness.on("remove members while writing", partial(remove_members_while_writing, harness))
    await worker.run(harness)


async def remove_members_while_writing(harness: Harness, writer: str, late_s: float) -> None:
    """Remove all members while a worker writes the output of many records, one by one.

    The records accumulate because the end of the transaction before is late.
    """
    has_ended, writing = False, anyio.Event()

    def delay_end(seen: SeenRequest) -> Delay | None:
        nonlocal has_ended
        if has_ended or not seen.client_id.startswith(f"{writer}."):
            return None
        has_ended = True
        return Delay(late_s)

    def delay_write(seen: SeenRequest) -> Delay | None:
        if not has_ended or not seen.client_id.startswith(f"{writer}."):
            return None
        writing.set()
        return Delay(LATE_WRITE_S)

    rules = [
        harness.broker.on(ApiKey.END_TXN, delay_end),
        harness.broker.on(ApiKey.PRODUCE, delay_write),
    ]
    with anyio.move_on_after(2 * late_s):
        await writing.wait()
    await remove_members(harness, worker.GROUP)
    await anyio.sleep(late_s)
    for rule in rules:
        rule.remove()


SCENARIO = Scenario("exactly_once", draw, run, worker.guarantees)

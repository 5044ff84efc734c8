"""Corner cases of producers."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import anyio

from aiokafkawire.broker import Answer, Delay, Drop, SeenRequest
from aiokafkawire.errors import KafkaError
from aiokafkawire.testing.simulation import NetworkOptions
from aiokafkawire.wire import ApiKey, ErrorCode, Response
from verify.simulation.harness import Harness
from verify.simulation.plan import BROKER_HOST
from verify.simulation.scenarios.corners.corner_case import (
    HOST,
    TOPIC,
    ChangedResponse,
    CornerCase,
    RequestLog,
)
from verify.simulation.scenarios.group_workers import make_producer

__all__ = ("CORNERS",)

KNOWN_S = 0.5
"""Time after the new leader's append in which requests to the old leader may still arrive."""


@dataclass(frozen=True, slots=True)
class StaleMetadata(ChangedResponse):
    """Metadata of a node that does not know the last leader change."""

    leader: int = -1
    epoch: int = -1

    def response(self, response: Response) -> Response:
        changed: Any = response
        topics = [
            replace(topic, partitions=[self._before(each) for each in topic.partitions])
            for topic in changed.topics
        ]
        return replace(changed, topics=topics)  # type: ignore[no-any-return]

    def _before(self, partition: Any) -> Any:
        if partition.partition_index != 0:
            return partition
        return replace(partition, leader_id=self.leader, leader_epoch=self.epoch)


def draw_move(rng: random.Random) -> dict[str, Any]:
    return {"behind": rng.random() < 0.5, "pause_s": rng.choice((0.01, 0.03))}


async def leader_moves(harness: Harness) -> None:
    """One of two partitions that a node leads moves; some nodes may not know it. A client that
    knows the new leader does not write to the old one."""
    broker = harness.broker
    old = broker.leader(TOPIC, 0)
    broker.move_leader(TOPIC, 1, old)
    new = old % 3 + 1
    options = {"linger_ms": 0, "metadata_max_age_ms": 400, "batch_size_bytes": 200}
    produced = RequestLog(harness, ApiKey.PRODUCE, "sender")
    rng = harness.rng("sender")
    deliveries = []

    async def send_on(sender: Any, for_s: float) -> None:
        until = harness.now() + for_s
        while harness.now() < until:
            for partition in (0, 1):
                deliveries.append(await sender.send(TOPIC, sender.value(), partition=partition))
            await anyio.sleep(rng.uniform(0, 2 * harness.plan.options["pause_s"]))

    async with make_producer(harness, "sender", HOST, **options) as sender:
        await send_on(sender, 1.0)
        before = StaleMetadata(leader=old, epoch=broker.leader_epoch(TOPIC, 0))
        if harness.plan.options["behind"]:
            for node in broker.nodes:
                if node != new:
                    broker.on(ApiKey.METADATA, before, node=node)
        broker.move_leader(TOPIC, 0, new)
        await send_on(sender, 3.0)
        broker.clear_faults()
        for delivery in deliveries:
            await delivery
    codes = [(seen, response_code(seen)) for seen in produced.seen]
    taken = [seen.at for seen, code in codes if seen.node_id == new and code == ErrorCode.NONE]
    known_at = min(taken, default=harness.now()) + KNOWN_S
    wrong = [seen.at for seen, code in codes if code and seen.at > known_at]
    if wrong:
        harness.violated(
            12, f"{len(wrong)} requests went to the old leader after {known_at}: {wrong[:5]}"
        )


def response_code(seen: SeenRequest) -> int | None:
    """Return the error code for the first partition, if there was a response."""
    response: Any = seen.response
    for topic in response.responses if response is not None else ():
        for partition in topic.partition_responses:
            if partition.index == 0:
                return int(partition.error_code)
    return None


# --- room in the buffer ---

BUFFER_BYTES = 20_000
WAITING = 120
SOON_S = 2.0


def draw_senders(rng: random.Random) -> dict[str, Any]:
    return {"cancelled": rng.choice((0.0, 0.3)), "held_s": round(rng.uniform(0.5, 1.5), 3)}


async def many_sends_wait_for_memory(harness: Harness) -> None:
    """Many calls wait for buffer memory, and some are cancelled. When a large batch completes
    there is memory for all: no call waits until the others have responses."""
    options = {"buffer_memory_bytes": BUFFER_BYTES, "linger_ms": 0, "max_block_ms": 20_000}
    harness.world.network.set_link(
        HOST, BROKER_HOST, NetworkOptions(min_delay_s=0.05, max_delay_s=0.1)
    )
    rng = harness.rng("cancelled")
    handed: list[float] = []

    async with make_producer(harness, "sender", HOST, **options) as sender:
        await sender.send_and_wait(TOPIC, sender.value())
        harness.broker.on(ApiKey.PRODUCE, Delay(harness.plan.options["held_s"]), times=1)

        async def wait_for_room() -> None:
            gone = rng.random() < harness.plan.options["cancelled"]
            with anyio.move_on_after(rng.uniform(0, 0.4) if gone else 60):
                await sender.send(TOPIC, sender.value(b"." * 20))
                handed.append(harness.now())

        first = await sender.send(TOPIC, sender.value(b"." * (BUFFER_BYTES - 400)))
        async with anyio.create_task_group() as crowd:
            for _ in range(WAITING):
                crowd.start_soon(wait_for_room)
            await first
            free_at = harness.now()
        await sender.flush()
    late = [at for at in handed if at > free_at + SOON_S]
    if late:
        harness.violated(
            9, f"{len(late)} calls waited though there was room: {late[-1] - free_at} s"
        )


# --- replicas ---


def draw_death(rng: random.Random) -> dict[str, Any]:
    return {"lag_s": rng.choice((0.2, 0.4)), "for_s": round(rng.uniform(0.5, 2), 3)}


async def leader_dies_before_replication(harness: Harness) -> None:
    """Acknowledged records survive the death of a leader whose followers are slightly behind."""
    lag_s = harness.plan.options["lag_s"]
    link = NetworkOptions(min_delay_s=lag_s, max_delay_s=lag_s)
    harness.world.network.set_link(BROKER_HOST, BROKER_HOST, link)
    options = {"linger_ms": 0, "request_timeout_ms": 5_000}
    rng = harness.rng("sender")
    async with make_producer(harness, "sender", HOST, **options) as sender:
        await sender.send_and_wait(TOPIC, sender.value())
        node = harness.broker.leader(TOPIC, 0)
        deliveries = []
        for _ in range(30):
            deliveries.append(await sender.send(TOPIC, sender.value()))
            await anyio.sleep(rng.uniform(0, 0.04))
        await harness.broker.kill(node, lose_unsynced=True)
        await anyio.sleep(harness.plan.options["for_s"])
        await harness.broker.restart(node)
        harness.world.network.set_link(BROKER_HOST, BROKER_HOST, None)
        for delivery in deliveries:
            try:
                await delivery
            except KafkaError as error:
                harness.note(f"sender: {error}")
    await harness.until_replicated()


# --- refusals for good ---

LARGEST_BYTES = 900
"""Batch limit of the broker; a batch of several records exceeds it, a single record does not."""


async def batches_too_large(harness: Harness) -> None:
    """Batches above the broker's limit are split; later batches of the partition follow."""
    rng = harness.rng("sender")
    options = {"linger_ms": 20, "batch_size_bytes": 4_000, "enable_idempotence": True}
    async with make_producer(harness, "sender", HOST, **options) as sender:
        for _ in range(harness.plan.options["rounds"]):
            values = [sender.value(b"." * rng.randint(50, 300)) for _ in range(rng.randint(5, 20))]
            deliveries = await sender.send_many(TOPIC, values)
            if rng.random() < 0.5:
                await sender.flush()
            for delivery in deliveries:
                await delivery


async def records_rejected_for_good(harness: Harness) -> None:
    """Now and then a record is rejected for good. The next ones are accepted."""
    rng = harness.rng("sender")
    options = {"linger_ms": 0, "max_in_flight_requests_per_connection": 1}
    async with make_producer(harness, "sender", HOST, **options) as sender:
        for _ in range(harness.plan.options["rounds"]):
            for _ in range(rng.randint(0, 3)):
                await sender.send_and_wait(TOPIC, sender.value())
            harness.broker.on(ApiKey.PRODUCE, Answer(rng.choice(FOR_GOOD)), times=1)
            try:
                await sender.send_and_wait(TOPIC, sender.value())
            except KafkaError as error:
                harness.note(f"sender: {error}")
            await sender.send_and_wait(TOPIC, sender.value())


FOR_GOOD = (ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.MESSAGE_TOO_LARGE)


def draw_rounds(rng: random.Random) -> dict[str, Any]:
    return {"rounds": rng.randint(2, 5)}


# --- transactions' records under way ---

EXPIRES_MS = 3_000


async def aborted_record_still_in_flight(harness: Harness) -> None:
    """A record expires while its second attempt is delayed, and its transaction is aborted.

    The record must not get into the log behind the end of its transaction. Brokers since 2.5 reject
    it by its epoch; before, only the client prevents it.
    """
    options = {
        "transactional_id": "copier",
        "linger_ms": 0,
        "delivery_timeout_ms": EXPIRES_MS,
        "request_timeout_ms": 2_000,
        "max_block_ms": 20_000,
    }
    held_s = harness.plan.options["held_s"]
    async with make_producer(harness, "sender.1", HOST, **options) as sender:
        async with sender.transaction():
            await sender.send_and_wait(TOPIC, sender.value())
        harness.broker.on(ApiKey.PRODUCE, Drop(), times=1)
        harness.broker.on(ApiKey.PRODUCE, Delay(held_s), times=1)
        try:
            async with sender.transaction():
                await sender.send_and_wait(TOPIC, sender.value())
        except KafkaError as error:
            harness.note(f"sender: {error}")
    # Brokers of this age give it no new epoch: a new producer has to continue.
    async with make_producer(harness, "sender.2", HOST, **options) as sender, sender.transaction():
        await anyio.sleep(held_s)
        await sender.send_and_wait(TOPIC, sender.value())


def draw_expiry(rng: random.Random) -> dict[str, Any]:
    # The response comes after the record expired, and before the client closes the connection.
    return {"held_s": round(rng.uniform(1.1, 1.6), 3)}


async def send_outlives_its_transaction(harness: Harness) -> None:
    """A send waits while another task ends the transaction and begins the next."""
    options = {"transactional_id": "sender", "linger_ms": 0, "max_block_ms": 20_000}
    for_s = harness.plan.options["for_s"]

    async def wait(sender: Any) -> None:
        try:
            await sender.send("refunds", sender.value())
        except KafkaError as error:
            harness.note(f"sender: {error}")

    async with make_producer(harness, "sender", HOST, **options) as sender:
        async with sender.transaction():
            await sender.send_and_wait(TOPIC, sender.value())
        await sender.begin_transaction()
        async with anyio.create_task_group() as waiting:
            for node in harness.broker.nodes:
                harness.broker.on(ApiKey.METADATA, Delay(for_s), node=node)
            waiting.start_soon(wait, sender)
            await anyio.sleep(harness.plan.options["after_s"])
            if harness.plan.options["commits"]:
                await sender.commit_transaction()
            else:
                await sender.abort_transaction()
            await sender.begin_transaction()
            await sender.send(TOPIC, sender.value())
        await sender.commit_transaction()


def draw_wait(rng: random.Random) -> dict[str, Any]:
    return {
        "for_s": round(rng.uniform(1, 2), 3),
        "after_s": round(rng.uniform(0.05, 0.3), 3),
        "commits": rng.random() < 0.5,
    }


async def record_fails_during_commit(harness: Harness) -> None:
    """On commit the pending records are sent, and some are rejected for good: none is committed.
    The next transaction is."""
    options = {"transactional_id": "sender", "linger_ms": 2_000, "max_block_ms": 20_000}
    rng = harness.rng("sender")
    refused = [rng.random() < 0.7 for _ in range(harness.plan.options["rounds"])]
    async with make_producer(harness, "sender", HOST, **options) as sender:
        for fails in (*refused, False):
            if fails:
                code = rng.choice(FOR_GOOD)
                harness.broker.on(ApiKey.PRODUCE, Answer(code), times=1)
            await sender.begin_transaction()
            for partition in (0, 1):
                for _ in range(rng.randint(1, 3)):
                    await sender.send(TOPIC, sender.value(), partition=partition)
            try:
                await sender.commit_transaction()
            except KafkaError as error:
                harness.note(f"sender: {error}")
                await sender.abort_transaction()


REPLICATED: Mapping[str, Any] = {
    "replicate": True,
    "flush_interval_ms": 30_000,
    "min_insync_replicas": 2,
    "replica_lag_time_max_ms": 3_000,
}

CORNERS: Mapping[str, CornerCase] = {
    "leader moves": CornerCase(leader_moves, draw_move, topics={TOPIC: 2}),
    "many sends wait for memory": CornerCase(many_sends_wait_for_memory, draw_senders),
    "leader dies before replication": CornerCase(
        leader_dies_before_replication, draw_death, broker=REPLICATED
    ),
    "batches too large": CornerCase(
        batches_too_large, draw_rounds, broker={"max_message_bytes": LARGEST_BYTES}
    ),
    "records rejected for good": CornerCase(records_rejected_for_good, draw_rounds),
    "aborted record still in flight": CornerCase(
        aborted_record_still_in_flight, draw_expiry, broker={"as_of": "2.3"}
    ),
    "send outlives its transaction": CornerCase(
        send_outlives_its_transaction,
        draw_wait,
        topics={TOPIC: 1, "refunds": 1},
    ),
    "record fails during commit": CornerCase(
        record_fails_during_commit, draw_rounds, topics={TOPIC: 2}
    ),
}

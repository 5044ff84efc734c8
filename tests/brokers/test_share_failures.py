"""Share consumers on three real nodes that die, stop, or lose their connections."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest
from anyio import to_thread

from aiokafkawire import Producer, ShareConsumer, ShareRecord
from aiokafkawire.admin import Admin, ConfigResource, ConfigResourceType, NewTopic
from aiokafkawire.errors import AcknowledgementFailed, RequestTimedOut
from tests.brokers import raw
from tests.brokers.fixtures import what_real_kafka_needs
from tests.brokers.kafka import Kafka, Node
from tests.elapsed import ends_within

LOCK_S = 5.0
LONG_LOCK_S = 60.0
"""Longer than the brokers take to replace a dead coordinator."""
WITHIN_S = 60.0
CLOSE_MS = 2_000
GRACE_S = 1.0
"""How much later than its deadline a call may end on a busy machine."""
EXPLICIT: dict[str, Any] = {"share_acknowledgement_mode": "explicit"}

pytestmark = pytest.mark.parametrize("anyio_backend", ["asyncio"], indirect=True)


@pytest.fixture(scope="module")
def kafka() -> Iterator[Kafka]:
    with what_real_kafka_needs(), Kafka(nodes=3) as kafka:
        yield kafka


class Queue:
    """A topic of one partition, and a share group that reads it from the start."""

    def __init__(self, kafka: Kafka) -> None:
        self.kafka = kafka
        self.topic, self.group = f"queue-{uuid.uuid4().hex[:12]}", f"group-{uuid.uuid4().hex[:12]}"

    def member(self, **options: Any) -> ShareConsumer:
        options = {"fetch_max_wait_ms": 100, "close_timeout_ms": CLOSE_MS, **options}
        return ShareConsumer(
            self.topic,
            bootstrap_servers=self.kafka.bootstrap_servers,
            group_id=self.group,
            **options,
        )

    @asynccontextmanager
    async def admin(self) -> AsyncIterator[Admin]:
        async with Admin(bootstrap_servers=self.kafka.bootstrap_servers) as admin:
            yield admin

    async def create(self) -> None:
        async with self.admin() as admin:
            await admin.ensure_topics([NewTopic(self.topic, 1, 3)])
            await admin.wait_for_topics([self.topic])
        await self.configure(
            {
                "share.auto.offset.reset": "earliest",
                "share.record.lock.duration.ms": f"{LOCK_S * 1000:.0f}",
                "share.session.timeout.ms": "6000",
            }
        )

    async def configure(self, configs: dict[str, str]) -> None:
        async with self.admin() as admin:
            resource = ConfigResource(ConfigResourceType.GROUP, self.group)
            await admin.incremental_alter_configs({resource: configs})

    async def write(self, count: int) -> None:
        async with Producer(bootstrap_servers=self.kafka.bootstrap_servers) as producer:
            for number in range(count):
                await producer.send(self.topic, b"%05d" % number, partition=0)
            await producer.flush()

    def _node(self, node_id: int) -> Node:
        return next(node for node in self.kafka.nodes if node.node_id == node_id)

    async def leader(self) -> Node:
        found = await to_thread.run_sync(raw.metadata, self.kafka.nodes[0].address)
        return self._node(found.leaders[self.topic][0])

    async def coordinator(self) -> Node:
        async with self.admin() as admin:
            described = (await admin.describe_share_groups([self.group]))[self.group]
        return self._node(described.coordinator_id)

    async def restart(self) -> None:
        """Start the nodes that were killed, and wait until all replicas are in sync."""
        await to_thread.run_sync(self.kafka.start)
        with anyio.fail_after(WITHIN_S):
            while True:
                found = await to_thread.run_sync(raw.metadata, self.kafka.nodes[0].address)
                if found.all_in_sync():
                    return
                await anyio.sleep(0.2)


@pytest.fixture
async def queue(kafka: Kafka) -> Queue:
    queue = Queue(kafka)
    await queue.create()
    return queue


async def take(consumer: ShareConsumer, count: int) -> list[ShareRecord]:
    records: list[ShareRecord] = []
    with anyio.fail_after(WITHIN_S):
        while len(records) < count:
            found = await consumer.getmany(timeout_ms=500, max_records=count - len(records))
            records += [record for some in found.values() for record in some]
    return records


async def accept_all(consumer: ShareConsumer, offsets: set[int]) -> list[int]:
    """Accept records until these offsets are confirmed; return the delivery counts."""
    counts = []
    with anyio.fail_after(WITHIN_S):
        while offsets:
            for record in await take(consumer, 1):
                counts.append(record.delivery_count)
                try:
                    await record.accept()
                except AcknowledgementFailed:
                    continue
                offsets.discard(record.offset)
    return counts


async def nothing_left(queue: Queue) -> None:
    """Check that another member gets no record, even after the locks."""
    async with queue.member() as consumer:
        with anyio.move_on_after(LOCK_S + 2):
            raise AssertionError(await consumer.getone())


async def test_a_leader_dies_between_acquisition_and_acknowledgement(queue: Queue) -> None:
    await queue.write(20)
    async with queue.member(**EXPLICIT) as consumer:
        records = await take(consumer, 20)
        confirmed = records[:5]
        for record in confirmed:
            await record.accept()
        (await queue.leader()).kill()
        try:
            pending = [record.accept() for record in records[5:10]]
            for acknowledgement in pending:
                with pytest.raises(AcknowledgementFailed):
                    await acknowledgement
            await accept_all(consumer, set(range(5, 20)))
        finally:
            await queue.restart()
    await nothing_left(queue)


async def test_a_coordinator_dies(queue: Queue) -> None:
    # Kafka 4.3.0 retries the write of an expired lock, and overwrites a later start offset with it:
    # accepted records come again. So no lock expires while there is no coordinator.
    await queue.configure({"share.record.lock.duration.ms": f"{LONG_LOCK_S * 1000:.0f}"})
    await queue.write(10)
    async with queue.member(**EXPLICIT) as consumer:
        await accept_all(consumer, set(range(5)))
        (await queue.coordinator()).kill()
        try:
            await accept_all(consumer, set(range(5, 10)))
            await queue.write(10)
            await accept_all(consumer, set(range(10, 20)))
        finally:
            await queue.restart()
    await nothing_left(queue)


@pytest.mark.parametrize("who", ["leader", "coordinator", "all"])
async def test_closing_keeps_its_deadline_without_a_broker(queue: Queue, who: str) -> None:
    await queue.write(10)
    consumer = queue.member(**EXPLICIT)
    async with consumer:
        records = await take(consumer, 10)
        victims = {
            "leader": [await queue.leader()],
            "coordinator": [await queue.coordinator()],
            "all": list(queue.kafka.nodes),
        }[who]
        for node in victims:
            node.suspend()
        try:
            accepted = records[0].accept()
            with ends_within(CLOSE_MS / 1000 + GRACE_S):
                await consumer.stop()
            # Without one of the nodes, a broker may be able to write the acknowledgement or not.
            with contextlib.suppress(AcknowledgementFailed), anyio.fail_after(GRACE_S):
                await accepted
        finally:
            for node in victims:
                node.resume()
    async with queue.member(**EXPLICIT) as consumer:
        await accept_all(consumer, set(range(1, 10)))
    await nothing_left(queue)


async def test_a_node_stops_between_acquisition_and_acknowledgement(queue: Queue) -> None:
    """Its connections stay open, and nothing is answered."""
    await queue.write(10)
    async with queue.member(**EXPLICIT, request_timeout_ms=2_000) as consumer:
        records = await take(consumer, 10)
        leader = await queue.leader()
        leader.suspend()
        try:
            failed = records[0].accept()
            with ends_within(0.5 + GRACE_S):
                [error] = (await consumer.commit(timeout_ms=500)).values()
            assert isinstance(error, RequestTimedOut)
            with ends_within(2 + 0.1 + GRACE_S), pytest.raises(AcknowledgementFailed):
                await failed
            await accept_all(consumer, set(range(1, 10)))
        finally:
            leader.resume()
    await nothing_left(queue)


async def test_a_cancelled_task_ends_soon_without_a_broker(queue: Queue) -> None:
    await queue.write(1)
    delivered, ended = anyio.Event(), anyio.Event()

    async def work() -> None:
        try:
            async with queue.member(**EXPLICIT, close_timeout_ms=30_000) as consumer:
                [record] = await take(consumer, 1)
                delivered.set()
                async with record:
                    await consumer.getone()
        finally:
            ended.set()

    try:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(work)
            with anyio.fail_after(WITHIN_S):
                await delivered.wait()
            for node in queue.kafka.nodes:
                node.suspend()
            tasks.cancel_scope.cancel()
            with anyio.CancelScope(shield=True), ends_within(1 + GRACE_S):
                await ended.wait()
    finally:
        for node in queue.kafka.nodes:
            node.resume()
    async with queue.member(**EXPLICIT) as consumer:
        await accept_all(consumer, {0})


async def test_a_topic_is_deleted_and_created_again(queue: Queue) -> None:
    await queue.write(10)
    async with queue.member(**EXPLICIT) as consumer, queue.admin() as admin:
        old = await take(consumer, 10)
        await admin.delete_topics([queue.topic])
        with anyio.fail_after(WITHIN_S):
            with pytest.raises(AcknowledgementFailed):
                await old[0].accept()
            while queue.topic in await admin.list_topics():  # noqa: ASYNC110 - a broker deletes it
                await anyio.sleep(0.1)
        await admin.ensure_topics([NewTopic(queue.topic, 1, 3)])
        await admin.wait_for_topics([queue.topic])
        await queue.write(5)
        counts = await accept_all(consumer, set(range(5)))
        assert counts == [1] * 5
        with pytest.raises(AcknowledgementFailed):
            await old[6].accept()


async def test_a_group_is_deleted_while_records_are_held(queue: Queue) -> None:
    await queue.write(10)
    async with queue.member(**EXPLICIT) as consumer, queue.admin() as admin:
        records = await take(consumer, 5)
        consumer.unsubscribe()
        with anyio.fail_after(WITHIN_S):
            while True:
                results = await admin.delete_share_groups([queue.group], return_errors=True)
                if results[queue.group] is None:
                    break
                await anyio.sleep(0.1)
            # The leader still has the locks; the coordinator has no state to write them to.
            with contextlib.suppress(AcknowledgementFailed):
                await records[0].accept()
            consumer.subscribe([queue.topic])
            await accept_all(consumer, set(range(1, 10)))

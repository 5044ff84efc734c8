"""Share consumers on a real node whose connections are cut, and whose sessions are limited."""

from __future__ import annotations

import contextlib
import random
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import anyio
import anyio.abc
import pytest

from aiokafkawire import Producer, ShareConsumer, ShareRecord
from aiokafkawire.admin import Admin, ConfigResource, ConfigResourceType, NewTopic
from aiokafkawire.runtime import Address, RealRuntime
from tests.brokers.fixtures import what_real_kafka_needs
from tests.brokers.kafka import Kafka

SESSIONS = 2
RECORDS, CUTS = 2_000, 60
LOCK_S = 60.0
WITHIN_S = 50.0
CHUNK = 2_048

pytestmark = pytest.mark.parametrize("anyio_backend", ["asyncio"], indirect=True)


@pytest.fixture(scope="module")
def kafka() -> Iterator[Kafka]:
    limits = {
        "group.share.max.size": f"{SESSIONS}",
        "group.share.max.share.sessions": f"{SESSIONS}",
    }
    with what_real_kafka_needs(), Kafka(properties=limits) as kafka:
        yield kafka


@pytest.fixture
async def topic(kafka: Kafka) -> str:
    """A topic of one partition with records."""
    topic = f"cut-{uuid.uuid4().hex[:12]}"
    async with Admin(bootstrap_servers=kafka.bootstrap_servers) as admin:
        await admin.ensure_topics([NewTopic(topic, 1)])
        await admin.wait_for_topics([topic])
    return topic


async def write(kafka: Kafka, topic: str, count: int) -> None:
    async with Producer(bootstrap_servers=kafka.bootstrap_servers) as producer:
        for number in range(count):
            await producer.send(topic, b"%05d" % number, partition=0)
        await producer.flush()


async def new_group(kafka: Kafka) -> str:
    """Configure a group that reads from the start."""
    group = f"group-{uuid.uuid4().hex[:12]}"
    async with Admin(bootstrap_servers=kafka.bootstrap_servers) as admin:
        configs = {
            "share.auto.offset.reset": "earliest",
            "share.record.lock.duration.ms": f"{LOCK_S * 1000:.0f}",
            "share.delivery.count.limit": "10",
        }
        await admin.incremental_alter_configs(
            {ConfigResource(ConfigResourceType.GROUP, group): configs}
        )
    return group


class Proxy:
    """Forwards connections of this process to brokers, and cuts them in the middle of frames."""

    def __init__(self, tasks: anyio.abc.TaskGroup, monkeypatch: pytest.MonkeyPatch) -> None:
        self._tasks = tasks
        self._listeners: dict[Address, Address] = {}
        self._open: set[anyio.CancelScope] = set()
        connect = RealRuntime.connect

        async def connect_through(runtime: RealRuntime, address: Address) -> Any:
            return await connect(runtime, await self._listener(address))

        monkeypatch.setattr(RealRuntime, "connect", connect_through)

    async def _listener(self, broker: Address) -> Address:
        if broker not in self._listeners:
            listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
            port = listener.extra(anyio.abc.SocketAttribute.local_port)
            self._listeners[broker] = Address("127.0.0.1", port)
            self._tasks.start_soon(self._serve, listener, broker)
        return self._listeners[broker]

    async def _serve(self, listener: Any, broker: Address) -> None:
        async with listener:
            await listener.serve(lambda client: self._forward(client, broker))

    async def _forward(self, client: anyio.abc.SocketStream, broker: Address) -> None:
        async with client, await anyio.connect_tcp(broker.host, broker.port) as server:
            with anyio.CancelScope() as scope:
                self._open.add(scope)
                async with anyio.create_task_group() as both:
                    both.start_soon(self._pump, client, server, both.cancel_scope)
                    both.start_soon(self._pump, server, client, both.cancel_scope)
            self._open.discard(scope)

    async def _pump(
        self,
        source: anyio.abc.SocketStream,
        target: anyio.abc.SocketStream,
        scope: anyio.CancelScope,
    ) -> None:
        try:
            while True:
                await target.send(await source.receive(CHUNK))
        except (anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError):
            scope.cancel()

    def cut(self) -> None:
        """Cut all connections."""
        for scope in self._open:
            scope.cancel()


class Progress:
    """Records that members have processed, and those whose acceptance was confirmed."""

    def __init__(self) -> None:
        self.processed: set[int] = set()
        self.deliveries: Counter[int] = Counter()
        self._confirmed: set[int] = set()

    def on_result(self, tp: object, offsets: Sequence[int], error: Exception | None) -> None:
        if error is None:
            self._confirmed.update(offsets)

    def process(self, record: ShareRecord) -> None:
        assert record.offset not in self._confirmed, record
        self.processed.add(record.offset)
        self.deliveries[record.delivery_count] += 1


@pytest.mark.parametrize("mode", ["implicit", "explicit"])
async def test_connections_are_cut(
    kafka: Kafka,
    topic: str,
    mode: Any,
    monkeypatch: pytest.MonkeyPatch,
    record_property: Callable[[str, object], None],
) -> None:
    """The records of a lost session come again at once: the test is shorter than a lock."""
    await write(kafka, topic, RECORDS)
    group = await new_group(kafka)
    progress, rng = Progress(), random.Random(932)

    def member() -> ShareConsumer:
        consumer = ShareConsumer(
            topic,
            bootstrap_servers=kafka.bootstrap_servers,
            group_id=group,
            share_acknowledgement_mode=mode,
            share_acquire_mode="record_limit",
            max_poll_records=10,
            fetch_max_wait_ms=50,
        )
        consumer.set_acknowledgement_commit_callback(progress.on_result)
        return consumer

    async def work() -> None:
        async with member() as consumer:
            while len(progress.processed) < RECORDS:
                for records in (await consumer.getmany(timeout_ms=50)).values():
                    for record in records:
                        progress.process(record)
                        if mode == "explicit":
                            record.accept()

    async with anyio.create_task_group() as tasks:
        proxy = Proxy(tasks, monkeypatch)
        with anyio.fail_after(WITHIN_S):
            async with anyio.create_task_group() as members:
                for _ in range(SESSIONS):
                    members.start_soon(work)
                for _ in range(CUTS):
                    await anyio.sleep(rng.uniform(0.0, 0.3))
                    proxy.cut()
            async with member() as last:
                assert not await last.getmany(timeout_ms=2_000)
        tasks.cancel_scope.cancel()
    counts = dict(sorted(progress.deliveries.items()))
    record_property("summary", f"{CUTS} cuts, {mode}: deliveries by their count: {counts}")


async def test_a_member_waits_while_the_broker_has_no_session_left(
    kafka: Kafka, topic: str
) -> None:
    await write(kafka, topic, 10)
    servers = kafka.bootstrap_servers
    groups = [await new_group(kafka) for _ in range(SESSIONS + 1)]
    *others, waiting = (
        ShareConsumer(topic, bootstrap_servers=servers, group_id=group) for group in groups
    )
    async with contextlib.AsyncExitStack() as stack:
        for consumer in others:
            await stack.enter_async_context(consumer)
            with anyio.fail_after(WITHIN_S):
                await consumer.getone()
        await stack.enter_async_context(waiting)
        assert not await waiting.getmany(timeout_ms=2_000)
        await others[0].stop()
        with anyio.fail_after(WITHIN_S):
            assert (await waiting.getone()).offset == 0

"""Closing takes no time when there is nothing to send, whatever the brokers do."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest

from aiokafkawire.broker import Broker
from aiokafkawire.consumer import Consumer
from aiokafkawire.errors import RequestTimedOut
from aiokafkawire.producer import Producer
from aiokafkawire.runtime import (
    Address,
    Buffer,
    RealRuntime,
    Transport,
    receive_until_eof,
    with_runtime,
)
from aiokafkawire.types import TopicPartition
from tests.behaviour.support import WITHIN_S, fill
from tests.elapsed import ends_within
from tests.faults.support import READER

pytestmark = pytest.mark.slow

SOON_S = 1.0

MEMBER: dict[str, Any] = READER | {"session_timeout_ms": 1_500, "heartbeat_interval_ms": 50}


class BadNetwork(RealRuntime):
    """A network that fails in one of several ways from some time on."""

    def __init__(self) -> None:
        super().__init__()
        self.trouble: str | None = None

    async def connect(self, address: Address) -> Transport:
        if self.trouble is not None:
            await anyio.sleep_forever()
        return BadTransport(await super().connect(address), self)


class BadTransport:
    """One connection of it."""

    def __init__(self, inner: Transport, network: BadNetwork) -> None:
        self.peer = inner.peer
        self.abort, self.aclose = inner.abort, inner.aclose
        self._inner = inner
        self._network = network
        self._stopped = False

    async def receive_into(self, buffer: memoryview) -> int:
        if self._stopped:
            await anyio.sleep_forever()
        if self._network.trouble == "black hole":
            await anyio.sleep_forever()
        count = await self._inner.receive_into(buffer)
        if self._network.trouble == "silence in mid-frame" and count:
            self._stopped = True
            return min(count, 6)
        return count

    async def receive_until_eof(
        self, get_buffer: Callable[[], memoryview], on_received: Callable[[int], None]
    ) -> None:
        await receive_until_eof(self, get_buffer, on_received)

    def send_nowait(self, buffers: Sequence[Buffer]) -> Sequence[Buffer]:
        if self._network.trouble == "nothing goes out":
            return buffers
        return self._inner.send_nowait(buffers)

    async def send(self, buffers: Sequence[Buffer]) -> None:
        if self._network.trouble == "nothing goes out":
            await anyio.sleep_forever()
        await self._inner.send(buffers)


Mischief = Callable[[Broker, BadNetwork], Awaitable[None]]


async def pause(broker: Broker, network: BadNetwork) -> None:
    for node in broker.nodes:
        broker.pause(node)


async def kill(broker: Broker, network: BadNetwork) -> None:
    for node in broker.nodes:
        await broker.kill(node)


def goes_bad(trouble: str) -> Mischief:
    async def mischief(broker: Broker, network: BadNetwork) -> None:
        network.trouble = trouble

    mischief.__name__ = trouble
    return mischief


@asynccontextmanager
async def in_time(client: Any) -> AsyncIterator[Any]:
    await client.start()
    yield client
    with ends_within(SOON_S):
        await client.stop()


@pytest.mark.parametrize(
    "mischief",
    [
        pause,
        kill,
        goes_bad("black hole"),
        goes_bad("silence in mid-frame"),
        goes_bad("nothing goes out"),
    ],
    ids=lambda mischief: mischief.__name__,
)
async def test_leaving_with_nothing_to_say(
    broker: Broker, topic: str, group_id: str, mischief: Mischief
):
    network = BadNetwork()
    servers = broker.bootstrap_servers
    clients = [
        with_runtime(Producer(bootstrap_servers=servers), network),
        with_runtime(Consumer(bootstrap_servers=servers), network),
        with_runtime(
            Consumer(topic, bootstrap_servers=servers, group_id=group_id, **MEMBER), network
        ),
    ]
    ready = [anyio.Event() for _ in clients]
    bad = anyio.Event()
    producer, reader, member = clients

    async def leave(client: Any) -> None:
        async with in_time(client):
            if client is producer:
                await producer.send_and_wait("other", b"v")
            elif client is reader:
                reader.assign(TopicPartition(topic, 0))
                await reader.position(TopicPartition(topic, 0))
            else:
                while not member.assignment():
                    await member.getmany(timeout_ms=10)
            ready[clients.index(client)].set()
            await bad.wait()

    async def spoil() -> None:
        for event in ready:
            await event.wait()
        await mischief(broker, network)
        await anyio.wait_all_tasks_blocked()  # each client meets the fault in its own way
        bad.set()

    with anyio.fail_after(WITHIN_S):
        async with anyio.create_task_group() as group:
            group.start_soon(spoil)
            for client in clients:
                group.start_soon(leave, client)
    assert all("(closed)" in repr(client) for client in clients)


async def member_with_a_record(
    broker: Broker, topic: str, group_id: str, commit_timeout_ms: int
) -> Consumer:
    """Return a started member that has read a record and not committed it."""
    await fill(broker.bootstrap_servers, topic, [b"book"])
    options = MEMBER | {"enable_auto_commit": False, "default_api_timeout_ms": commit_timeout_ms}
    options |= {"session_timeout_ms": 20_000, "request_timeout_ms": 10_000}
    consumer = Consumer(
        topic, bootstrap_servers=broker.bootstrap_servers, group_id=group_id, **options
    )
    await consumer.start()
    assert (await consumer.getone()).value == b"book"
    return consumer


async def committed(broker: Broker, topic: str, group_id: str) -> int:
    tp = TopicPartition(topic, 0)
    async with Consumer(bootstrap_servers=broker.bootstrap_servers, group_id=group_id) as reader:
        found = (await reader.committed(tp))[tp]
    return -1 if found is None else found.offset


async def test_leaving_does_not_wait_for_a_commit_that_timed_out(
    broker: Broker, topic: str, group_id: str
):
    consumer = await member_with_a_record(broker, topic, group_id, 1_000)
    await pause(broker, BadNetwork())
    with pytest.raises(RequestTimedOut):
        await consumer.commit()
    with anyio.fail_after(WITHIN_S), ends_within(SOON_S):
        await consumer.stop()


async def test_leaving_sends_a_commit_that_timed_out_where_brokers_answer(
    broker: Broker, topic: str, group_id: str
):
    consumer = await member_with_a_record(broker, topic, group_id, 1_000)
    await pause(broker, BadNetwork())
    with anyio.move_on_after(0.05):
        await consumer.commit()
    for node in broker.nodes:
        broker.resume(node)
    await consumer.stop()
    assert await committed(broker, topic, group_id) == 1


async def test_leaving_waits_for_a_commit_that_a_task_waits_for(
    broker: Broker, topic: str, group_id: str
):
    consumer = await member_with_a_record(broker, topic, group_id, 20_000)
    await pause(broker, BadNetwork())

    async def stop() -> None:
        await consumer.stop()
        order.append("stopped")

    async def commit() -> None:
        with anyio.CancelScope(shield=True):
            await consumer.commit()
        order.append("committed")

    order: list[str] = []
    with anyio.fail_after(WITHIN_S):
        async with anyio.create_task_group() as group:
            group.start_soon(commit)
            await anyio.wait_all_tasks_blocked()
            group.start_soon(stop)
            await anyio.sleep(SOON_S)
            for node in broker.nodes:
                broker.resume(node)
    assert sorted(order) == ["committed", "stopped"]
    assert await committed(broker, topic, group_id) == 1


async def test_a_start_into_a_black_hole_can_be_cancelled(broker: Broker):
    network = BadNetwork()
    network.trouble = "black hole"
    client = with_runtime(Producer(bootstrap_servers=broker.bootstrap_servers), network)
    async with anyio.create_task_group() as group:
        with ends_within(SOON_S):
            group.start_soon(client.start)
            await anyio.wait_all_tasks_blocked()
            group.cancel_scope.cancel()
    network.trouble = None
    async with client:
        assert await client.partitions_for("topic") == (0,)

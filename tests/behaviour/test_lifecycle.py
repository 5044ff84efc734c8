"""Clients that are started and stopped, dropped, forked, and named."""

from __future__ import annotations

import asyncio
import gc
import os
import re
import warnings
import weakref
from collections.abc import Callable
from typing import Any

import anyio
import anyio.to_thread
import pytest

from aiokafkawire.admin import Admin
from aiokafkawire.consumer import Consumer
from aiokafkawire.errors import ClientClosed, KafkaError, WrongEventLoop
from aiokafkawire.producer import Producer
from aiokafkawire.types import TopicPartition
from tests.behaviour.features import needs
from tests.behaviour.support import MEMBER, WITHIN_S, stored, take
from tests.leaks import nothing_left

pytestmark = pytest.mark.slow

CLIENTS = pytest.mark.parametrize("client_class", [Producer, Consumer, Admin])
Class = Callable[..., Any]


@needs("groups")
async def test_clients_are_started_and_stopped(bootstrap_servers: str, topic: str, group_id: str):
    producer = Producer(bootstrap_servers=bootstrap_servers, linger_ms=60_000)
    consumer = Consumer(topic, bootstrap_servers=bootstrap_servers, group_id=group_id, **MEMBER)
    async with nothing_left(timers=False):
        await producer.start()
        await producer.send(topic, b"kept")
        await producer.stop()
        await consumer.start()
        assert [record.value for record in await take(consumer, 1)] == [b"kept"]
        await consumer.stop()


async def test_clients_are_stopped_by_another_task(bootstrap_servers: str, topic: str):
    producer = Producer(bootstrap_servers=bootstrap_servers, linger_ms=60_000)
    consumer = Consumer(bootstrap_servers=bootstrap_servers)

    async def start() -> None:
        await producer.start()
        await consumer.start()
        await producer.send(topic, b"kept")

    async def stop() -> None:
        await consumer.stop()
        await producer.stop()

    with anyio.fail_after(WITHIN_S):
        async with nothing_left(timers=False):
            for step in (start, stop):
                async with anyio.create_task_group() as group:
                    group.start_soon(step)
    assert [record.value for record in await stored(bootstrap_servers, topic)] == [b"kept"]


@CLIENTS
async def test_a_client_goes_from_new_to_running_to_closed(
    bootstrap_servers: str, client_class: Class
):
    client = client_class(bootstrap_servers=bootstrap_servers)
    with pytest.raises(ClientClosed, match=r"not started yet: .*'await start\(\)'"):
        await client.ping()
    await client.start()
    with pytest.raises(ClientClosed, match="running already"):
        await client.start()
    await client.stop()
    await client.stop()
    await client.aclose()
    with pytest.raises(ClientClosed, match="closed: create a new one"):
        await client.ping()
    with pytest.raises(ClientClosed, match="closed: create a new one"):
        await client.start()


@CLIENTS
async def test_a_client_may_be_stopped_before_it_was_started(
    bootstrap_servers: str, client_class: Class
):
    client = client_class(bootstrap_servers=bootstrap_servers)
    await client.stop()
    with pytest.raises(ClientClosed, match="closed: create a new one"):
        await client.start()


@CLIENTS
async def test_a_stop_ends_a_start_under_way(bootstrap_servers: str, client_class: Class):
    client = client_class(bootstrap_servers=bootstrap_servers)
    outcome: list[str] = []

    async def start() -> None:
        try:
            await client.start()
        except ClientClosed as error:
            outcome.append(str(error))

    async with nothing_left(timers=False), anyio.create_task_group() as group:
        group.start_soon(start)
        while "(starting)" not in repr(client):
            await anyio.lowlevel.checkpoint()
        await client.stop()
    assert len(outcome) == 1
    assert "stopped while it was starting" in outcome[0]


@CLIENTS
async def test_repr_and_logs_name_the_client(bootstrap_servers: str, client_class: Class):
    client = client_class(bootstrap_servers=bootstrap_servers, client_id="billing-7")
    name = f"<{client_class.__name__} client_id='billing-7' bootstrap_servers='{bootstrap_servers}'"
    assert repr(client) == f"{name} (not started yet)>"
    async with client:
        assert repr(client) == f"{name} (running)>"
    assert repr(client) == f"{name} (closed)>"


def test_the_name_of_a_member_has_its_group() -> None:
    member = Consumer("orders", bootstrap_servers="one:1", group_id="billing")
    assert "group_id='billing'" in repr(member)


@CLIENTS
async def test_a_client_that_was_not_stopped_is_named(bootstrap_servers: str, client_class: Class):
    async with nothing_left(timers=False):
        client: Any = client_class(bootstrap_servers=bootstrap_servers, client_id="forgotten")
        await client.start()
        made_at = rf"was never closed; it was created at {re.escape(__file__)}:\d+"
        with pytest.warns(ResourceWarning, match=rf"'forgotten' .*\(running\)> {made_at}"):
            client = None
        # Its tasks and connections end all the same.
        await anyio.wait_all_tasks_blocked()


async def test_deliveries_of_a_dropped_producer_end(bootstrap_servers: str, topic: str):
    async with nothing_left(timers=False):
        producer = [Producer(bootstrap_servers=bootstrap_servers, linger_ms=60_000)]
        await producer[0].start()
        delivery = await producer[0].send(topic, value=b"book")
        with pytest.warns(ResourceWarning, match="was never closed"):
            producer.clear()
        with anyio.fail_after(WITHIN_S), pytest.raises(ClientClosed, match="garbage-collected"):
            await delivery
        await anyio.wait_all_tasks_blocked()


async def test_a_producer_dropped_in_another_thread_ends_its_deliveries(
    bootstrap_servers: str, topic: str
):
    async with nothing_left(timers=False):
        producer = [Producer(bootstrap_servers=bootstrap_servers, linger_ms=60_000)]
        await producer[0].start()
        delivery = await producer[0].send(topic, value=b"book")
        with pytest.warns(ResourceWarning, match="was never closed"):
            await anyio.to_thread.run_sync(producer.clear)
        with anyio.fail_after(WITHIN_S), pytest.raises(ClientClosed, match="garbage-collected"):
            await delivery
        await anyio.wait_all_tasks_blocked()


@needs("transactions")
async def test_a_transaction_of_a_dropped_producer_ends(bootstrap_servers: str, topic: str):
    async with nothing_left(timers=False):
        producer = [
            Producer(bootstrap_servers=bootstrap_servers, transactional_id=topic, linger_ms=60_000)
        ]
        await producer[0].start()
        scope = producer[0].transaction()
        await scope.__aenter__()
        delivery = await producer[0].send(topic, value=b"book")
        with pytest.warns(ResourceWarning, match="was never closed"):
            producer.clear()
        with anyio.fail_after(WITHIN_S), pytest.raises(ClientClosed, match="garbage-collected"):
            await scope.__aexit__(None, None, None)
        with anyio.fail_after(WITHIN_S), pytest.raises(ClientClosed, match="garbage-collected"):
            await delivery
        await anyio.wait_all_tasks_blocked()


async def test_a_call_in_flight_keeps_its_client_alive(bootstrap_servers: str, topic: str):
    async def produce() -> None:
        producer = Producer(bootstrap_servers=bootstrap_servers, linger_ms=300)
        await producer.start()
        producers.add(producer)
        await producer.send_and_wait(topic, b"book")
        await producer.stop()

    async def consume() -> None:
        consumer = Consumer(bootstrap_servers=bootstrap_servers, auto_offset_reset="earliest")
        await consumer.start()
        consumer.assign(TopicPartition(topic, 0))
        record = await consumer.getone()
        assert record.value == b"book"
        await consumer.stop()

    producers: weakref.WeakSet[Producer] = weakref.WeakSet()
    async with nothing_left(timers=False):
        with anyio.fail_after(WITHIN_S):
            async with anyio.create_task_group() as group:
                group.start_soon(consume)
                group.start_soon(produce)
                while not producers:
                    await anyio.lowlevel.checkpoint()
                gc.collect()


def in_child(work: Callable[[], Any]) -> str:
    """Return the error that a forked child's event loop raises."""
    reading, writing = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of forks beside threads
        child = os.fork()
    if child == 0:
        try:
            asyncio.run(work())
        except KafkaError as error:
            os.write(writing, str(error).encode())
        finally:
            os._exit(0)
    os.close(writing)
    os.waitpid(child, 0)
    with os.fdopen(reading) as output:
        return output.read()


async def test_a_forked_child_may_not_use_the_parents_clients(bootstrap_servers: str, topic: str):
    async with (
        Producer(bootstrap_servers=bootstrap_servers) as producer,
        Consumer(bootstrap_servers=bootstrap_servers) as consumer,
    ):
        consumer.assign(TopicPartition(topic, 0))
        assert "unusable after a fork" in in_child(lambda: producer.send(topic, b"child"))
        assert "unusable after a fork" in in_child(consumer.getone)
        assert in_child(producer.stop) == in_child(consumer.stop) == ""
        # Nothing of this affected the parent's connections.
        assert (await producer.send_and_wait(topic, b"parent")).offset == 0
        assert await consumer.end_offsets() == {TopicPartition(topic, 0): 1}


@CLIENTS
async def test_a_client_cannot_be_used_in_another_event_loop(
    bootstrap_servers: str, client_class: Class
):
    async with client_class(bootstrap_servers=bootstrap_servers) as client:

        def elsewhere() -> str:
            with pytest.raises(WrongEventLoop):
                asyncio.run(client.stop())
            with pytest.raises(WrongEventLoop) as caught:
                asyncio.run(client.ping())
            return str(caught.value)

        assert "was started in another event loop" in await anyio.to_thread.run_sync(elsewhere)


async def test_no_batch_takes_a_record_from_another_event_loop(bootstrap_servers: str, topic: str):
    async with Producer(bootstrap_servers=bootstrap_servers, linger_ms=60_000) as producer:
        await producer.partitions_for(topic)
        first = producer.send_nowait(topic, b"here", partition=0)

        def elsewhere() -> None:
            with pytest.raises(WrongEventLoop, match="no event loop runs in this thread"):
                producer.send_nowait(topic, b"in a thread", partition=0)
            with pytest.raises(WrongEventLoop):
                asyncio.run(producer.send(topic, b"in another loop", partition=0))

        await anyio.to_thread.run_sync(elsewhere)
        second = producer.send_nowait(topic, b"here again", partition=0)
        await producer.flush()
        assert (await first).offset == 0
        assert (await second).offset == 1


class Clumsy:
    """A listener that fails on revocation, after the application's last call."""

    def on_partitions_assigned(self, partitions: list[TopicPartition]) -> None:
        pass

    def on_partitions_revoked(self, partitions: list[TopicPartition]) -> None:
        raise LookupError("cannot save")

    def on_partitions_lost(self, partitions: list[TopicPartition]) -> None:
        pass


async def make_unpicklable(bootstrap_servers: str, topic: str, group_id: str) -> Consumer:
    consumer = Consumer(bootstrap_servers=bootstrap_servers, group_id=group_id, **MEMBER)
    consumer.subscribe([topic], listener=Clumsy())
    await consumer.start()
    with anyio.fail_after(WITHIN_S):
        while not consumer.assignment():
            await consumer.getmany(timeout_ms=20)
    return consumer


@needs("groups")
async def test_what_failed_after_the_last_call_is_raised_by_stop(
    bootstrap_servers: str, topic: str, group_id: str
):
    consumer = await make_unpicklable(bootstrap_servers, topic, group_id)
    with pytest.raises(LookupError, match="cannot save"):
        await consumer.stop()
    await consumer.stop()


@needs("groups")
async def test_what_failed_after_the_last_call_is_a_note_of_the_bodys_exception(
    bootstrap_servers: str, topic: str, group_id: str
):
    mine = ValueError("mine")
    consumer = await make_unpicklable(bootstrap_servers, topic, group_id)
    await consumer.__aexit__(ValueError, mine, None)
    assert mine.__notes__ == ["cannot save"]


async def defect() -> None:
    raise LookupError("a defect")


async def broken(client_class: Class, bootstrap_servers: str) -> Any:
    """A client with a failed task."""
    client = client_class(bootstrap_servers=bootstrap_servers)
    await client.start()
    await client._lifecycle.supervisor.spawn(defect, name="odd").wait()
    await anyio.wait_all_tasks_blocked()
    return client


@CLIENTS
async def test_a_broken_client_says_so_at_each_call(bootstrap_servers: str, client_class: Class):
    client = await broken(client_class, bootstrap_servers)
    for _ in range(2):
        with pytest.raises(KafkaError, match="'odd' failed: LookupError") as caught:
            await client.ping()
        assert isinstance(caught.value.__cause__, LookupError)
    await client.stop()


@CLIENTS
async def test_a_broken_client_says_so_when_it_is_stopped(
    bootstrap_servers: str, client_class: Class
):
    client = await broken(client_class, bootstrap_servers)
    with pytest.raises(KafkaError, match="'odd' failed: LookupError"):
        await client.stop()
    assert repr(client).endswith("(closed)>")


@pytest.mark.parametrize("client_class", [Producer, Consumer])
async def test_waiting_calls_raise_when_the_client_fails(
    bootstrap_servers: str, topic: str, client_class: Class
):
    options = {"linger_ms": 60_000} if client_class is Producer else {}
    client = client_class(bootstrap_servers=bootstrap_servers, **options)
    errors: list[str] = []

    async def wait() -> None:
        try:
            if client_class is Producer:
                await client.send_and_wait(topic, b"v")
            else:
                client.assign(TopicPartition(topic, 0))
                await client.getone()
        except KafkaError as error:
            errors.append(str(error))

    async with client:
        async with anyio.create_task_group() as group:
            group.start_soon(wait)
            await anyio.wait_all_tasks_blocked()
            client._lifecycle.supervisor.spawn(defect, name="odd")
        assert len(errors) == 1
        assert "is broken: its task 'odd' failed" in errors[0]
        with pytest.raises(KafkaError, match="is broken"):
            await client.partitions_for(topic)

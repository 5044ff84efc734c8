"""Features that producers and consumers share: entering, closing, options, addresses."""

from __future__ import annotations

import socket
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import Any

import anyio
import anyio.abc
import pytest

from aiokafkawire.consumer import Consumer
from aiokafkawire.errors import ClientClosed, InvalidOption, NoBrokerAvailable
from aiokafkawire.producer import Producer
from aiokafkawire.types import TopicPartition
from tests.behaviour.features import needs
from tests.behaviour.support import (
    MEMBER,
    WITHIN_S,
    fill,
    numbered,
    partitions_of,
    reading,
    stored,
    take,
)
from tests.elapsed import ends_within

Client = Producer | Consumer
CLIENTS = pytest.mark.parametrize("client_class", [Producer, Consumer])


class OwnError(Exception):
    """An exception that no library raises."""


@needs("groups")
@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
async def test_two_clients_may_close_in_any_order(
    bootstrap_servers: str, topic: str, group_id: str, order: tuple[int, int]
):
    producer = Producer(bootstrap_servers=bootstrap_servers)
    consumer = Consumer(topic, bootstrap_servers=bootstrap_servers, group_id=group_id, **MEMBER)
    clients: list[Any] = [producer, consumer]
    for client in clients:
        await client.__aenter__()
    await producer.send_and_wait(topic, b"value")
    await take(consumer, 1)
    with anyio.fail_after(WITHIN_S):
        for number in order:
            await clients[number].__aexit__(None, None, None)
    with pytest.raises(ClientClosed):
        await producer.send(topic, b"late")
    with pytest.raises(ClientClosed):
        await consumer.getone()


async def test_a_client_may_be_left_in_another_task(bootstrap_servers: str, topic: str):
    producer = Producer(bootstrap_servers=bootstrap_servers, linger_ms=60_000)
    consumer = Consumer(bootstrap_servers=bootstrap_servers)
    entered = anyio.Event()

    async def enter() -> None:
        await producer.__aenter__()
        await consumer.__aenter__()
        await producer.send(topic, b"kept")
        entered.set()

    async def leave() -> None:
        await entered.wait()
        await producer.__aexit__(None, None, None)
        await consumer.__aexit__(None, None, None)

    with anyio.fail_after(WITHIN_S):
        async with anyio.create_task_group() as group:
            group.start_soon(leave)
            group.start_soon(enter)
    assert [record.value for record in await stored(bootstrap_servers, topic)] == [b"kept"]


async def test_an_exit_stack_may_hold_clients(bootstrap_servers: str, topic: str):
    async with AsyncExitStack() as stack:
        producer = await stack.enter_async_context(Producer(bootstrap_servers=bootstrap_servers))
        consumer = await stack.enter_async_context(reading(bootstrap_servers, topic))
        await producer.send_and_wait(topic, b"value")
        assert [record.value for record in await take(consumer, 1)] == [b"value"]


@CLIENTS
async def test_the_bodys_exception_comes_out_as_it_is(
    bootstrap_servers: str, client_class: Callable[..., Any]
):
    mine = OwnError("mine")
    with pytest.raises(OwnError) as caught:
        async with client_class(bootstrap_servers=bootstrap_servers):
            raise mine
    assert caught.value is mine


@needs("groups")
async def test_an_exception_inside_the_loop_over_records_comes_out_as_it_is(
    bootstrap_servers: str, topic: str, group_id: str
):
    async def read() -> None:
        async with Consumer(
            topic, bootstrap_servers=bootstrap_servers, group_id=group_id, **MEMBER
        ) as consumer:
            async for record in consumer:
                raise OwnError(record.value)

    await fill(bootstrap_servers, topic, numbered(3))
    with pytest.raises(OwnError) as caught, anyio.fail_after(WITHIN_S):
        await read()
    assert caught.value.args == (b"00000",)


@needs("groups")
@pytest.mark.slow
async def test_a_cancelled_body_is_left_soon(bootstrap_servers: str, topic: str, group_id: str):
    with ends_within(3):
        with anyio.move_on_after(0.3) as scope:
            async with (
                Producer(bootstrap_servers=bootstrap_servers),
                Consumer(
                    topic, bootstrap_servers=bootstrap_servers, group_id=group_id, **MEMBER
                ) as consumer,
            ):
                await consumer.getone()
        assert scope.cancelled_caught


@CLIENTS
async def test_a_client_is_entered_once(bootstrap_servers: str, client_class: Callable[..., Any]):
    client = client_class(bootstrap_servers=bootstrap_servers)
    async with client:
        with pytest.raises(ClientClosed):
            await client.__aenter__()
    with pytest.raises(ClientClosed):
        await client.__aenter__()


@needs("groups")
async def test_a_consumer_cannot_be_used_outside_its_block(
    bootstrap_servers: str, topic: str, group_id: str
):
    consumer = Consumer(topic, bootstrap_servers=bootstrap_servers, group_id=group_id, **MEMBER)
    with pytest.raises(ClientClosed):
        await consumer.getone()
    async with consumer:
        assert await consumer.getmany(timeout_ms=100) == {}
    with pytest.raises(ClientClosed):
        await consumer.getmany(timeout_ms=100)
    with pytest.raises(ClientClosed):
        await consumer.commit()
    with pytest.raises(ClientClosed):
        await consumer.end_offsets(*partitions_of(topic, 1))


async def test_a_call_under_way_ends_when_its_consumer_is_left(bootstrap_servers: str, topic: str):
    outcome: list[Exception] = []

    async def wait_for_a_record(consumer: Consumer) -> None:
        try:
            await consumer.getone()
        except ClientClosed as error:
            outcome.append(error)

    async def leave_meanwhile(group: anyio.abc.TaskGroup) -> None:
        async with reading(bootstrap_servers, topic) as consumer:
            group.start_soon(wait_for_a_record, consumer)
            assert await consumer.position(TopicPartition(topic, 0)) == 0
            await anyio.wait_all_tasks_blocked()

    with anyio.fail_after(WITHIN_S):
        async with anyio.create_task_group() as group:
            await leave_meanwhile(group)
    assert len(outcome) == 1


@CLIENTS
@pytest.mark.slow
async def test_a_closed_port(client_class: Callable[..., Any]):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with ends_within(3), pytest.raises(NoBrokerAvailable, match=address):
            async with client_class(bootstrap_servers=address, default_api_timeout_ms=500):
                pass


@CLIENTS
@pytest.mark.slow
async def test_a_host_that_does_not_exist(client_class: Callable[..., Any]):
    with ends_within(3), pytest.raises(NoBrokerAvailable, match=r"no-such-host\.invalid"):
        async with client_class(
            bootstrap_servers="no-such-host.invalid:9092", default_api_timeout_ms=500
        ):
            pass


async def test_one_good_address_among_bad_ones_is_enough(bootstrap_servers: str, topic: str):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        dead = f"127.0.0.1:{taken.getsockname()[1]}"
        good = bootstrap_servers.rpartition(",")[2]
        async with Producer(
            bootstrap_servers=[dead, "no-such-host.invalid:9092", good]
        ) as producer:
            with anyio.fail_after(WITHIN_S):
                assert (await producer.send_and_wait(topic, b"v")).offset == 0


@CLIENTS
@pytest.mark.parametrize(
    "servers", ["", "host:port", "host:0", "host:70000", "two words:1", ":9092"]
)
def test_an_address_that_cannot_be_one(client_class: Callable[..., Any], servers: str):
    with pytest.raises(InvalidOption, match=r"bootstrap"):
        client_class(bootstrap_servers=servers)


@CLIENTS
def test_an_unknown_option_is_named_with_the_nearest_one(client_class: Callable[..., Any]):
    with pytest.raises(InvalidOption, match=r"'client_idd'.*'client_id'"):
        client_class(bootstrap_servers="localhost:9092", client_idd="mine")


@pytest.mark.parametrize(
    ("client_class", "options", "named"),
    [
        (Producer, {"linger_ms": -1}, "linger_ms"),
        (Producer, {"acks": 1, "enable_idempotence": True}, "enable_idempotence"),
        (Producer, {"compression_type": "rar"}, "compression_type"),
        (Producer, {"batch_size": 5}, "batch_size_bytes"),
        (Consumer, {"auto_offset_reset": "newest"}, "auto_offset_reset"),
        (Consumer, {"session_timeout_ms": "long"}, "session_timeout_ms"),
        (Consumer, {"heartbeat_interval_ms": 50_000}, "heartbeat_interval_ms"),
    ],
)
def test_a_wrong_option_is_named(
    client_class: Callable[..., Any], options: dict[str, Any], named: str
):
    with pytest.raises(InvalidOption, match=named):
        client_class(bootstrap_servers="localhost:9092", **options)


async def test_many_clients_at_once(bootstrap_servers: str, topic: str):
    async def produce(number: int) -> None:
        async with Producer(bootstrap_servers=bootstrap_servers) as producer:
            await producer.send_and_wait(topic, b"%05d" % number)

    with anyio.fail_after(WITHIN_S):
        async with anyio.create_task_group() as group:
            for number in range(10):
                group.start_soon(produce, number)
    values = [record.value for record in await stored(bootstrap_servers, topic)]
    assert sorted(values) == numbered(10)

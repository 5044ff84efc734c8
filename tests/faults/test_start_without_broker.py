"""Clients that start without a broker (`connect_on_start=False`) and connect later."""

from __future__ import annotations

import logging
import socket
from contextlib import AsyncExitStack
from typing import Any

import anyio
import pytest

from aiokafkawire import errors
from aiokafkawire.broker import Broker
from aiokafkawire.cluster.refresh_schedule import NO_BROKER_LOG_AFTER_S
from aiokafkawire.consumer import Consumer
from aiokafkawire.producer import Producer
from aiokafkawire.types import TopicPartition
from tests.elapsed import ends_within
from tests.faults.support import IMPATIENT, MEMBER, READER

pytestmark = pytest.mark.slow

SOON_S = 15.0
"""Longer than a connection to a new broker takes."""


@pytest.fixture
def port() -> int:
    """A port without a listener."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def options(port: int, **more: Any) -> dict[str, Any]:
    found = {"bootstrap_servers": f"127.0.0.1:{port}", "connect_on_start": False, **more}
    return IMPATIENT | found


def broker_at(port: int) -> Broker:
    return Broker(ports=[port], group_min_session_timeout_ms=500)


async def becomes_ready(client: Producer | Consumer) -> None:
    with anyio.fail_after(SOON_S):
        while True:
            try:
                await client.ping()
            except errors.NoBrokerAvailable:
                await anyio.sleep(0.05)
            else:
                return


@pytest.mark.parametrize("client_class", [Producer, Consumer])
async def test_starting_and_stopping_without_a_broker(
    client_class: type[Producer | Consumer], port: int
):
    with ends_within(2):
        async with client_class(**options(port)) as client:
            with pytest.raises(errors.NoBrokerAvailable, match=f"127.0.0.1:{port}"):
                await client.ping(500)


async def test_by_default_a_start_without_a_broker_fails(port: int):
    wanted = options(port, connect_on_start=True, default_api_timeout_ms=300)
    with pytest.raises(errors.NoBrokerAvailable):
        async with Producer(**wanted):
            pass


async def test_a_start_gives_up_early_while_all_addresses_refuse(port: int):
    wanted = options(port, connect_on_start=True, bootstrap_refused_timeout_ms=300)
    wanted["default_api_timeout_ms"] = 20_000
    with (
        ends_within(5),
        pytest.raises(errors.NoBrokerAvailable, match=f"127.0.0.1:{port}: connection refused"),
    ):
        async with Producer(**wanted):
            pass


async def test_an_address_that_does_not_answer_is_waited_for(port: int):
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        servers = f"127.0.0.1:{port},127.0.0.1:{silent.getsockname()[1]}"
        wanted = options(port, connect_on_start=True, bootstrap_refused_timeout_ms=1)
        wanted |= {"bootstrap_servers": servers, "default_api_timeout_ms": 1_500}
        began = anyio.current_time()
        with pytest.raises(errors.NoBrokerAvailable):
            async with Producer(**wanted):
                pass
        assert anyio.current_time() - began > 1


async def test_send_waits_for_a_broker(port: int):
    async with Producer(**options(port)) as producer, AsyncExitStack() as stack:
        async with anyio.create_task_group() as group:

            async def send(value: bytes) -> None:
                receipt = await producer.send_and_wait("orders", value)
                assert receipt.topic == "orders"

            for number in range(10):
                group.start_soon(send, b"%d" % number)
            await anyio.sleep(0.3)
            broker = await stack.enter_async_context(broker_at(port))
        assert broker.end_offset("orders", 0) == 10
        assert await producer.ping(topic="orders")


async def test_send_raises_when_max_block_ms_is_over(port: int):
    async with Producer(**options(port, max_block_ms=300)) as producer:
        with ends_within(2), pytest.raises(errors.RequestTimedOut, match="connection refused"):
            await producer.send("orders", b"book")


async def test_a_consumer_waits_for_a_broker(port: int):
    async with AsyncExitStack() as stack:
        consumer = await stack.enter_async_context(
            Consumer("orders", **READER | options(port, default_api_timeout_ms=300))
        )
        with ends_within(2):
            assert await consumer.getmany(timeout_ms=200) == {}
        with ends_within(2), pytest.raises(errors.KafkaError):
            await consumer.partitions_for("orders")
        with ends_within(2), pytest.raises(errors.NoBrokerAvailable):
            await consumer.topics()
        with ends_within(2), pytest.raises(errors.KafkaError):
            await consumer.end_offsets(TopicPartition("orders", 0))
        with ends_within(2), pytest.raises(errors.KafkaError):
            await consumer.offsets_for_times({TopicPartition("orders", 0): 0})
        broker = await stack.enter_async_context(broker_at(port))
        await broker.create_topic("orders")
        async with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
            await producer.send_and_wait("orders", b"book")
        with anyio.fail_after(SOON_S):
            record = await consumer.getone()
        assert record.value == b"book"


async def test_offsets_and_positions_wait_no_longer_than_they_may(port: int):
    partition = TopicPartition("orders", 0)
    wanted = options(port, group_id="billing", default_api_timeout_ms=300, close_timeout_ms=300)
    async with Consumer(**MEMBER | wanted) as consumer:
        consumer.assign(partition)
        for call in (
            lambda: consumer.committed(partition),
            lambda: consumer.position(partition),
            lambda: consumer.commit({partition: 1}),
            lambda: consumer.seek_to_end(partition),
        ):
            with ends_within(2), pytest.raises(errors.KafkaError):
                await call()


@pytest.mark.parametrize("pattern", [None, "ord.*"])
async def test_a_member_joins_when_there_is_a_broker(port: int, pattern: str | None):
    async with AsyncExitStack() as stack:
        consumer = await stack.enter_async_context(
            Consumer(
                **MEMBER
                | options(
                    port,
                    group_id="billing",
                    request_timeout_ms=400,
                    # The member may join before the producer creates the topic.
                    metadata_max_age_ms=500,
                )
            )
        )
        if pattern is None:
            consumer.subscribe(["orders"])
        else:
            consumer.subscribe(pattern=pattern)
        # Requests of the group time out more than once.
        with ends_within(3):
            assert await consumer.getmany(timeout_ms=1_000) == {}
        broker = await stack.enter_async_context(broker_at(port))
        async with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
            await producer.send_and_wait("orders", b"book")
        with anyio.fail_after(SOON_S):
            record = await consumer.getone()
        assert record.value == b"book"
        await consumer.commit()
        assert await consumer.ping(group="billing")


async def test_a_transactional_producer_gets_its_producer_id_in_the_background(port: int):
    wanted = options(port, transactional_id="billing", max_block_ms=300)
    async with AsyncExitStack() as stack:
        producer = await stack.enter_async_context(Producer(**wanted))
        with ends_within(2), pytest.raises(errors.RequestTimedOut, match="returned no producer id"):
            await producer.begin_transaction()
        broker = await stack.enter_async_context(broker_at(port))
        await broker.create_topic("orders")
        await becomes_ready(producer)
        with anyio.fail_after(SOON_S):
            while True:
                try:
                    await producer.begin_transaction()
                    break
                except errors.RequestTimedOut:
                    continue
        await producer.send_and_wait("orders", b"book")
        await producer.commit_transaction()
        assert broker.end_offset("orders", 0) == 2  # with the marker
        # Like any start it fenced earlier producers with its id; the next one fences it.
        async with Producer(**wanted) as newer:
            async with newer.transaction():
                await newer.send_and_wait("orders", b"pen")
            with pytest.raises(errors.KafkaError):
                async with producer.transaction():
                    await producer.send_and_wait("orders", b"late")
            with pytest.raises(errors.ProducerFenced):
                await producer.ping()
            with pytest.raises(errors.ProducerFenced):
                await producer.begin_transaction()


async def test_the_log_says_that_no_broker_is_reached(port: int, caplog: pytest.LogCaptureFixture):
    caplog.set_level(logging.WARNING, "aiokafkawire")
    async with Producer(**options(port)):
        await anyio.sleep(NO_BROKER_LOG_AFTER_S + 1.5)
    lines = [each.message for each in caplog.records if "no broker can be reached" in each.message]
    assert len(lines) == 1
    assert f"no broker can be reached: 127.0.0.1:{port}" in lines[0]


async def test_records_that_were_taken_fail_in_time(port: int):
    """A broker that was there, so that `send` knows the topic, and is gone."""
    wanted = options(port, delivery_timeout_ms=800, request_timeout_ms=300, close_timeout_ms=100)
    async with AsyncExitStack() as stack:
        broker = await stack.enter_async_context(broker_at(port))
        producer = await stack.enter_async_context(Producer(**wanted))
        await producer.send_and_wait("orders", b"book")
        await broker.stop()
        with ends_within(4), pytest.raises(errors.DeliveryTimedOut):
            await producer.send_and_wait("orders", b"pen")

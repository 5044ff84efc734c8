"""Sending to one broker: what goes into a request, and in which order requests go out."""

from __future__ import annotations

from collections.abc import Callable

import anyio
import pytest

from aiokafkawire.broker import Answer, Broker, Delay
from aiokafkawire.errors import AuthenticationFailed
from aiokafkawire.producer import Producer
from aiokafkawire.wire import ApiKey, ErrorCode
from tests.producer.conftest import produced

New = Callable[..., Producer]


async def test_one_request_takes_a_batch_of_every_partition_of_the_broker(anyio_backend: object):
    async with Broker(nodes=1) as broker:
        await broker.create_topic("wide", partitions=4)
        async with Producer(
            bootstrap_servers=broker.bootstrap_servers, linger_ms=5_000
        ) as producer:
            for partition in range(4):
                await producer.send("wide", b"v", partition=partition)
            await producer.flush()
        [seen] = broker.requests.of(ApiKey.PRODUCE)
    assert len(produced(seen)) == 4


async def test_requests_stay_under_their_size(broker: Broker, new_producer: New):
    for partition in range(3):
        broker.move_leader("t", partition, 1)
    async with new_producer(max_request_size_bytes=2_000, linger_ms=5_000) as producer:
        for partition in range(3):
            await producer.send("t", b"x" * 900, partition=partition)
        await producer.flush()
    sizes = [len(produced(seen)) for seen in broker.requests.of(ApiKey.PRODUCE)]
    assert sum(sizes) == 3
    assert max(sizes) == 2


async def test_requests_go_out_in_the_order_of_their_batches(broker: Broker, new_producer: New):
    broker.on(ApiKey.PRODUCE, Delay(0.002))
    async with new_producer(linger_ms=0, batch_size_bytes=1) as producer:
        for _ in range(60):
            await producer.send("t", b"v", partition=0)
        await producer.flush()
    batches = [b for seen in broker.requests.of(ApiKey.PRODUCE) for b in produced(seen)]
    assert [batch.base_sequence for batch in batches] == list(range(60))


async def test_one_request_in_flight_if_so_told(broker: Broker, new_producer: New):
    broker.on(ApiKey.PRODUCE, Delay(0.002))
    async with new_producer(
        linger_ms=0,
        batch_size_bytes=1,
        enable_idempotence=False,
        max_in_flight_requests_per_connection=1,
    ) as producer:
        for number in range(20):
            await producer.send("t", b"%02d" % number, partition=0)
        assert all(node._tasks == 1 for node in producer._lifecycle.session.sender._nodes.values())
        await producer.flush()
    assert broker.end_offset("t", 0) == 20


async def test_a_broker_that_is_away_is_tried_again(broker: Broker, new_producer: New):
    async with new_producer() as producer:
        await producer.send_and_wait("t", b"1", partition=0)
        for node in (1, 2, 3):
            await broker.kill(node)
        delivery = await producer.send("t", b"2", partition=0)
        with anyio.move_on_after(0.1):
            await delivery
        assert not delivery.done
        for node in (1, 2, 3):
            await broker.restart(node)
        assert (await delivery).offset == 1


async def test_the_last_error_is_told_with_what_was_tried(broker: Broker, new_producer: New):
    broker.on(ApiKey.PRODUCE, Answer(ErrorCode.NOT_ENOUGH_REPLICAS))
    async with new_producer(retries=2) as producer:
        with pytest.raises(Exception, match="NOT_ENOUGH_REPLICAS") as caught:
            await producer.send_and_wait("t", b"v", partition=0)
    assert caught.value.attempt == 3
    assert (caught.value.topic, caught.value.partition) == ("t", 0)


async def test_a_broker_that_refuses_the_client_fails_its_records_at_once(
    broker: Broker, new_producer: New
):
    async with new_producer() as producer:
        await producer.partitions_for("t")
        cluster = producer._lifecycle.session.cluster

        class Refusing:
            last_failure = None

            async def request(self, *_: object, **__: object) -> None:
                raise AuthenticationFailed("wrong password")

        cluster.broker = lambda _: Refusing()
        with pytest.raises(AuthenticationFailed, match="wrong password"):
            await producer.send_and_wait("t", b"v")
